"""Ctrl-C: a command ends within half a second, wherever it is, and says where that was."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import sysconfig
import threading
from collections.abc import Iterator
from pathlib import Path
from traceback import walk_stack, walk_tb
from types import FrameType

from ahbm.cli import progress
from ahbm.errors import InterruptedRun

GRACE_S = 0.2
"""Seconds in which Python code may end by itself; then native code that hears no signals is ended with the process."""

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_HOME = str(Path(__file__).parents[2]) + os.sep
_LIBRARIES = ("<", *(sysconfig.get_paths()[key] for key in ("stdlib", "purelib", "platlib")))
_scripts: list[bool] = []
"""Not empty once a user's script runs, which may answer Ctrl-C as it likes."""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Inside the `with` block, Ctrl-C ends the process even where no Python code runs.

    Does nothing outside of the main thread, where somebody else handles Ctrl-C, and for help, which is quick.
    """
    if (
        not {"-h", "--help"}.isdisjoint(sys.argv)
        or threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    import socket

    from ahbm._core import Watch

    main = threading.get_ident()

    def unheard() -> bool:
        if _scripts:
            return False
        say(str(interrupted(sys._current_frames().get(main)).message))
        return True

    # Sockets, because Windows wakes nothing else.
    read, write = socket.socketpair()
    write.setblocking(False)
    watch = Watch(read.detach(), GRACE_S, unheard)
    before = signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        watch.stop()
        signal.set_wakeup_fd(before)
        write.close()


def leave_to_script() -> None:
    """From now on, Ctrl-C means what it means to Python."""
    _scripts.append(True)


def is_left_to_script() -> bool:
    """Whether a script runs, or has run."""
    return bool(_scripts)


def say(message: str) -> None:
    """Writes one line to standard error, if it can be written to."""
    progress.clear()
    with contextlib.suppress(OSError):
        print(f"AHBM-I101 {message}", file=sys.stderr, flush=True)


def interrupted(at: FrameType | KeyboardInterrupt | None) -> InterruptedRun:
    """The error (AHBM-I101) that says where a command was: at an exception, or at what a thread executes."""
    frames: list[tuple[FrameType, int]] = []
    if isinstance(at, KeyboardInterrupt):
        frames = list(walk_tb(at.__traceback__))
    elif at is not None:
        frames = list(walk_stack(at))[::-1]
    place = ""
    for frame, line in reversed(frames):
        file = frame.f_code.co_filename
        if file.startswith(_PACKAGE) or not file.startswith(_LIBRARIES):
            place = f" in {frame.f_code.co_qualname} ({file.removeprefix(_HOME)}:{line})"
            break
    where = f" at {progress.where()}" if progress.where() else ""
    return InterruptedRun("AHBM-I101", f"interrupted: ahbm {' '.join(sys.argv[1:3])}{where}{place}")
