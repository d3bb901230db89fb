"""Checks of calls that are the first of their shape."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

from ahbm.base import codes
from ahbm.base.verdicts import CHECK_ENV
from ahbm.errors import BudgetError, Finding, ProgramWarning, UnsupportedError, described
from ahbm.ranks.setup import Setup

if TYPE_CHECKING:
    from ahbm.check.case import Case
    from ahbm.core.compiled import Compiled
    from ahbm.core.emulator import Emulator

USUAL = "result"


def first_checks(emulator: Emulator, setup: Setup) -> Callable[[Compiled], None] | None:
    """The function that checks a program before its first run, raises what it finds and warns of what stays undecided;
    None: no check is made.

    Raises ConfigError (AHBM-C170) for unknown checks.
    """
    names = setup.check or os.environ.get(CHECK_ENV) or USUAL
    if names == "none":
        return None
    from ahbm.check.checks import parse

    checks = parse(names)
    warned: set[tuple[str, str, tuple[str, ...]]] = set()

    def verify(compiled: Compiled) -> None:
        from ahbm.check.case import Case

        if compiled.program is None:
            return
        open_ = undecided(Case(emulator, compiled.request, compiled.by), compiled, checks)
        for finding in open_:
            site = compiled.algorithm, finding.code, tuple(site.origin for site in finding.sites)
            if site not in warned:
                warned.add(site)
                text = f"{compiled.request.collective} by {compiled.algorithm}: {described([finding])}"
                warnings.warn(ProgramWarning(text, (finding,)), stacklevel=2)

    return verify


def undecided(case: Case, compiled: Compiled, checks: frozenset[str]) -> list[Finding]:
    """Checks the first call of a shape as `ahbm.run` does; what stays undecided.

    `USUAL` alone is quick: contributions are followed in one order, and results are compared with numbers only where
    that leaves a doubt. Other checks are made as `ahbm.run` makes them. Raises what is wrong.
    """
    from ahbm.check.checks import demand, examine
    from ahbm.check.numbers import compared

    quick = checks == {USUAL}
    limits = {"calls": 1, "orders": 1} if quick else {}
    # Where agents race, the order that was followed may be another than that of the run.
    found = examine(case, compiled, checks | {"race"}, **limits)
    wanted = {code for check in checks for code in codes.CHECKS.get(check, ())} | {codes.CHECK_BUDGET}
    open_ = demand([finding for finding in found if finding.code in wanted], checks)
    doubts = [finding for finding in found if finding.code in (*codes.UNDECIDED, *codes.RACES)]
    open_ = [finding for finding in open_ if finding.code in codes.UNDECIDED]
    if USUAL not in checks or (quick and not doubts):
        return open_
    try:
        error = compared(case)
    except (BudgetError, UnsupportedError) as refused:
        return [_uncompared(finding, refused) for finding in open_ or doubts[:1]]
    if error is not None:
        raise error
    return open_


def _uncompared(finding: Finding, why: BudgetError | UnsupportedError) -> Finding:
    """A doubt that numbers could not settle."""
    text = f"{finding.message}; numbers were not compared: {why.code} {why.message}"
    return Finding(codes.RESULT_UNDECIDED, text, finding.sites, finding.hint)
