"""Sweeps that are to run whole."""

from __future__ import annotations

from ahbm.runs.report import Report
from ahbm.table.cases import Refused, Sweep
from ahbm.table.running import attempt, failure


def reports_of(sweep: Sweep) -> list[Report]:
    """The reports of a sweep. Raises the error of the first case that failed."""
    cells = list(attempt([sweep]))
    error = failure(cells)
    if error is not None:
        raise error
    return [cell for cell in cells if not isinstance(cell, Refused)]
