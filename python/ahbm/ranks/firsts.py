"""Checks of calls that are the first of their shape."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ahbm.base import codes
from ahbm.base.verdicts import CHECK_ENV
from ahbm.errors import (
    AhbmError,
    BudgetError,
    DataError,
    DeadlockError,
    Finding,
    ProgramWarning,
    Site,
    UnsupportedError,
)
from ahbm.ranks.setup import Setup

if TYPE_CHECKING:
    from ahbm.check.case import Case
    from ahbm.core.compiled import Compiled
    from ahbm.core.emulator import Emulator

USUAL = "result"
"""The check that is made where nobody asks for any."""


def first_checks(emulator: Emulator, setup: Setup, most_bytes: int | None = None) -> Callable[[Compiled], None] | None:
    """The function that checks a program before its first run, raises what it finds and warns once of what stays
    undecided, at the kernel's line; None: no check is made. most_bytes: see `undecided`.

    Raises ConfigError (AHBM-C170) for unknown checks.
    """
    names = setup.check or os.environ.get(CHECK_ENV) or USUAL
    if names == "none":
        return None
    from ahbm.check.checks import parse

    checks = parse(names)
    warned: set[tuple[str, str, str]] = set()

    def verify(compiled: Compiled) -> None:
        from ahbm.check.case import Case

        if compiled.program is None:
            return
        for finding in undecided(Case(emulator, compiled.request, compiled.by), checks, most_bytes):
            where = compiled.algorithm, finding.code, _line(finding)
            if where not in warned:
                warned.add(where)
                _warn(compiled, finding)

    return verify


def undecided(case: Case, checks: frozenset[str], most_bytes: int | None = None) -> list[Finding]:
    """Checks the first call of a shape as `ahbm.run` does; what stays undecided.

    `USUAL` alone is quick: contributions are followed in one order, and results are compared with numbers only where
    that leaves a doubt. Other checks are made as `ahbm.run` makes them. most_bytes: of the data of all ranks, up to
    which numbers are compared. Raises what is wrong, with the kernel's own lines.
    """
    try:
        return _undecided(case, checks, most_bytes)
    except (DataError, DeadlockError) as error:
        from ahbm.runs.blame import blamed

        raise blamed(case, error, lambda other: _undecided(other, checks, most_bytes)) from error.__cause__


def _undecided(case: Case, checks: frozenset[str], most_bytes: int | None) -> list[Finding]:
    from ahbm.check.checks import CALLS, ORDERS, demand, examine
    from ahbm.check.numbers import compared
    from ahbm.runs.blame import tracing

    compiled = case.compiled()
    quick = checks == {USUAL}
    calls, orders = (1, 1) if quick else (CALLS, ORDERS)
    # Where agents race, the order that was followed may be another than that of the run.
    found = examine(case, compiled, checks | {"race"}, calls=calls, orders=orders)
    wanted = {code for check in checks for code in codes.CHECKS.get(check, ())} | {codes.CHECK_BUDGET}
    kept = demand([finding for finding in found if finding.code in wanted], checks)
    open_ = [finding for finding in kept if finding.code in codes.UNDECIDED]
    doubts = [finding for finding in found if finding.code in (*codes.UNDECIDED, *codes.RACES)]
    if USUAL not in checks or (quick and not doubts):
        return open_
    try:
        request = case.request
        nbytes = request.parties * request.size * request.element.storage.itemsize
        if most_bytes is not None and nbytes > most_bytes:
            raise BudgetError(
                "AHBM-B301", f"they would take {nbytes} bytes, of at most {most_bytes} where no data move"
            )
        error = compared(case, partial(tracing, case))
    except (BudgetError, UnsupportedError) as refused:
        return [_uncompared(finding, refused) for finding in open_ or doubts[:1]]
    if error is not None:
        raise _with_doubts(error, doubts)
    return [replace(finding, message=f"{finding.message}; numbers come out right") for finding in open_]


def _uncompared(finding: Finding, why: AhbmError) -> Finding:
    """A doubt that numbers could not settle."""
    text = f"{finding.message}; numbers were not compared: {why.code} {why.message}"
    return Finding(codes.RESULT_UNDECIDED, text, finding.sites, finding.hint)


def _with_doubts(error: AhbmError, doubts: Sequence[Finding]) -> AhbmError:
    """The error, which also says whose numbers these are, and why they were tried."""
    first, *rest = error.findings
    label, origin = "these are test numbers: the call's own data have not moved", ""
    for finding in doubts[:1]:
        label, origin = f"{label}; they were tried since: {finding.message}", _line(finding)
    return error.with_findings([replace(first, sites=(*first.sites, Site(label, origin))), *rest])


def _line(finding: Finding) -> str:
    """`file:line` of the first site that has one."""
    return next((site.origin for site in finding.sites if site.origin), "")


def _warn(compiled: Compiled, finding: Finding) -> None:
    line = _line(finding)
    text = f"{finding.code} {compiled.request.collective} by {compiled.algorithm}: {finding.message}"
    file, _, number = line.rpartition(":")
    known = bool(file) and number.isdecimal()
    warning = ProgramWarning(f"{text} [{line}]" if line else text, (finding,))
    place = (file, int(number)) if known else (compiled.algorithm, 1)
    warnings.warn_explicit(warning, ProgramWarning, *place)
