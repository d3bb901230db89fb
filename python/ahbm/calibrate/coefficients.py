"""The coefficients of laws: how many steps, bytes and crossings stand between a parameter and the time of a row, by the
emulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from ahbm.calibrate import fit, written
from ahbm.calibrate.laws import Law, Rows
from ahbm.calibrate.tables import Table
from ahbm.calibrate.templates import Template
from ahbm.core.emulator import Emulator
from ahbm.core.lowerings import Lowerings

NEARER, SETTLED = 8, 1e-3
"""Times that coefficients of several algorithms are found anew at the law, and the part by which its loss changes where
that has settled."""
CHANGE = 1e-3
"""Relative change of a parameter by which its derivative is found: times are whole picoseconds."""
NEAR_OPS = 32_000_000
"""Operations in the programs that are kept for that."""
SLOW = 2.0
"""A protocol that takes so many times as long as the quickest of small arrays is not the one of a row, wherever borders
move."""
LEAST_GBS = 2e-3
"""Bandwidth below which the machine has none."""

Coefficients = dict[tuple[str, int, int], list[written.Coefficient]]
"""By collective, ranks and bytes: those of each algorithm."""


def known(template: Template, tables: Sequence[Table]) -> Coefficients:
    """The coefficients of all rows."""
    all_: Coefficients = {}
    most = max(len(template.algorithms(table.collective)) for table in tables)
    for table in tables:
        sizes = [row.bytes for row in table.rows]
        names = template.algorithms(table.collective)
        found = {
            name: written.coefficients(template, table.collective, table.ranks, sizes, name)
            for name in dict.fromkeys(names)
        }
        for size, *of in zip(sizes, *(found[name] for name in names), strict=True):
            all_[table.collective, table.ranks, size] = (of * most)[:most]
    return all_


def nearest(
    template: Template, tables: Sequence[Table], apart: Coefficients, tell: Callable[[str], object]
) -> tuple[Law, Coefficients]:
    """The law of several algorithms and its coefficients there: Gauss and Newton's steps, halved where they are too
    long, once more where another shape or border is nearer by these. `tell` is told what is run, for people."""
    lowerings = Lowerings(NEAR_OPS)

    def at(law: Law, slopes: Coefficients = apart) -> tuple[float, Law, Coefficients]:
        found: Coefficients = {}
        for table in tables:
            tell(f"running {table.collective} on {table.ranks} ranks near the law")
            found |= _near(template, law, table, apart, slopes, lowerings)
        return fit.loss(law, rows(tables, found)), law, found

    def from_(law: Law) -> tuple[float, Law, Coefficients]:
        best = at(law)
        to = fit.refined(law, rows(tables, best[2]))
        for _ in range(NEARER):
            # A step is short: slopes are those from where it begins.
            tried = at(to, best[2])
            settled = abs(tried[0] - best[0]) <= SETTLED * best[0]
            to = fit.between(best[1], to, rows(tables, apart).shared)
            if tried[0] < best[0]:
                best, to = tried, fit.refined(tried[1], rows(tables, tried[2]))
            if settled:
                break
        return at(best[1])

    best = from_(fit.chosen(rows(tables, apart)))
    other = fit.chosen(rows(tables, best[2]))
    if (other.shape, other.chunk_bytes) != (best[1].shape, best[1].chunk_bytes):
        best = min(best, from_(other), key=lambda found: found[0])
    return best[1:]


def _near(
    template: Template, law: Law, table: Table, apart: Coefficients, slopes: Coefficients, lowerings: Lowerings
) -> Coefficients:
    """The coefficients of a table at a law, from runs of small changes of it; those that were found apart where a
    protocol is too slow to matter. Chunks that follow each other hide latencies behind bytes: both together take less
    than their sum. slopes: coefficients near by, whose steps, bytes and crossings hold where they were not found
    apart."""
    names = template.algorithms(table.collective)
    tree = written.tree(template, law, table.ranks, table.collective)

    @cache
    def changed(name: str, key: str | None = None) -> Emulator:
        keys = dict(tree["protocols"][name])
        if key is not None:
            keys[key] *= 1 + CHANGE
        return written.emulator({**tree, "protocols": {name: keys}, "protocol": name}, lowerings)

    changes = ("step_ns", "nic_step_ns", "max_gbs" if law.chunk_bytes is None else "nic_gbs")
    found: Coefficients = {}
    for row in table.rows:
        key = table.collective, table.ranks, row.bytes
        found[key] = list(apart[key])
        if names[0] is None:
            continue
        one = rows([replace(table, rows=(row,))], apart)
        sums, used = (np.array(of.each(one))[:, 0] for of in (replace(law, chunk_bytes=None), law))
        least = min(us for us, term in zip(sums, law.shape.terms, strict=True) if term.free)
        of = zip(written.names(law), law.protocols, law.shape.terms, sums, used == used.min(), strict=True)
        for name, protocol, term, us, here in of:
            wire_us = float(protocol.wire_us(one, 1.0)[0])
            gbs = row.bytes / (1000 * wire_us)
            if (us > SLOW * least and not here) or gbs < LEAST_GBS:
                continue
            at = term.way or 0
            now = written.us(changed(name), *key, names[at])
            steps, volume, _, crossings = slopes[key][at]
            if slopes[key][at] == apart[key][at]:
                then = (written.us(changed(name, change), *key, names[at]) for change in changes)
                inside, between, wire = (abs(each - now) / CHANGE for each in then)
                crossings = between / (law.nic_steps * protocol.step_us)
                steps, volume = inside / protocol.step_us + crossings, wire * (1 + CHANGE) / wire_us
            took = (steps + (law.nic_steps - 1) * crossings) * protocol.step_us + volume * wire_us
            found[key][at] = steps, volume, now - took, crossings
    return found


def rows(tables: Sequence[Table], known: Coefficients) -> Rows:
    columns: list[list[float]] = []
    ways: list[list[written.Coefficient]] = []
    for table in tables:
        columns += [[row.bytes, row.us, table.ranks, row.measured] for row in table.rows]
        ways += [known[table.collective, table.ranks, row.bytes] for row in table.rows]
    return Rows(*np.asarray(columns, np.float64).T, *np.asarray(ways, np.float64).T)
