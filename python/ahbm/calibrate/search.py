"""Many small robust fits at once: Levenberg-Marquardt over arrays whose first axis is the fit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from ahbm.calibrate.laws import EXPONENT, GBS, RAMP, STEP, Floats, Rows, Term

SCALE = 0.05
"""Relative error up to which a residual counts by its square; beyond, by its size."""
WEAK = 0.01
"""Weight of what is supposed before anything is measured, in a residual of one unit of a logarithm."""
ROUNDS = 60


def times(terms: Sequence[Term], rows: Rows, points: Floats, shared: int) -> tuple[Floats, Floats]:
    """us of every row (fits x rows) at points of the search space (fits x parameters), and the derivatives by these.

    The coordinates are logarithms; of an exponent, the logit.
    """
    fits, parameters = points.shape
    n, ways = rows.n, len(rows.steps)
    us = np.empty((len(terms) * ways, fits, len(rows)))
    slopes = np.zeros((len(terms) * ways, fits, len(rows), parameters))
    launch, crossing = (np.exp(points[:, at, None]) if at < shared else 0.0 for at in range(2))
    at = shared
    for number, (term, way) in enumerate(product(terms, range(ways))):
        steps, crossings = rows.steps[way], rows.crossings[way]
        step = np.exp(points[:, at, None])
        wire = rows.volume[way] * n / (1000 * np.exp(points[:, at + 1, None]))
        share = np.ones((fits, len(rows)))
        if term.ramp:
            over = points[:, at + 2, None] - np.log(n)
            exponent = 1 / (1 + np.exp(-points[:, at + 3, None])) if term.exponent else np.full((fits, 1), 0.5)
            part = np.exp(exponent * over)
            share = 1 + part
            slopes[number, :, :, at + 2] = wire * exponent * part
            if term.exponent:
                slopes[number, :, :, at + 3] = wire * part * over * exponent * (1 - exponent)
        us[number] = rows.fixed[way] + steps * step + crossings * crossing + wire * share
        if shared > 1:
            slopes[number, :, :, 1] = crossings * crossing
        slopes[number, :, :, at] = steps * step
        slopes[number, :, :, at + 1] = -wire * share
        at += term.free if way == ways - 1 else 0
    least = np.argmin(us, axis=0)
    found = np.take_along_axis(us, least[None], 0)[0]
    slope = np.take_along_axis(slopes, least[None, :, :, None], 0)[0]
    if shared:
        found = found + launch
        slope[:, :, 0] = launch
    return found, slope


def bounds(terms: Sequence[Term], shared: int) -> tuple[Floats, Floats]:
    """Least and most of every coordinate."""
    pairs = [STEP] * shared
    for term in terms:
        pairs += [STEP, GBS, *([RAMP] if term.ramp else []), *([EXPONENT] if term.exponent else [])]
    found = np.log(np.array(pairs))
    at = shared
    for term in terms:
        if term.exponent:
            least, most = EXPONENT
            found[at + 3] = np.log(least / (1 - least)), np.log(most / (1 - most))
        at += term.free
    return found[:, 0], found[:, 1]


def searched(
    terms: Sequence[Term], rows: Rows, weights: Floats, points: Floats, supposed: Floats, shared: int
) -> tuple[Floats, Floats]:
    """The points (fits x parameters) to which the fits come from `points`, and their losses.

    weights: fits x rows, 1 for a row that a fit has and 0 for one that it has not. supposed: where a fit stays that no
    row tells anything.
    """
    logs, prior = np.log(rows.us), SCALE * WEAK**2
    least, most = bounds(terms, shared)

    def loss_of(where: Floats) -> tuple[Floats, Floats, Floats]:
        us, slopes = times(terms, rows, where, shared)
        off = np.log(us) - logs
        rho = 2 * SCALE**2 * (np.sqrt(1 + (off / SCALE) ** 2) - 1)
        held = prior * ((where - supposed) ** 2).sum(1)
        return (weights * rho).sum(1) + held, off, slopes / us[:, :, None]

    points = np.clip(points, least, most)
    damping = np.full(len(points), 1e-2)
    loss, off, slopes = loss_of(points)
    eye = np.eye(points.shape[1])
    for _ in range(ROUNDS):
        robust = weights / np.sqrt(1 + (off / SCALE) ** 2)
        weighted = slopes * robust[:, :, None]
        normal = np.einsum("bri,brj->bij", weighted, slopes) + prior * eye
        gradient = np.einsum("bri,br->bi", weighted, off) + prior * (points - supposed)
        scaled = normal + damping[:, None, None] * (normal * eye + 1e-9 * eye)
        moved = np.clip(points - np.clip(np.linalg.solve(scaled, gradient[:, :, None])[:, :, 0], -2, 2), least, most)
        other, other_off, other_slopes = loss_of(moved)
        better = other < loss
        points = np.where(better[:, None], moved, points)
        gained = np.where(better, loss - other, 0)
        loss = np.where(better, other, loss)
        off = np.where(better[:, None], other_off, off)
        slopes = np.where(better[:, None, None], other_slopes, slopes)
        damping = np.clip(np.where(better, damping * 0.3, damping * 4), 1e-9, 1e9)
        if not np.any(gained > 1e-9 * loss) and np.all(damping > 1e2):
            break
    return points, loss
