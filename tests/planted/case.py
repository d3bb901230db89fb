"""One program of the corpus."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ahbm.runs.verdict import Checked


@dataclass(frozen=True)
class Case:
    """A program that has a bug of a class, or none."""

    name: str
    source: str
    """`kernel`, `xml` or `plan`."""
    bug: str | None
    """Class of the bug; None for a clean program."""
    check: Callable[[], Checked]
    """Checks the program."""

    def found(self) -> bool:
        """Whether the check reports anything that is wrong."""
        return self.check().verdict not in ("correct", "no_expectation")
