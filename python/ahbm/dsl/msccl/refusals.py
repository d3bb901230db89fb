"""Errors of MSCCLang programs: one of `ahbm.errors`, and of the class that the language's own compiler raises."""

from __future__ import annotations

import sys
from typing import NoReturn

from ahbm.errors import Finding, Site, program_error


def here(depth: int = 1) -> str:
    """`file:line` of the caller `depth` frames above the function that asks."""
    frame = sys._getframe(depth + 1)
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"


def refuse(raised: str, code: str, message: str, *, origin: str, hint: str | None = None) -> NoReturn:
    """Raises the exception for one finding; `raised` is that of the language's own compiler."""
    finding = Finding(code, message, (Site("statement", origin),), hint)
    raise program_error([finding.to_json()], raised)


class Nothing:
    """What `chunk()` gives for a slot that was never written: false, equal to None, and of no use.

    Upstream gives None, and the program fails where it uses it. Raises `ProgramError` (AHBM-A204) there.
    """

    __slots__ = ("_buffer", "_index", "_origin", "_rank")

    def __init__(self, rank: int, buffer: object, index: int, origin: str) -> None:
        self._rank, self._buffer, self._index, self._origin = rank, buffer, index, origin

    def __bool__(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return other is None or isinstance(other, Nothing)

    def __hash__(self) -> int:
        return hash(None)

    def __repr__(self) -> str:
        return "None"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        message = (
            f"'NoneType' object has no attribute '{name}': nothing was written to slot {self._index} of {self._buffer} "
            f"of rank {self._rank} yet"
        )
        sites = (Site("used", here()), Site("taken", self._origin))
        raise program_error([Finding("AHBM-A204", message, sites).to_json()], "AttributeError")
