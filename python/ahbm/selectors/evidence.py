"""What a choice rests on: the call, the selector's own state, and what it asked for while it chose.

Ranks that choose differently are told apart by the first of these facts that differs. A selector may only use values
that are equal on all ranks; Python lets it use any. So one that AHBM does not know is watched: calls that it makes from
its own body are noted with what they return, clocks and random numbers with their readings, and its variables at the
end. The facts are in the order in which they come to be, so the first that differs is the nearest to the cause.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any, TypeVar

_Answer = TypeVar("_Answer")
Fact = tuple[str, object]
"""A name, and a value that can be compared and shown."""
MOST_FACTS = 64
"""Facts that are noted of one choice."""
SHORT = 256
"""Characters of a value up to which it is kept as it is; of longer ones, a digest."""

_PLAIN = (type(None), bool, int, float, str, bytes, complex)
_CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time")
_NAMES: dict[Callable[[], object], str] = {
    **{getattr(time, name): f"time.{name}()" for name in _CLOCKS},
    os.getpid: "os.getpid()",
    threading.get_ident: "threading.get_ident()",
}
"""Functions without arguments that answer differently on every rank."""


def state(selector: object) -> Iterator[Fact]:
    """The values that a selector, or a function, holds: attributes, variables that it encloses, its defaults."""
    function: Any = getattr(selector, "function", selector)
    for name, value in sorted(getattr(selector, "__dict__", {}).items()):
        if name != "function" and (fact := _fact(name, value)) is not None:
            yield fact
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        if (fact := _fact(name, cell.cell_contents)) is not None:
            yield fact
    for name in code.co_names:
        if name in function.__globals__ and (fact := _fact(name, function.__globals__[name])) is not None:
            yield fact
    for at, value in enumerate(function.__defaults__ or ()):
        if (fact := _fact(f"default {at}", value)) is not None:
            yield fact


def body(selector: object) -> CodeType | None:
    """The code that chooses; None where it is not written in Python."""
    function: Any = getattr(selector, "function", None) or getattr(type(selector), "get_coll_info", None)
    if not hasattr(function, "__code__"):
        function = vars(type(function)).get("__call__")
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None


def watched(ask: Callable[[], _Answer], own: CodeType | None, facts: list[Fact]) -> _Answer:
    """The answer of `ask`; notes in `facts` what the code `own` calls and reads on the way. Where a profiler is at
    work, or without such code, notes nothing."""
    if own is None or sys.getprofile() is not None:
        return ask()
    sys.setprofile(_Watch(own, facts))
    try:
        return ask()
    finally:
        sys.setprofile(None)


_WRAPPERS = tuple(f"<locals>.{name}" for name in ("called", "wrapper", "wrapped", "inner"))
"""Functions that decorators put in the place of others: what they return has the other's name."""


class _Watch:
    """A profile function."""

    def __init__(self, own: CodeType, facts: list[Fact]) -> None:
        self._own = own
        self._facts = facts
        self._depth = 0
        """Frames from the selector's own on, that included; 0 outside of it."""

    def __call__(self, frame: FrameType, event: str, value: Any) -> None:
        if frame.f_code.co_qualname.endswith(_WRAPPERS):
            return
        if event == "call":
            self._depth += self._depth > 0 or frame.f_code is self._own
        elif event == "return" and self._depth:
            if self._depth == 1:
                for name, local in frame.f_locals.items():
                    self._note(name, local)
            elif self._depth == 2:
                self._note(f"{frame.f_code.co_name}()", value)
            self._depth -= 1
        elif event == "c_call" and self._depth:
            self._read(value)

    def _read(self, function: Any) -> None:
        owner = getattr(function, "__self__", None)
        if isinstance(owner, random.Random):
            self._note("random state", owner)
        elif function in _NAMES:
            self._note(_NAMES[function], function())

    def _note(self, name: str, value: object) -> None:
        if len(self._facts) < MOST_FACTS and (fact := _fact(name, value)) is not None:
            self._facts.append(fact)


def _fact(name: str, value: object) -> Fact | None:
    """A fact about a value; None for what cannot be compared: functions, modules, objects of unknown classes."""
    if isinstance(value, _PLAIN):
        text = value if not isinstance(value, str | bytes) or len(value) <= SHORT else _digest(repr(value))
        return name, text
    if isinstance(value, random.Random):
        return name, _digest(repr(value.getstate()))
    generator = getattr(value, "bit_generator", None)
    if generator is not None:
        return name, _digest(repr(generator.state))
    if isinstance(value, tuple | list | set | frozenset | dict) and len(value) <= SHORT and _is_plain(value):
        text = repr(value)
        return name, text if len(text) <= SHORT else _digest(text)
    return None


def _is_plain(value: Any) -> bool:
    items = [*value.keys(), *value.values()] if isinstance(value, dict) else value
    return all(isinstance(item, _PLAIN) for item in items)


def _digest(text: str) -> str:
    return f"digest {hashlib.sha256(text.encode()).hexdigest()[:16]}"
