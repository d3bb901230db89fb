"""The rows of cases in a folder or an object store, and the rows that cases are."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from ahbm._core import Machine
from ahbm.runs.report import Report
from ahbm.table.build import build
from ahbm.table.cases import Case, Refused
from ahbm.table.columns import MEASURED
from ahbm.table.files import NAMES as NAMES
from ahbm.table.files import Files, Row
from ahbm.table.merging import compact
from ahbm.table.query import asked
from ahbm.table.rows import Rows


class Store(Files):
    """The rows of sweeps."""

    def rows(self) -> Rows:
        """One row for each key, in the order of the spaces: that of `space.json` first. What is proof goes before what
        is not. Rows of other builds than the one that ran last are there where it has not run their case. They have all
        columns but `CELL` and `ID`.

        Raises ConfigError (AHBM-C186), UnsupportedError (AHBM-U145).
        """
        return asked(self, lambda query: query.all())

    def cells(self, wanted: set[str]) -> dict[str, str]:
        """By key, `CELL` of the rows of some keys that have it. Raises as `rows`."""
        if not wanted or not self._names():
            return {}
        return asked(self, lambda query: query.cells(wanted))

    def compact(self) -> tuple[int, int]:
        """Writes all rows, each key once, as few parts, and removes those that they were in; what others write or ask
        meanwhile stays. Returns the number of parts before and after. Takes the memory of a part and of 8 bytes for
        each of some rows. Raises ConfigError (AHBM-C141, C186)."""
        return compact(self)


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
