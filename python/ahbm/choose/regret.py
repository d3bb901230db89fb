"""What choices lose against the quickest algorithm of every point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

WORST = 10
"""Points that a `Regret` names."""


@dataclass(frozen=True)
class Point:
    """A call of one size on one machine."""

    machine: str
    """The machine in words, as in the column `machine` of an oracle's table."""
    topology: str
    """The network between its SIPs."""
    ranks: int
    nbytes: int
    """Bytes of one rank's array."""
    collective: str
    dtype: str


@dataclass(frozen=True)
class Loss:
    """A choice at a point."""

    point: Point
    chosen: str
    ps: int
    best: str
    best_ps: int

    @property
    def regret(self) -> float:
        """Time / the quickest time - 1; 0 for the quickest."""
        return self.ps / self.best_ps - 1 if self.best_ps else 0.0


@dataclass(frozen=True)
class Regret:
    """Time / the quickest time - 1 over points, as shares: 0.01 is one per cent."""

    mean: float
    p95: float
    """Of 95 in 100 points it is no more."""
    within_1_percent: float
    """Share of the points that lose no more than 0.01."""
    worst: tuple[Loss, ...]
    """The points that lose most, the worst first."""
    points: int
    refusals: int
    """Points at which the chosen algorithm does not run: the slowest that runs stands for it."""

    @staticmethod
    def of(losses: Sequence[Loss], refusals: int = 0) -> Regret:
        """The regret of choices; 0 of none."""
        if not losses:
            return Regret(0.0, 0.0, 1.0, (), 0, 0)
        found = np.array([loss.regret for loss in losses])
        worst = np.argsort(-found, kind="stable")[:WORST]
        return Regret(
            float(found.mean()),
            float(np.quantile(found, 0.95, method="inverted_cdf")),
            float((found <= 0.01).mean()),
            tuple(losses[at] for at in worst),
            len(losses),
            refusals,
        )

    def to_json(self) -> dict[str, Any]:
        """The regret as JSON-serialisable data; times in ns."""
        worst = [
            {
                **vars(loss.point),
                "chosen": loss.chosen,
                "time_ns": loss.ps / 1000,
                "best": loss.best,
                "best_ns": loss.best_ps / 1000,
                "regret": loss.regret,
            }
            for loss in self.worst
        ]
        return {**{name: value for name, value in vars(self).items() if name != "worst"}, "worst": worst}

    def __str__(self) -> str:
        message = (
            f"{self.mean:.2%} mean, {self.p95:.2%} p95, {self.within_1_percent:.0%} within 1 %, {self.points} points"
        )
        return message + (f", {self.refusals} choices do not run" if self.refusals else "")
