"""Everything that can go wrong, as one family of exceptions.

A stable code (``AHBM-D101``) is what scripts match on. Its letter decides the class (``FAMILIES``), the class decides
the exit code of the command line. ``docs/errors.md`` lists all codes; ``rust/findings/src/codes.rs`` is where they are
registered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NoReturn


@dataclass(frozen=True)
class Site:
    """One side of a finding: who did what (``label``) and where it was written (``origin``, may be empty)."""

    label: str
    origin: str = ""

    def __str__(self) -> str:
        return f"{self.label}  [{self.origin}]" if self.origin else self.label

    def to_json(self) -> dict[str, Any]:
        """The site as JSON-serialisable data; `file` and `line` of an origin that is a line of a file, else None."""
        file, _, line = self.origin.rpartition(":")
        known = bool(file) and line.isdecimal()
        place = {"file": file if known else None, "line": int(line) if known else None}
        return {"label": self.label, "origin": self.origin, **place}


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong."""

    code: str
    message: str
    sites: tuple[Site, ...] = ()
    hint: str | None = None

    def __str__(self) -> str:
        lines = [f"{self.code} {self.message}", *(f"  {site}" for site in self.sites)]
        if self.hint is not None:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The finding as JSON-serialisable data."""
        sites = [site.to_json() for site in self.sites]
        return {"code": self.code, "message": self.message, "sites": sites, "hint": self.hint}

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> Finding:
        """The inverse of `to_json`."""
        sites = tuple(Site(site["label"], site["origin"]) for site in found["sites"])
        return Finding(found["code"], found["message"], sites, found["hint"])


NAMED = 6
"""Places that a finding is repeated at and that are named; the rest is counted."""

_NUMBER = r"\d+"
_TOTAL = r" \(\d+ of \d+ elements are wrong[^()]*\)$"


def described(findings: Iterable[Finding]) -> str:
    """`findings` as text. Those that differ in numbers alone have one cause: the first is told, the rest counted."""
    alike: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        message = re.sub(_TOTAL, "", finding.message)
        # An origin's line is no number that may differ: it is where the cause stands.
        sites = tuple((re.sub(_NUMBER, "", site.label), site.origin) for site in finding.sites)
        alike.setdefault((finding.code, re.sub(_NUMBER, "", message), sites, finding.hint), []).append(finding)
    return "\n".join(f"{group[0]}{_repeated(group)}" for group in alike.values())


def _repeated(group: Sequence[Finding]) -> str:
    times = len(group) - 1
    if not times:
        return ""
    first, *rest = (re.sub(_TOTAL, "", finding.message) for finding in group)
    numbers = [re.findall(_NUMBER, message) for message in rest]
    where = ""
    for at, number in enumerate(re.finditer(_NUMBER, first)):
        values = list(dict.fromkeys(found[at] for found in numbers))
        if values != [number.group()]:
            word = re.search(r"([a-z]+) $", first[: number.start()])
            more = f" and {len(values) - NAMED} more" if len(values) > NAMED else ""
            where = f": {word[1] if word else 'with'} {', '.join(values[:NAMED])}{more}"
            break
    return f"\n  and the same {'once more' if times == 1 else f'{times} more times'}{where}"


class AhbmError(Exception):
    """Base of all errors. ``findings`` holds everything that was found; ``code``, ``message``, ``sites`` and
    ``hint`` are the first finding's."""

    exit_code: ClassVar[int] = 70
    """Of a defect, as sysexits.h has it; 2 is what the command line says of options that are none."""

    def __init__(
        self, code: str, message: str, *, sites: Iterable[Site | tuple[str, str]] = (), hint: str | None = None
    ) -> None:
        placed = tuple(site if isinstance(site, Site) else Site(*site) for site in sites)
        self._set((Finding(code, message, placed, hint),))

    @classmethod
    def of(cls, findings: Sequence[Finding]) -> AhbmError:
        """The exception that carries all ``findings`` (at least one), of the class of the first one's code."""
        kind = FAMILIES.get(findings[0].code.removeprefix("AHBM-")[:1], AhbmError)
        error = kind.__new__(kind)
        error._set(tuple(findings))
        return error

    def _set(self, findings: tuple[Finding, ...]) -> None:
        self.findings = findings
        self.args = (described(findings),)

    @property
    def code(self) -> str:
        """Stable code, e.g. ``AHBM-D101``."""
        return self.findings[0].code

    @property
    def message(self) -> str:
        """One sentence that says which mistake was made."""
        return self.findings[0].message

    @property
    def sites(self) -> tuple[Site, ...]:
        """The places of the error: every side that took part."""
        return self.findings[0].sites

    @property
    def hint(self) -> str | None:
        """The advice on the error; None: there is none."""
        return self.findings[0].hint

    def with_findings(self, findings: Sequence[Finding]) -> AhbmError:
        """The same exception with other findings."""
        error = _rebuild(type(self), tuple(findings))
        error.__cause__ = self.__cause__
        return error

    def to_json(self) -> dict[str, Any]:
        """``{"error", "exit_code", "findings": [...]}``, JSON-serialisable."""
        findings = [finding.to_json() for finding in self.findings]
        return {"error": type(self).__name__, "exit_code": self.exit_code, "findings": findings}

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.findings))


class ConfigError(AhbmError, ValueError):
    """ccl.yaml, an argument or an algorithm module is not what it must be."""

    exit_code = 3


class TopologyError(AhbmError, ValueError):
    """A machine description is not valid, or a place is not on the machine."""

    exit_code = 4


class KernelError(AhbmError):
    """A kernel broke its contract while it was captured."""

    exit_code = 5


