"""How far a machine is off at rows that were held back from its fit, and what other clusters of its kind take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import Any

import numpy as np

from ahbm.calibrate import clusters
from ahbm.calibrate.tables import Floats, Table, interpolated


@dataclass(frozen=True)
class Error:
    """The relative error of one row that was held back."""

    bytes: int
    percent: float
    interpolated: float
    """That of the line between its neighbours in logarithms; of no machine."""


@dataclass(frozen=True)
class Judged:
    """A table and what was off at its held-back rows."""

    table: Table
    errors: tuple[Error, ...]
    own: tuple[Error, ...] = ()
    """Those of the machine that was fitted to all rows, at its rows: a band covers them, too."""
    us: tuple[float, ...] = ()
    """What that machine takes at the table's rows."""
    deviations: tuple[float, ...] | None = None
    """Standard deviations of the logarithms of these times, where more is known than of clusters of a kind."""

    @property
    def mean(self) -> float:
        """Mean error in percent."""
        return float(np.mean([each.percent for each in self.errors]))

    @property
    def median(self) -> float:
        """Median error in percent."""
        return float(np.median([each.percent for each in self.errors]))

    @property
    def interpolated(self) -> float:
        """Mean error of the line between neighbours, in percent."""
        return float(np.mean([each.interpolated for each in self.errors]))

    @property
    def decades(self) -> list[dict[str, Any]]:
        """Mean and worst error for each power of ten of the size."""
        found = []
        for decade in sorted({_decade(row.bytes) for row in self.table.measured}):
            mine, own = (
                [each.percent for each in errors if _decade(each.bytes) == decade] for errors in (self.errors, self.own)
            )
            sizes = [row.bytes for row in self.table.measured if _decade(row.bytes) == decade]
            # A decade without a held-back row has the error of the table.
            known = mine or [each.percent for each in self.errors]
            found.append(
                {
                    "from_bytes": min(sizes),
                    "to_bytes": max(sizes),
                    "rows": len(mine),
                    "mean_percent": round(max(float(np.mean(each)) for each in (known, own) if each), 3),
                    "worst_percent": round(max([*known, *own]), 3),
                }
            )
        return found


def errors(tested: Table, seen: Table, predicted: Floats) -> list[Error]:
    """The errors of predictions, in us, for the rows of a table of which others were seen."""
    lines = interpolated(seen.rows, [row.bytes for row in tested.rows])
    return [
        Error(row.bytes, 100 * abs(us / row.us - 1), 100 * abs(line / row.us - 1))
        for row, us, line in zip(tested.rows, predicted.tolist(), lines.tolist(), strict=True)
        if row.measured
    ]


def bands(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """The section `calibration.bands`: for each power of ten of the size, the errors of tables of one collective and
    number of ranks, and what eight of ten other clusters take beside the machine. Several such tables are of as many
    clusters."""
    found: list[dict[str, Any]] = []
    for kind in dict.fromkeys((each.table.collective, each.table.ranks) for each in judged):
        mine = [each for each in judged if (each.table.collective, each.table.ranks) == kind]
        spread = dict(others(mine))
        parts = [band for each in mine for band in each.decades]
        for decade in sorted({_decade(part["from_bytes"]) for part in parts}):
            of = [part for part in parts if _decade(part["from_bytes"]) == decade]
            away = [deviation for size, deviation in spread.items() if _decade(size) == decade]
            low, high = clusters.percents(float(np.sqrt(np.mean(np.square(away)))))
            found.append(
                {
                    "collective": kind[0],
                    "ranks": kind[1],
                    "from_bytes": min(part["from_bytes"] for part in of),
                    "to_bytes": max(part["to_bytes"] for part in of),
                    "mean_percent": round(float(np.mean([part["mean_percent"] for part in of])), 3),
                    "worst_percent": max(part["worst_percent"] for part in of),
                    "low_percent": round(low, 1),
                    "high_percent": round(high, 1),
                }
            )
    return found


def clusters_of(judged: Sequence[Judged], like: str) -> list[str]:
    """For people: us of the machine, and what eight of ten other clusters take, at a size of each power of ten."""
    lines = [f"# {like}: us, and what eight of ten take"]
    for kind in dict.fromkeys((each.table.collective, each.table.ranks) for each in judged):
        mine = [each for each in judged if (each.table.collective, each.table.ranks) == kind]
        us = {row.bytes: took for each in mine for row, took in zip(each.table.rows, each.us, strict=True)}
        first = {_decade(size): size for size in sorted(us, reverse=True)}
        for size, deviation in others(mine):
            if first[_decade(size)] == size:
                low, high = (us[size] * (1 + percent / 100) for percent in clusters.percents(deviation))
                lines.append(f"  {kind[0]} of {kind[1]} ranks, {size} B: {us[size]:.4g} us ({low:.4g}-{high:.4g})")
    return lines


def others(judged: Sequence[Judged]) -> Iterator[tuple[int, float]]:
    """Sizes of tables of one collective and number of ranks, and the standard deviation of the logarithm of what other
    clusters take of the machine's time."""
    known = judged[0].deviations
    if known is not None:
        yield from zip([row.bytes for row in judged[0].table.rows], known, strict=True)
        return
    rows = sorted({(row.bytes, us) for each in judged for row, us in zip(each.table.rows, each.us, strict=True)})
    sizes, us = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    off = []
    for each in judged:
        own = [
            (row.bytes, np.log(row.us / us)) for row, us in zip(each.table.rows, each.us, strict=True) if row.measured
        ]
        off.append(
            (np.searchsorted(sizes, [size for size, _ in own]).astype(np.float64), np.array([at for _, at in own]))
        )
    several = any(each.table.nodes > 1 for each in judged)
    yield from zip(sizes.astype(int).tolist(), clusters.others(sizes, us, several, off).tolist(), strict=True)


def _decade(nbytes: int) -> int:
    return floor(log10(nbytes) + 1e-9)
