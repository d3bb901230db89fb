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
_FRONTS = (_PACKAGE, os.path.join(sysconfig.get_paths()["platlib"], "torch") + os.sep)
"""The code that stands between a user's line and an operation."""
_LIBRARIES = tuple(sysconfig.get_paths()[key] for key in ("stdlib", "purelib", "platlib"))


def call_origin() -> str:
    """`file:line` of the innermost caller outside this package and torch, by the file's base name."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_front(frame.f_code.co_filename):
        frame = frame.f_back
    return _place(frame.f_code.co_filename, frame.f_lineno)


@lru_cache(1 << 12)
def _is_front(file: str) -> bool:
    return file.startswith(_FRONTS)


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
        if not frame.f_code.co_filename.startswith((_PACKAGE, *_LIBRARIES)):
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
