"""Times of a table that cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log, log10, sqrt

import numpy as np

from ahbm.calibrate.tables import Row, Table, interpolated

FEWEST = 3
"""Sizes without which nothing is fitted."""
ABSURD = 4.0
"""A row that is so many times as slow, or as quick, as the line between its neighbours is a mistake of the table."""
SLIP = 1.1
"""What a time with its decimal point elsewhere may be farther off than any other row."""
WARM = 1.25
"""A first row that takes so many times as long as the next one has what warms up in it. In ten public tables the first
run of the first size takes 1.05 to 4.3 times as long as that of the next one, the quicker of two runs 1.06 at most."""
AT_END = 4
"""Rows that suggest the time of one beyond them."""


def cleaned(table: Table, notes: list[str]) -> Table:
    """The table without times that cannot be: those far off the line between the neighbours, those far above what bytes
    in proportion to the row before would take and above the next, ends that are far from what no byte or bytes in
    proportion would take beside the next row, and a first row above the next one.

    One that is right with its decimal point elsewhere is taken for that; of the others the neighbours say the time. To
    leave them out would change more: how many rows there are is a reason for a shape. Notes are added: those of the
    table, and the rows.
    """
    notes += table.notes
    wrong: set[int] = set()
    for at in range(1, len(table.rows) - 1):
        before, row, after = table.rows[at - 1], table.rows[at], table.rows[at + 1]
        if all(abs(log(side.us / row.us)) > log(ABSURD) for side in (before, after)):
            us = float(interpolated((before, after), [row.bytes])[0])
            if not 1 / ABSURD < row.us / us < ABSURD:
                wrong.add(at)
        most = ABSURD * max(row.bytes / before.bytes, 1.0) * before.us
        if at - 1 not in wrong and row.us > max(most, after.us):
            wrong.add(at)
    kept = [at for at in range(len(table.rows)) if at not in wrong]
    for end, beside in ((kept[:1], kept[1:2]), (kept[-1:], kept[-2:-1])) if len(kept) > FEWEST else ():
        row, other = table.rows[end[0]], table.rows[beside[0]]
        ratio = row.bytes / other.bytes
        if not min(ratio, 1.0) / ABSURD < row.us / other.us < max(ratio, 1.0) * ABSURD:
            wrong.add(end[0])
    warm = len(kept) > FEWEST and kept[0] == 0 and 0 not in wrong and table.rows[0].us > WARM * table.rows[kept[1]].us
    wrong |= {0} if warm else set()
    rows = list(table.rows)
    known = [row for at, row in enumerate(rows) if at not in wrong]
    off = SLIP * _off(known) if wrong else 1.0
    for at in sorted(wrong):
        row, us = rows[at], _between(known, rows[at].bytes)
        slip = 10.0 ** round(log10(row.us / us))
        around = [us, *(side[0].us for side in _sides(known, row.bytes) if side)]
        if slip != 1 and min(around) / off <= row.us / slip <= max(around) * off:
            rows[at] = replace(row, us=float(f"{row.us / slip:.12g}"))
            message = f"is taken for {rows[at].us:g} us: a slip of the decimal point or of the unit"
        else:
            rows[at] = replace(row, us=us, measured=False)
            message = "is left out"
        why = "is above the next time, as where a first call warms up" if warm and not at else "cannot be"
        notes.append(f"{table.name}:{row.line}: {row.us:g} us at {row.bytes} B {why}, and {message}")
    return replace(table, rows=tuple(rows))


def _off(rows: Sequence[Row]) -> float:
    """How many times as long or as short as the others suggest a row takes at most."""
    others = ([*rows[:at], *rows[at + 1 :]] for at in range(len(rows)))
    ratios = [row.us / _between(each, row.bytes) for row, each in zip(rows, others, strict=True)]
    return max([*ratios, *(1 / ratio for ratio in ratios)])


def _sides(rows: Sequence[Row], nbytes: int) -> tuple[list[Row], list[Row]]:
    """The rows of fewer bytes and those of more, the nearest first."""
    return [row for row in reversed(rows) if row.bytes < nbytes], [row for row in rows if row.bytes > nbytes]


def _between(known: Sequence[Row], nbytes: int) -> float:
    """us of a size that the rows around it suggest: where times bend upwards, they are above the lines through the two
    rows on each side and below the line between the sides. At an end, several rows in line lessen their noise."""
    before, after = _sides(known, nbytes)

    def line(rows: Sequence[Row]) -> float:
        return float(interpolated(rows, [nbytes])[0])

    if not before or not after:
        end = before[:AT_END] or after[:AT_END]
        n, us = (np.log([getattr(row, name) for row in end]) for name in ("bytes", "us"))
        return float(np.exp(np.polyval(np.polyfit(n, us, 1), log(nbytes))))
    chord, tangents = line((before[0], after[0])), [line(two) for two in (before[1::-1], after[:2]) if len(two) == 2]
    return sqrt(chord * max(tangents)) if len(tangents) == 2 and max(tangents) < chord else chord
