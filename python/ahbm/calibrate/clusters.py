"""From cluster to cluster: how far machines of one kind are apart, and what few rows of one of them say of it.

Times of clusters of one kind differ by a factor whose logarithm is drawn for each of them. Where arrays are small, the
host decides, and it differs most; where they are large, the links do, which are alike. Factors of near sizes are alike,
so rows of a cluster narrow what is known of it at other sizes: a Gaussian process over the size's logarithm (Sacks,
Welch, Mitchell and Wynn, "Design and analysis of computer experiments", 1989).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ahbm.calibrate.tables import Floats

HOST, WIRE = {False: 0.35, True: 0.7}, {False: 0.04, True: 0.3}
"""Standard deviation of the logarithm of a time among clusters of one kind, whether of several nodes: of small arrays
and of large ones. Of eleven public tables of four kinds (8 H100, 8 B200 or B300, 2 nodes of 8 A100 or H100)."""
KNOWN = 2.0
"""Clusters that this is worth beside those that are given."""
ALIKE = np.log(256.0)
"""Logarithm of a ratio of sizes up to which factors of a cluster are alike."""
NOISE = 0.03
"""Of a row: a cluster measured twice."""
EIGHT = 1.2816
"""Standard deviations that eight of ten are within."""


def spread(us: Floats, several: bool) -> Floats:
    """Standard deviation of the logarithms of times, in us, of sizes of one collective: that of hosts as far as the
    floor of all of them, squared, is of a time. several: on several nodes."""
    share = (us.min() / us) ** 2
    return np.asarray(WIRE[several] + (HOST[several] - WIRE[several]) * share, np.float64)


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


@dataclass(frozen=True)
class Own:
    """What rows of a cluster say of it."""

    factor: Floats
    """What it takes of the times of others of its kind, by size."""
    deviation: Floats
    """Standard deviation of the logarithm of that."""
    held: Floats
    """Of each row, what the others say that it takes of its time."""


def own(sizes: Floats, deviation: Floats, at: Floats, factor: Floats) -> Own:
    """What rows say of a cluster at `sizes`, where others of its kind have a standard deviation of `deviation`.

    at: the sizes of the rows; factor: what they take of the times of others.
    """
    x, rows = np.log(sizes), np.log(at)
    of_rows = np.interp(rows, x, deviation)

    def covariance(a: Floats, da: Floats, b: Floats, db: Floats) -> Floats:
        apart = np.abs(a[:, None] - b[None, :]) / (2 * ALIKE)
        return np.asarray(da[:, None] * db[None, :] * np.exp(-(apart**2)), np.float64)

    inverse = np.linalg.inv(covariance(rows, of_rows, rows, of_rows) + NOISE**2 * np.eye(len(rows)))
    cross = covariance(x, deviation, rows, of_rows)
    logs = np.log(factor)
    left = deviation**2 - np.einsum("ij,jk,ik->i", cross, inverse, cross)
    # Of a row that is left out: Dubrule, "Cross validation of kriging in a unique neighborhood", 1983.
    held = -(inverse @ logs) / np.diag(inverse)
    return Own(np.exp(cross @ inverse @ logs), np.sqrt(np.maximum(left, 0.0) + NOISE**2), np.exp(held))


def percents(deviation: float) -> tuple[float, float]:
    """What eight of ten clusters take more than a machine, in percent: least and most."""
    return 100 * float(np.exp(-EIGHT * deviation) - 1), 100 * float(np.exp(EIGHT * deviation) - 1)
