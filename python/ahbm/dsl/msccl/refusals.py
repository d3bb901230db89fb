"""Errors of MSCCLang programs: one of `ahbm.errors`, and of the class that the language's own compiler raises."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from ahbm.errors import AhbmError, Finding, ProgramError, Site


class ProgramAssertion(ProgramError, AssertionError):
    """Upstream asserts."""


class ProgramAttribute(ProgramError, AttributeError):
    """Upstream uses what is not there."""


class ProgramIndex(ProgramError, IndexError):
    """Upstream looks behind the end of a list."""


class ProgramKey(ProgramError, KeyError):
    """Upstream looks for a buffer that is not there."""

    __str__ = ProgramError.__str__


class ProgramType(ProgramError, TypeError):
    """Upstream computes with what is no number."""


class ProgramValue(ProgramError, ValueError):
    """Upstream finds a value of no use."""


class OutdatedProgram(ProgramError, AttributeError, TypeError):
    """A call by the interface before msccl-tools 2.3."""


_KINDS: dict[str, type[ProgramError]] = {
    "assertion": ProgramAssertion,
    "attribute": ProgramAttribute,
    "index": ProgramIndex,
    "key": ProgramKey,
    "runtime": ProgramError,
    "type": ProgramType,
    "value": ProgramValue,
    "outdated": OutdatedProgram,
}


def refusal(kind: str, findings: Sequence[Mapping[str, Any]]) -> AhbmError:
    """The exception for findings with the keys of `Finding.to_json`; a finding of another family decides its class."""
    found = [Finding.from_json(finding) for finding in findings]
    if not found[0].code.startswith("AHBM-A"):
        return AhbmError.of(found)
    cls = _KINDS[kind]
    error = cls.__new__(cls)
    error._set(tuple(found))
    return error


def here(depth: int = 1) -> str:
    """`file:line` of the caller `depth` frames above the function that asks."""
    frame = sys._getframe(depth + 1)
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"


def refuse(kind: str, code: str, message: str, *, origin: str, hint: str | None = None) -> NoReturn:
    """Raises the exception for one finding."""
    finding = Finding(code, message, (Site("statement", origin),), hint)
    raise refusal(kind, [finding.to_json()])


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
        raise refusal("attribute", [Finding("AHBM-A204", message, sites).to_json()])
