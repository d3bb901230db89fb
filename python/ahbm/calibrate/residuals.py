"""What few parameters leave of the times of a table: a smooth factor by size.

Libraries change channels, chunks and protocols with the size more often than a law has parameters. What that leaves of
neighbouring sizes is alike: a Gaussian process over the size's logarithm (Rasmussen and Williams, "Gaussian Processes
for Machine Learning", 2006, chapter 4: Matern, 3/2) of the logarithms of measured times by those of a law. It dies out
beyond the table, so that the parameters of the law mean there what they say.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ahbm.calibrate.laws import Law, Rows
from ahbm.calibrate.tables import Floats

ALIKE = float(np.log(4.0))
"""Logarithm of a ratio of sizes up to which what is left is alike."""
NOISE = 0.35
"""Standard deviation of what is of one row alone, by that of what is alike."""
MOST = 0.15
"""What is left of a row, as the magnitude of a logarithm, that counts no more: a row in error does not bend all."""
BEYOND = (4, 16, 64)
"""Times that sizes are beyond a table at which the factor is told; from the last on it is 1."""
NONE = 5e-4
"""A factor that differs from 1 by no more is none."""
LEAST, GREATEST = 0.1, 10.0
"""Bounds of a factor of steps and bytes, where a launch is nearly all of a time."""
LARGEST = 1 << 53
"""Bytes that a machine can state."""


@dataclass(frozen=True)
class Residual:
    """What a law leaves of the rows that it was fitted to."""

    logs: Floats
    """Logarithms of their sizes."""
    weights: Floats
    """What each of them adds, to sizes like its own."""

    def at(self, n: Floats) -> Floats:
        """Logarithm of times of sizes of n bytes, by those of the law."""
        return np.asarray(_alike(np.log(n)[:, None] - self.logs) @ self.weights, np.float64)

    def factors(self, law: Law, rows: Rows) -> list[dict[str, float]]:
        """The key `factors` of the protocols of a law: what steps and bytes take, so that with the launch the times of
        rows are those of the residual."""
        of = np.argsort(rows.n, kind="stable")
        n, us = rows.n[of], law.us(rows)[of]
        # Beyond the table, the part of the launch is that of its ends.
        before = [(n[0] // by, us[0]) for by in reversed(BEYOND) if n[0] // by >= 1]
        after = [(n[-1] * by, us[-1]) for by in BEYOND if n[-1] * by <= LARGEST]
        sizes, times = np.array([*before, *zip(n, us, strict=True), *after]).T
        own = np.maximum(times - law.launch_us, 1e-9)
        found = np.clip((times * np.exp(self.at(sizes)) - law.launch_us) / own, LEAST, GREATEST)
        if len(before) == len(BEYOND):
            found[0] = 1.0
        if len(after) == len(BEYOND):
            found[-1] = 1.0
        known = {int(size): float(f"{factor:.4g}") for size, factor in zip(sizes, found.tolist(), strict=True)}
        if all(abs(factor - 1) <= NONE for factor in known.values()):
            return []
        return [{"bytes": size, "factor": factor} for size, factor in known.items()]


def of(law: Law, rows: Rows) -> Residual | None:
    """What a law leaves of the rows that it was fitted to; None where they are of several numbers of ranks or
    algorithms, whose sizes are not alike."""
    if rows.shared or law.shape.bordered:
        return None
    rows = rows.at(rows.counts > 0)
    logs = np.log(rows.n)
    left = np.clip(np.log(rows.us / law.us(rows)), -MOST, MOST)
    return Residual(logs, np.linalg.solve(_alike(logs[:, None] - logs) + NOISE**2 * np.eye(len(logs)), left))


def _alike(apart: Floats) -> Floats:
    by = np.sqrt(3.0) * np.abs(apart) / ALIKE
    return np.asarray((1 + by) * np.exp(-by), np.float64)
