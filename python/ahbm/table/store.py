"""The rows of cases in a folder or an object store."""

from __future__ import annotations

from ahbm.table.files import NAMES as NAMES
from ahbm.table.files import Files
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
