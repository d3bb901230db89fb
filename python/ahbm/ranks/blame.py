"""The place of a call, and the rank whose error it is."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from functools import lru_cache
from pathlib import Path

from ahbm.errors import AhbmError, RankError, Site

_PACKAGE = str(Path(__file__).parent.parent) + os.sep
_LIBRARIES = tuple(sysconfig.get_paths()[key] for key in ("stdlib", "purelib", "platlib"))
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
SCRIPT, LIBRARY, FRONT = range(3)
"""Whose code a file is: the user's; a library's; or that of this package, torch and Python, which is never told of."""

backward = [""]
"""The line whose backward pass is under way: autograd may make calls in threads of its own."""


def call_origin() -> str:
    """`file:line` of the innermost caller that is no library's, by the file's base name; where there is none but
    libraries', that of the outermost of them, which is what was run."""
    frame = sys._getframe(1)
    library = None
    while True:
        code = frame.f_code
        kind = kind_of(code.co_filename)
        if kind == SCRIPT:
            return _place(code.co_filename, frame.f_lineno)
        if kind == LIBRARY:
            library = frame
        if frame.f_back is None:
            break
        frame = frame.f_back
    if backward[0]:
        return backward[0]
    last = library or frame
    return _place(last.f_code.co_filename, last.f_lineno)


@lru_cache(1 << 12)
def kind_of(file: str) -> int:
    """Whose code a file is: `SCRIPT`, `LIBRARY` or `FRONT`."""
    if file.startswith((_PACKAGE, "<frozen", "<eval_with_key", "<timeit-src")):
        return FRONT
    torch = sys.modules.get("torch")
    place = getattr(torch, "__file__", None)
    if place is not None and file.startswith(os.path.dirname(place) + os.sep):
        return FRONT
    if any(part in file for part in _INSTALLED):
        return FRONT if file.rpartition("-packages")[2].startswith(f"{os.sep}torch{os.sep}") else LIBRARY
    return FRONT if file.startswith(_LIBRARIES) else SCRIPT


@lru_cache(1 << 12)
def _place(file: str, line: int) -> str:
    return f"{file.rpartition(os.sep)[2]}:{line}"


def rank_error(rank: int, error: BaseException) -> RankError:
    """The one error with which a failing rank stops its siblings; its cause is what the rank raised."""
    message = error.message if isinstance(error, AhbmError) else str(error)
    kind = error.code if isinstance(error, AhbmError) else type(error).__name__
    failure = RankError(
        "AHBM-X120",
        f"rank {rank} failed: {kind}: {message}",
        sites=[Site(f"rank {rank} raised {type(error).__name__}", _raised_at(error))],
        hint=error.hint if isinstance(error, AhbmError) else None,
    )
    failure.__cause__ = error
    return failure


def _raised_at(error: BaseException) -> str:
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if kind_of(frame.f_code.co_filename) == SCRIPT:
            place = f"{Path(frame.f_code.co_filename).name}:{line}"
    return place


def clone(error: BaseException) -> BaseException:
    """A copy of `error` for one more thread to raise: an exception object carries one traceback only."""
    copy = type(error).__new__(type(error))
    copy.args = error.args
    copy.__dict__.update(error.__dict__)
    copy.__dict__["_original"] = original(error) or error
    copy.__cause__ = error.__cause__
    return copy.with_traceback(error.__traceback__)


def original(error: BaseException) -> BaseException | None:
    """The error that `error` is a clone of."""
    found = error.__dict__.get("_original")
    return found if isinstance(found, BaseException) else None
