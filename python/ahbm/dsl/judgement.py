"""Whether a program that was lowered computes its collective: what its author is told at once."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ahbm.base import codes
from ahbm.base.verdicts import CHECK_ENV
from ahbm.errors import AhbmError, Finding, ProgramWarning, described

if TYPE_CHECKING:
    from ahbm._core import Plan
    from ahbm.dsl.written import Written

MOST_OPS = 20_000
"""Operations of the largest plan that is checked while a program is lowered; a check takes some 10 us for each."""

_PACKAGE = str(Path(__file__).resolve().parents[1]) + os.sep
_SILENT = ("correct", "no_expectation")
_UNKNOWN = ("undecided", "unsupported")

_lock = threading.Lock()
RIGHT: set[bytes] = set()
"""Digests of plans of which nothing is to be told: ranks that are threads lower the same programs."""


@dataclass(frozen=True)
class Judgement:
    """What is known of a plan."""

    name: str
    """The program's."""
    verdict: str
    """A key of `ahbm.base.verdicts.EXIT_CODES`."""
    findings: tuple[Finding, ...]
    """Nothing where there is nothing to tell."""

    @property
    def failed(self) -> bool:
        """Whether the program is known to be wrong."""
        return bool(self.findings) and self.verdict not in _UNKNOWN

    def __str__(self) -> str:
        said = "not checked" if self.verdict in _UNKNOWN else self.verdict.replace("_", " ")
        lines = [f"  {line}" for line in described(self.findings).splitlines()]
        return "\n".join([f"{self.name}: {said}", *lines])


def unchecked() -> bool:
    """Whether the user wants no checks (AHBM_CHECK=none)."""
    return os.environ.get(CHECK_ENV) == "none"


def judge(name: str, plan: Plan) -> Judgement:
    """Checks a plan as `ahbm check` does, without its warnings; one that is larger than `MOST_OPS` is undecided."""
    if plan.ops > MOST_OPS:
        message = f"{plan.ops} operations: more than {MOST_OPS} are not checked while a program is lowered"
        hint = "`ahbm check` with the script and its arguments checks them"
        return Judgement(name, "undecided", (Finding(codes.CHECK_BUDGET, message, (), hint),))
    verdict, _, found, _ = plan.check()
    findings = tuple(map(Finding.from_json, found))
    if verdict in _SILENT:
        findings = tuple(finding for finding in findings if finding.code in codes.RACES)
    return Judgement(name, verdict, findings)


def warn(program: Written) -> None:
    """Warns of a program that is known to be wrong, or that was not checked, at the author's line.

    Raises `ProgramWarning` where warnings are errors.
    """
    if unchecked():
        return
    digest = hashlib.sha256(program.text.encode()).digest()
    with _lock:
        if digest in RIGHT:
            return
        judgement = judge(program.name, program.plan)
        if not judgement.findings:
            RIGHT.add(digest)
            return
    _tell(judgement)


def warn_of(name: str, error: AhbmError) -> None:
    """Warns of a program whose plan cannot be followed, as `warn`."""
    if not unchecked():
        _tell(Judgement(name, "malformed", error.findings))


def _tell(judgement: Judgement) -> None:
    warnings.warn(ProgramWarning(str(judgement), judgement.findings), stacklevel=_outside())


def _outside() -> int:
    """The `stacklevel` for the caller of `_tell`'s `warn` that is the innermost one outside of the package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    return level
