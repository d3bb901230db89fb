"""From cluster to cluster: how far machines of one kind are apart, and what few rows of one of them say of it.

A time is what the host and the network take before bytes flow, what these take, and a rest that is the chip's and the
library's. Of clusters of one kind, the first two are each multiplied by a factor whose logarithm is drawn for each
cluster: hosts and networks differ most, links little. A library takes protocols of longer steps where calls are longer,
so between nodes latencies grow with the time, up to what the longest protocol of NCCL takes of the shortest. What rows
of a cluster say of both factors, and of what is of near sizes alone, is Bayes' rule at the most probable factors, with
a Gaussian process for the rest (Sacks, Welch, Mitchell and Wynn, "Design and analysis of computer experiments", 1989).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ahbm.calibrate import constants
from ahbm.calibrate.tables import Floats, Row, Table, interpolated

HOST, WIRE = {False: 0.35, True: 0.7}, {False: 0.04, True: 0.3}
"""Standard deviation of the logarithm of a time among clusters of one kind, whether of several nodes: of small arrays
and of large ones. Of eleven public tables of four kinds (8 H100, 8 B200 or B300, 2 nodes of 8 A100 or H100)."""
LOCAL = 0.4
"""The part of a host's that is of near sizes alone: where a library changes its protocol."""
KNOWN = 2.0
"""Clusters that this is worth beside those that are given."""
GROWS = 0.7
"""The power of a time between nodes that its latencies grow with."""
NEAR = float(np.log(4.0))
"""Logarithm of a ratio of sizes up to which what is of near sizes alone is alike."""
NOISE = 0.03
"""Of a row: a cluster measured twice."""
ROUNDS, FAR, SETTLED = 40, 0.5, 1e-9
"""Steps to the most probable factors at most, how far each goes, and how far the last one, in logarithms."""
EIGHT = 1.2816
"""Standard deviations that eight of ten are within."""


class Parts(NamedTuple):
    """Of times of sizes, what clusters of a kind do not share (us)."""

    host: Floats
    """Latencies of hosts and networks."""
    wire: Floats
    """What bytes take."""

    @staticmethod
    def of(sizes: Floats, us: Floats, several: bool) -> Parts:
        """Those of times of one collective, in us, by the bytes of an array. several: on several nodes."""
        nccl = constants.steps()
        least, last = float(us.min()), int(np.argmax(sizes))
        wire = np.minimum((us[last] - least) / sizes[last] * sizes, us - least)
        grown = least * np.minimum((us / least) ** GROWS, nccl.longest / nccl.ring) if several else least
        return Parts(np.minimum(grown, us - wire), wire)


def spread(sizes: Floats, us: Floats, several: bool) -> Floats:
    """Standard deviation of the logarithms of times, in us, of sizes of one collective."""
    parts = Parts.of(sizes, us, several)
    host, wire = HOST[several] * parts.host / us, WIRE[several] * parts.wire / us
    return np.asarray(np.sqrt((1 + LOCAL**2) * host**2 + wire**2), np.float64)


def others(sizes: Floats, us: Floats, several: bool, off: Sequence[tuple[Floats, Floats]] = ()) -> Floats:
    """Standard deviation of the logarithm of what another cluster takes of the times of a machine, in us, of sizes.

    off: of each cluster that the machine was fitted to, where there are several, the places of its rows among `us`, and
    the logarithms of its times by the machine's.
    """
    known = spread(sizes, us, several)
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


def own(sizes: Floats, us: Floats, several: bool, at: Sequence[int], factor: Floats) -> Own:
    """What rows say of a cluster at `sizes`, where one of its kind takes `us`, as far from the middle of all as the
    other one.

    at: the places of the rows among the sizes; factor: what they take of the times of the known one.
    """
    rows, logs, parts = list(at), np.log(factor), np.array(Parts.of(sizes, us, several))
    variances = 2 * np.array([HOST[several], WIRE[several]]) ** 2
    apart = np.log(sizes)[:, None] - np.log(sizes)
    near = np.exp(-((apart / (2 * NEAR)) ** 2))
    noise = NOISE**2 * np.eye(len(rows))
    point = np.zeros(2)
    for _ in range(ROUNDS):
        times = us + (np.exp(point) - 1) @ parts
        slopes = np.exp(point)[:, None] * parts / times
        local = LOCAL * np.sqrt(variances[0]) * slopes[0]
        alone = local[:, None] * local * near
        all_ = slopes.T @ (variances[:, None] * slopes) + alone
        cross = all_[:, rows]
        inverse = np.linalg.inv(cross[rows] + noise)
        # The factors' effect is taken as linear around the point.
        around = np.log(times / us) - point @ slopes
        weights = inverse @ (logs - around[rows])
        step = np.clip(variances * (slopes[:, rows] @ weights) - point, -FAR, FAR)
        point = point + step
        if np.abs(step).max() < SETTLED:
            break
    left = np.diag(all_) - np.einsum("ij,jk,ik->i", cross, inverse, cross)
    # Of a row that is left out: Dubrule, "Cross validation of kriging in a unique neighborhood", 1983.
    held = -weights / np.diag(inverse)
    return Own(np.exp(around + cross @ weights), np.sqrt(np.maximum(left, 0.0) + NOISE**2), np.exp(held))


def percents(deviation: float) -> tuple[float, float]:
    """What eight of ten clusters take more than a machine, in percent: least and most."""
    return 100 * float(np.exp(-EIGHT * deviation) - 1), 100 * float(np.exp(EIGHT * deviation) - 1)
