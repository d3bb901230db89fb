"""Checks of calls that are the first of their shape."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from ahbm.base.verdicts import CHECK_ENV
from ahbm.ranks.setup import Setup

if TYPE_CHECKING:
    from ahbm.core.compiled import Compiled
    from ahbm.core.emulator import Emulator


def first_checks(emulator: Emulator, setup: Setup) -> Callable[[Compiled], None] | None:
    """The function that checks a program before its first run, and raises what it finds; None: no check is made.

    Raises ConfigError (AHBM-C170) for unknown checks.
    """
    names = setup.check or os.environ.get(CHECK_ENV) or "result"
    if names == "none":
        return None
    from ahbm.check.checks import demand, examine, parse

    checks = parse(names)

    def verify(compiled: Compiled) -> None:
        from ahbm.check.case import Case

        case = Case(emulator, compiled.request, compiled.by)
        demand(examine(case, compiled, checks, calls=1, orders=1))

    return verify
