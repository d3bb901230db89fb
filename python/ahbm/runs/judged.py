"""The verdict on one case: a kernel's program at one number of ranks and one size."""

from __future__ import annotations

from collections.abc import Iterable

from ahbm.base import codes
from ahbm.base.codes import UNDECIDED
from ahbm.check.case import Case
from ahbm.errors import (
    AhbmError,
    BudgetError,
    DataError,
    DeadlockError,
    Finding,
    KernelError,
    LintError,
    UnsupportedError,
)
from ahbm.runs.measure import verify

VERDICTS = {
    codes.RACE: "race",
    codes.ORDER_DEPENDENT: "race",
    codes.OUTSIDE_CALL: "race",
}
"""The verdicts of codes that are not their class's."""
CLASSES: dict[type[AhbmError], str] = {
    BudgetError: "unsupported",
    DataError: "wrong",
    DeadlockError: "deadlock",
    KernelError: "malformed",
    LintError: "malformed",
    UnsupportedError: "unsupported",
}
"""The verdicts of errors."""


def verdict_of(error: AhbmError) -> str:
    """The verdict that an error of one of `CLASSES` means."""
    kind = next(kind for kind in type(error).__mro__ if kind in CLASSES)
    return VERDICTS.get(error.code, CLASSES[kind])


def judged(
    case: Case, *, checks: str | Iterable[str], seed: int, data: bool, quick: bool = False
) -> tuple[str, tuple[Finding, ...]]:
    """The verdict on a case and what was found. quick: neither types that are too narrow nor lines are looked for.

    Raises ConfigError for unknown checks, and nothing of `CLASSES`.
    """
    try:
        _, _, _, findings = verify(case, data=data, seed=seed, mode="integers", check=checks, quick=quick)
    except tuple(CLASSES) as error:
        return verdict_of(error), error.findings
    return "undecided" if any(finding.code in UNDECIDED for finding in findings) else "correct", findings
