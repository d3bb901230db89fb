"""The rows that cases give."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from ahbm._core import Machine
from ahbm.runs.report import Report
from ahbm.table.build import build
from ahbm.table.cases import Case, Refused
from ahbm.table.columns import MEASURED
from ahbm.table.files import NAMES, Row


def row_of(case: Case, cell: Report | Refused, machine: Callable[[], Machine]) -> Row:
    """The row of what a case gave on a machine, which is there where it ran."""
    if isinstance(cell, Refused):
        return refusal(case, cell.error.code, cell.error.message, cell.algorithm)
    measured = (column.value(cell) for column in MEASURED)
    return (*measured, case.seed, None, *_links(machine()), cell.error.note, build(), None, None)


def refusal(case: Case, code: str, message: str, algorithm: str | None = None) -> Row:
    """The row of a case that did not run, by an algorithm."""
    sweep, found = case.sweep, dict.fromkeys(NAMES)
    found |= {"algorithm": algorithm or case.algorithm or "-", "machine": sweep.machine, "version": build()}
    found |= {"seed": case.seed, "job": sweep.job, "code": code, "message": message}
    if sweep.job is None:
        found |= {"collective": sweep.collective, "dtype": sweep.dtype, "bytes": case.nbytes}
    return tuple(found.values())


@lru_cache(8)
def _links(machine: Machine) -> tuple[int, float | None]:
    """Links between SIPs, and the GB/s of one of them."""
    gbs = dict(machine.parameters).get("system.sips.link.bandwidth_gbs", "").removesuffix("GB/s")
    return len(machine.links_between_sips()), float(gbs) if gbs else None
