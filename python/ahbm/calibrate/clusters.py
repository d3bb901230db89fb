"""From cluster to cluster: how far machines of one kind are apart, and what few rows of one of them say of it.

Times of clusters of one kind differ by a factor whose logarithm is drawn for each of them. Where arrays are small, the
host decides, and it differs most; where they are large, the links do, which are alike. Factors of near sizes are alike,
so rows of a cluster narrow what is known of it at other sizes: a Gaussian process over the size's logarithm (Sacks,
Welch, Mitchell and Wynn, "Design and analysis of computer experiments", 1989).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ahbm.calibrate.tables import Floats, Row, Table, interpolated

HOST, WIRE = {False: 0.35, True: 0.7}, {False: 0.04, True: 0.3}
"""Standard deviation of the logarithm of a time among clusters of one kind, whether of several nodes: of small arrays
and of large ones. Of eleven public tables of four kinds (8 H100, 8 B200 or B300, 2 nodes of 8 A100 or H100)."""
LOCAL = 0.4
"""The part of a host's that is of near sizes alone: where a library changes its protocol."""
KNOWN = 2.0
"""Clusters that this is worth beside those that are given."""
ALIKE, NEAR = float(np.log(256.0)), float(np.log(4.0))
"""Logarithm of a ratio of sizes up to which factors of a cluster are alike, and the local part of them."""
NOISE = 0.03
"""Of a row: a cluster measured twice."""
EIGHT = 1.2816
"""Standard deviations that eight of ten are within."""


def parts(us: Floats, several: bool) -> Floats:
    """Standard deviations (3 x sizes) of the logarithms of times, in us, of one collective: what the host has, alike at
    all sizes and at near ones, which adds to a time and so is less of a longer one; and what the wire has. several: on
    several nodes."""
    host = HOST[several] * us.min() / us
    return np.array([host, LOCAL * host, np.full(len(us), WIRE[several])])


def spread(us: Floats, several: bool) -> Floats:
    """Standard deviation of the logarithms of times, in us, of sizes of one collective."""
    return np.asarray(np.sqrt((parts(us, several) ** 2).sum(axis=0)), np.float64)


def others(us: Floats, several: bool, off: Sequence[tuple[Floats, Floats]] = ()) -> Floats:
    """Standard deviation of the logarithm of what another cluster takes of the times of a machine, in us.

    off: of each cluster that the machine was fitted to, where there are several, the places of its rows among `us`, and
    the logarithms of its times by the machine's.
    """
    known = spread(us, several)
    if len(off) < 2:
        # The machine is one cluster, as far from the middle of all as the other one.
        return np.asarray(np.sqrt(2.0) * known, np.float64)
    squares, count = np.zeros(len(us)), np.zeros(len(us))
    for places, apart in off:
        squares[places.astype(int)] += apart**2
        count[places.astype(int)] += 1
    free = np.maximum(count - 1, 0.0)
    own = (KNOWN * known**2 + squares * free / np.maximum(count, 1)) / (KNOWN + free)
    return np.asarray(np.sqrt(own * (1 + 1 / np.maximum(count, 1))), np.float64)


def alike(tables: Sequence[Table]) -> bool:
    """Whether tables are of several clusters of one kind: of one collective on as many ranks and nodes."""
    return len(tables) > 1 and len({(each.collective, each.ranks, each.nodes) for each in tables}) == 1


def middle(tables: Sequence[Table]) -> Table:
    """The table of the middle of several clusters: at every size of any of them, the geometric mean of all. What a
    cluster takes at a size that it was not measured at is told by what it takes of the times of the one with the most
    rows, at the sizes around."""
    first = max(tables, key=lambda table: len(table.rows))
    sizes = sorted({row.bytes for table in tables for row in table.rows})
    logs, at = np.log(interpolated(first.rows, sizes)), np.log(sizes)
    apart = []
    for table in tables:
        own = np.array([row.bytes for row in table.rows])
        off = np.log([row.us for row in table.rows]) - np.interp(np.log(own), at, logs)
        apart.append(np.interp(at, np.log(own), off))
    us = np.exp(logs + np.mean(apart, axis=0))
    rows = tuple(Row(size, took, "the middle") for size, took in zip(sizes, us.tolist(), strict=True))
    return replace(first, rows=rows)


@dataclass(frozen=True)
class Own:
    """What rows of a cluster say of it."""

    factor: Floats
    """What it takes of the times of others of its kind, by size."""
    deviation: Floats
    """Standard deviation of the logarithm of that."""
    held: Floats
    """Of each row, what the others say that it takes of its time."""


def own(sizes: Floats, deviations: Floats, at: Sequence[int], factor: Floats) -> Own:
    """What rows say of a cluster at `sizes`, where others of its kind have the standard `deviations`, as `parts`.

    at: the places of the rows among the sizes; factor: what they take of the times of others.
    """
    x, logs = np.log(sizes), np.log(factor)
    apart = x[:, None] - x[None, :]
    all_ = sum(
        each[:, None] * each[None, :] * np.exp(-((apart / (2 * length)) ** 2))
        for each, length in zip(deviations, (ALIKE, NEAR, ALIKE), strict=True)
    )
    cross = all_[:, list(at)]
    inverse = np.linalg.inv(cross[list(at)] + NOISE**2 * np.eye(len(logs)))
    left = np.diag(all_) - np.einsum("ij,jk,ik->i", cross, inverse, cross)
    # Of a row that is left out: Dubrule, "Cross validation of kriging in a unique neighborhood", 1983.
    held = -(inverse @ logs) / np.diag(inverse)
    return Own(np.exp(cross @ inverse @ logs), np.sqrt(np.maximum(left, 0.0) + NOISE**2), np.exp(held))


def percents(deviation: float) -> tuple[float, float]:
    """What eight of ten clusters take more than a machine, in percent: least and most."""
    return 100 * float(np.exp(-EIGHT * deviation) - 1), 100 * float(np.exp(EIGHT * deviation) - 1)
