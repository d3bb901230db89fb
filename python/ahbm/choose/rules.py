"""What is said of the rules of tuning files."""

from __future__ import annotations

from collections.abc import Iterable

from ahbm.base.rules import Rule, Rules
from ahbm.errors import BudgetError, Finding, Site

MAX_RULES = 4096
"""Rules of one file; a longer one is refused."""


def bounded(rules: Iterable[Rule], origin: str) -> Rules:
    """The rules of a file. Raises BudgetError (AHBM-B214) for more than `MAX_RULES`."""
    found: list[Rule] = []
    for rule in rules:
        found.append(rule)
        if len(found) > MAX_RULES:
            raise BudgetError(
                "AHBM-B214",
                f"{origin} has more than {MAX_RULES} rules",
                hint="merge neighbouring ranges with one choice, or tune fewer sizes",
            )
    return Rules(tuple(found))


def unreached(rules: Rules, origin: str) -> list[Finding]:
    """A warning (AHBM-F198) for each rule that no call reaches."""
    empty = [
        Finding(
            "AHBM-F198",
            f"no call reaches this rule: its range, {rule.empty}, is empty",
            (Site(rule.algorithm, f"{origin}:{rule.line}"),),
            "the smaller bound first",
        )
        for rule in rules
        if rule.empty
    ]
    return empty + [
        Finding(
            "AHBM-F198",
            f"no call reaches this rule: line {before.line} takes all of its calls",
            (Site(rule.algorithm, f"{origin}:{rule.line}"), Site(before.algorithm, f"{origin}:{before.line}")),
            "remove one of them, or put the narrower one first",
        )
        for rule, before in rules.unreached()
    ]
