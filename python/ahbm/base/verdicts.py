"""Verdicts of a check of a plan, and what commands exit with."""

from __future__ import annotations

from collections.abc import Iterable

from ahbm.errors import DataError, DeadlockError, FormatError, UnsupportedError

CHECK_ENV = "AHBM_CHECK"
"""Environment variable that names the checks of what is run for the first time, and of what is lowered."""

EXIT_CODES = {
    "correct": 0,
    "no_expectation": 15,
    "undecided": UnsupportedError.exit_code,
    "race": 14,
    "wrong": DataError.exit_code,
    "deadlock": DeadlockError.exit_code,
    "unsupported": UnsupportedError.exit_code,
    "malformed": FormatError.exit_code,
}
"""Exit code of each verdict, in order of gravity: several files exit with the gravest one's."""


def exit_code(verdicts: Iterable[str]) -> int:
    """The exit code of the gravest verdict; 0 without any."""
    gravity = list(EXIT_CODES)
    return EXIT_CODES[max(verdicts, key=gravity.index, default="correct")]
