"""One program of the corpus."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

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
    path: str = ""
    """The file of a kernel; empty for no kernel."""
    arguments: Mapping[str, Any] | None = None
    """How a kernel is run that is meant to compute its collective."""

    def found(self) -> bool:
        """Whether the check reports anything that is wrong."""
        return self.check().verdict not in ("correct", "no_expectation")
