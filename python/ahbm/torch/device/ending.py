"""How a script ends: by itself, after `--steps N` iterations, by a signal or by an error; each time there is an answer.

After N iterations the main thread raises `Enough`, a SystemExit: `finally:` blocks and functions of `atexit` run, and
`except Exception` lets it pass. Where a script goes on all the same, it is raised again at the next iterations, and
then the process ends as an interpreter would.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import multiprocessing
import multiprocessing.process
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch.multiprocessing.spawn import _wrap

from ahbm.base.words import span
from ahbm.errors import ConfigError, DistributedError
from ahbm.torch.device import watch
from ahbm.torch.failures import BackendError, BackendRankError

STEPS = "AHBM_END_AFTER"
"""Environment variable in which processes find what `--steps` has asked for: iterations after which a script ends."""
PATIENCE = 3
"""How often `Enough` is raised before the process ends without the script."""
ENOUGH = "enough"
"""How a script has ended that `--steps` ended."""
STOPPED = "SIGTERM"


CHILDREN = "AHBM_TORCH_CHILDREN"
"""Environment variable: the file that a process makes that a script spawned, if it has something to answer."""


def spawns() -> None:
    """The script starts a process."""
    if CHILDREN not in os.environ:
        os.environ[CHILDREN] = os.path.join(tempfile.mkdtemp(prefix="ahbm-"), "answered")


def answers() -> None:
    """A process that a script started has used the device."""
    if file := os.environ.get(CHILDREN):
        with contextlib.suppress(OSError), open(file, "w"):
            pass


def children() -> bool:
    """Whether such a process has; asked once, at the end."""
    file = os.environ.get(CHILDREN)
    there = file is not None and os.path.exists(file)
    if file is not None:
        shutil.rmtree(os.path.dirname(file), ignore_errors=True)
    return there


in_child: list[Callable[[], None]] = []
"""Functions that a process calls that a script spawned: when it begins its work, since it has just forgotten what was
to be done at its end."""


class Enough(SystemExit):
    """The script has done as many iterations as it was asked for."""


class Stopped(SystemExit):
    """The process was told to end."""


_OTHERS = (BackendError.__name__, BackendRankError.__name__)
on_enough: list[Callable[[], None]] = []
"""Functions that are called when this process has done its iterations."""
others: list[Callable[[], bool]] = []
"""Functions that know whether another rank has."""
_how = [""]
_raised = [0]
_met = [False]


def how() -> str:
    """In words, how the script has ended; empty where it did by itself."""
    return _how[0]


def first(hows: Sequence[str]) -> str:
    """How a job has ended whose ranks have ended so: what failed by itself, else what stopped the others."""
    if ENOUGH in hows and set(hows) <= {ENOUGH, "", *_OTHERS}:
        return ENOUGH
    stopped = {rank: how for rank, how in enumerate(hows) if how not in ("", ENOUGH)}
    own = {rank: how for rank, how in stopped.items() if how not in (STOPPED, *_OTHERS)} or stopped
    if not own:
        return ""
    kinds = dict.fromkeys(own.values())
    if len(kinds) == 1 and len(own) == len(hows):
        return next(iter(kinds))
    return ", ".join(f"{kind} on {span([rank for rank, how in own.items() if how == kind])}" for kind in kinds)


@contextmanager
def main() -> Iterator[None]:
    """Around the script of a process: see `noting`. After Ctrl-C the exit status is Python's own, 130."""
    with noting():
        try:
            yield
        except KeyboardInterrupt as error:
            sys.excepthook(type(error), error, error.__traceback__)
            raise SystemExit(128 + signal.SIGINT) from None


def wanted() -> int:
    """Iterations after which the script ends; 0 where it ends by itself. Raises ConfigError (AHBM-C127)."""
    asked = os.environ.get(STEPS)
    if not asked:
        return 0
    if not asked.isdecimal() or not int(asked):
        raise ConfigError("AHBM-C127", f"--steps {asked} is no number of iterations", hint="1 or more")
    return int(asked)


def install() -> None:
    """From now on. Raises ConfigError (AHBM-C127)."""
    if (number := wanted()) and not _met[0]:
        watch.after.append(lambda: _check(number))
    _met[0] = True
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, *rest: Any) -> None:
        note(error)
        before(kind, error, *rest)

    sys.excepthook = hook
    process: Any = multiprocessing.process.BaseProcess
    starts, runs = process.start, process.run

    @functools.wraps(starts)
    def start(process: Any) -> None:
        spawns()
        starts(process)

    @functools.wraps(runs)
    def run(process: Any) -> None:
        for function in in_child:
            function()
        if process._target is _wrap:  # which keeps errors to itself
            of, *rest = process._args
            process._args = (noting()(of), *rest)
        with noting():
            runs(process)

    process.start, process.run = start, run
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        mine = os.getpid()

        def stop(number: int, _: Any) -> None:
            if os.getpid() != mine:  # a process that was forked from this one
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
                return
            signal.signal(number, signal.SIG_IGN)
            raise Stopped(128 + number)

        signal.signal(signal.SIGTERM, stop)


@contextmanager
def noting() -> Iterator[None]:
    """Around a script: how it ends is remembered."""
    try:
        yield
    except DistributedError as error:
        if wanted() and any(has() for has in others):  # a rank that still waited for them
            note(Enough(0))
            raise Enough(0) from error
        note(error)
        raise
    except BaseException as error:
        note(error)
        raise


def note(error: BaseException) -> None:
    """The script ends with this, as far as is known."""
    if isinstance(error, Enough):
        _how[0] = ENOUGH
    elif _how[0] == ENOUGH:
        return
    elif isinstance(error, Stopped):
        _how[0] = STOPPED
    elif isinstance(error, KeyboardInterrupt):
        _how[0] = "Ctrl-C"
        at_once()
    elif not isinstance(error, SystemExit):
        _how[0] = type(error).__name__
    elif error.code not in (None, 0) and not _how[0]:
        _how[0] = f"exit status {error.code if isinstance(error.code, int) else 1}"


def at_once() -> None:
    """From now on Ctrl-C ends the process at once."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def undisturbed() -> Callable[[], None]:
    """Until the function that it returns is called, SIGTERM does not stop the answer, and Ctrl-C ends the process."""
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    at_once()
    if before[signal.SIGTERM] is not signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore


def _check(number: int) -> None:
    if watch.count.ended >= number and watch.count.sure:
        enough()


def enough() -> None:
    """Ends the script. Raises Enough, in the main thread as well where another one calls."""
    _how[0] = ENOUGH
    for tells in on_enough:
        tells()
    _raised[0] += 1
    if _raised[0] > PATIENCE:
        _leave()
    if threading.current_thread() is not threading.main_thread():
        main = ctypes.c_ulong(threading.main_thread().ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(main, ctypes.py_object(Enough))
    raise Enough(0)


def _leave() -> None:
    """Ends the process as the end of an interpreter would, but for the script."""
    if multiprocessing.parent_process() is not None:
        from multiprocessing import util

        util._exit_function()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(0)
