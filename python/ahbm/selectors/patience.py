"""An end to functions that do not return: after a time in wall seconds an exception is raised in their thread."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import TypeVar

_Answer = TypeVar("_Answer")
LOOKS_S = 0.05
"""Wall seconds between two looks at what is under way."""
ARRIVES = 20
"""Looks within which an exception that was sent to a thread arrives, unless its function has swallowed it."""
LINGERS_S = 2.0
"""Wall seconds without anything under way after which nobody looks any more."""

_lock = threading.Lock()
_armed: dict[int, float] = {}
"""By thread, the end of its patience."""
_looking = False


class TooSlow(BaseException):
    """Raised inside of a function that has taken too long."""


def within(seconds: float, function: Callable[[], _Answer]) -> _Answer:
    """The answer of `function`. Raises TooSlow when that takes longer than `seconds`, as soon as it runs Python."""
    global _looking
    thread = threading.get_ident()
    with _lock:
        _armed[thread] = time.monotonic() + seconds
        if not _looking:
            _looking = True
            threading.Thread(target=_look, name="ahbm: slow selectors", daemon=True).start()
    try:
        answer = function()
    except TooSlow:
        raise
    except BaseException:
        _disarm(thread)
        raise
    _disarm(thread)
    return answer


def _disarm(thread: int) -> None:
    """Ends the watch over the calling thread. An exception that is on its way is waited for, so that it reaches nobody
    else: to take it back would leave CPython 3.11 looking for it for ever."""
    with _lock:
        if _armed.pop(thread, None) is not None:
            return
    for _ in range(ARRIVES):
        time.sleep(LOOKS_S)


def _look() -> None:
    global _looking
    idle = 0.0
    while True:
        time.sleep(LOOKS_S)
        with _lock:
            now = time.monotonic()
            for thread, end in list(_armed.items()):
                if now > end:
                    del _armed[thread]
                    raised = ctypes.py_object(TooSlow)
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)
            idle = 0.0 if _armed else idle + LOOKS_S
            if idle > LINGERS_S:
                _looking = False
                return