class KernelValueError(KernelError, ValueError):
    """A kernel or its `kernel_args` raised a ValueError, as for a topology that it does not support (`__cause__`)."""

    @staticmethod
    def of_cause(error: KernelError) -> KernelError:
        """`error`, as a ValueError too where that is its cause."""
        if not isinstance(error.__cause__, ValueError) or isinstance(error, KernelValueError):
            return error
        raised = _rebuild(KernelValueError, error.findings)
        assert isinstance(raised, KernelError)
        raised.__cause__ = error.__cause__
        return raised


class LintError(AhbmError):
    """A program cannot run as written; found before anything ran."""

    exit_code = 6


class DeadlockError(AhbmError):
    """Every agent that still has work waits for another."""

    exit_code = 7


class DataError(AhbmError):
    """A result or an array is wrong."""

    exit_code = 8


class BudgetError(AhbmError):
    """A limit on operations, events or bytes was reached."""

    exit_code = 9


class UnsupportedError(AhbmError, NotImplementedError):
    """The message names something that does not exist here."""

    exit_code = 10


class DistributedError(AhbmError, RuntimeError):
    """A process group was misused, or its ranks disagree."""

    exit_code = 11


class SelectionError(DistributedError):
    """The selectors of two ranks chose differently."""

    ranks: tuple[int, ...] = ()
    """Two global ranks that differ."""
    feature: str = ""
    """What differs between them; empty where nothing that can be seen does."""
    values: tuple[str, ...] = ()
    """Its value on each of the two."""
    choices: Mapping[int, str] = MappingProxyType({})
    """What each rank chose."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        sites: Iterable[Site | tuple[str, str]] = (),
        hint: str | None = None,
        ranks: tuple[int, ...] = (),
        feature: str = "",
        values: tuple[str, ...] = (),
        choices: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(code, message, sites=sites, hint=hint)
        self.ranks, self.feature, self.values, self.choices = ranks, feature, values, dict(choices)


class SelectorWarning(UserWarning):
    """A selector failed or took too long, so that ccl.yaml chose in its place, on all ranks."""


class RankError(DistributedError):
    """A sibling rank failed; the message says which, ``__cause__`` says why."""


class InterruptedRun(AhbmError):
    """A run was stopped from outside."""

    exit_code = 130


class FormatError(AhbmError, ValueError):
    """A file of another project is malformed."""

    exit_code = 13


class RegressionError(AhbmError):
    """Something got worse than a baseline."""

    exit_code = 14


class ProgramError(AhbmError):
    """A program of a language for collective algorithms is not what it must be, or its script failed."""

    exit_code = 16


class ProgramWarning(UserWarning):
    """A program does not compute its collective, or that was not decided, and the run goes on; ``findings`` say why."""

    def __init__(self, text: str, findings: tuple[Finding, ...] = ()) -> None:
        super().__init__(text)
        self.findings = findings


class ProgramRuntimeError(ProgramError, RuntimeError):
    """A `ProgramError` where the language's own compiler raises a RuntimeError."""


class ProgramValueError(ProgramError, ValueError):
    """A `ProgramError` where the language's own compiler raises a ValueError."""


class ProgramTypeError(ProgramError, TypeError):
    """A `ProgramError` where the language's own compiler raises a TypeError."""


class ProgramAssertionError(ProgramError, AssertionError):
    """A `ProgramError` where the language's own compiler raises an AssertionError."""


class ProgramAttributeError(ProgramError, AttributeError):
    """A `ProgramError` where the language's own compiler raises an AttributeError."""


class ProgramIndexError(ProgramError, IndexError):
    """A `ProgramError` where the language's own compiler raises an IndexError."""


class ProgramKeyError(ProgramError, KeyError):
    """A `ProgramError` where the language's own compiler raises a KeyError."""

    __str__ = ProgramError.__str__


class ProgramOutdatedError(ProgramError, AttributeError, TypeError):
    """A `ProgramError` for a call by an older interface, which the language's own compiler fails at in several ways."""


FAMILIES: dict[str, type[AhbmError]] = {
    "C": ConfigError,
    "T": TopologyError,
    "K": KernelError,
    "L": LintError,
    "D": DeadlockError,
    "V": DataError,
    "B": BudgetError,
    "U": UnsupportedError,
    "X": DistributedError,
    "I": InterruptedRun,
    "F": FormatError,
    "R": RegressionError,
    "A": ProgramError,
}
"""Letter of a code -> class of the exception, by exit code. Any other letter is a plain AhbmError."""


def raise_findings(findings: Sequence[Mapping[str, Any]]) -> NoReturn:
    """Raises one exception for ``findings``: dicts with the keys of :meth:`Finding.to_json`.

    The first finding's code decides the class.
    """
    raise AhbmError.of([Finding.from_json(found) for found in findings])


def program_error(findings: Sequence[Mapping[str, Any]], raised: str) -> AhbmError:
    """The `ProgramError` for ``findings`` that is also a ``raised``, a built-in exception by name, or OutdatedError.

    The findings are dicts with the keys of :meth:`Finding.to_json`; a first one of another family decides the class.
    """
    found = tuple(Finding.from_json(finding) for finding in findings)
    if not found[0].code.startswith("AHBM-A"):
        return AhbmError.of(found)
    kinds = {kind.__name__: kind for kind in ProgramError.__subclasses__()}
    return _rebuild(kinds[f"Program{raised}"], found)


def _rebuild(kind: type[AhbmError], findings: tuple[Finding, ...]) -> AhbmError:
    error = kind.__new__(kind)
    error._set(findings)
    return error
