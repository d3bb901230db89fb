"""The fit of any function of positive parameters to measured times: Levenberg-Marquardt in logarithms, with robust
residuals, and derivatives by differences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ahbm.calibrate.search import losses, robust, within
from ahbm.calibrate.tables import Floats

STEP = 1e-3
"""Of a logarithm, by which derivatives are taken."""
DONE = 1e-4
"""The part by which a loss falls in a round that is the last."""


@dataclass(frozen=True)
class Nearest:
    """The parameters that a fit ends with."""

    point: Floats
    """Logarithms."""
    loss: float
    normal: Floats
    """Curvature of the loss (parameters x parameters), what is supposed included."""
    off: Floats
    """Logarithms of predicted by measured times."""


def nearest(
    predict: Callable[[Floats], Floats],
    us: Floats,
    weights: Floats,
    start: Floats,
    bounds: tuple[Floats, Floats],
    supposed: float,
    rounds: int,
) -> Nearest:
    """The point to which a fit comes from `start`.

    predict: times of all rows at a point of logarithms of parameters, in the unit of `us`. weights: of the rows.
    bounds: least and most. supposed: weight of a unit of a logarithm by which a parameter leaves `start`, in squared
    residuals. rounds: at most.
    """
    logs, (least, most) = np.log(us), bounds
    point = within(start, least, most)

    def off_of(where: Floats) -> Floats:
        return np.log(np.maximum(predict(where), 1e-12)) - logs

    def loss_of(off: Floats, where: Floats) -> float:
        return float((weights * losses(off)).sum() + supposed * ((where - start) ** 2).sum())

    off = off_of(point)
    loss, damping = loss_of(off, point), 1e-2
    normal = np.eye(len(point))
    for _ in range(rounds):
        slopes = np.empty((len(us), len(point)))
        for at in range(len(point)):
            # Away from a bound that is reached.
            step = STEP if point[at] + STEP <= most[at] else -STEP
            moved = point.copy()
            moved[at] += step
            slopes[:, at] = (off_of(moved) - off) / step
        weighted = slopes * (weights * robust(off))[:, None]
        normal = weighted.T @ slopes + supposed * np.eye(len(point))
        gradient = weighted.T @ off + supposed * (point - start)
        before = loss
        for _ in range(8):
            damped = normal + damping * np.diag(np.diag(normal) + 1e-9)
            along: Floats = np.asarray(np.linalg.solve(damped, gradient), np.float64)
            moved = within(point - within(along, -1.0, 1.0), least, most)
            found = off_of(moved)
            other = loss_of(found, moved)
            if other < loss:
                point, off, loss, damping = moved, found, other, max(damping * 0.3, 1e-6)
                break
            damping *= 4
        if before - loss <= DONE * before:
            break
    return Nearest(point, loss, normal, off)
