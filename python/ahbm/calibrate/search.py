"""Many small robust fits at once: Levenberg-Marquardt over arrays whose first axis is the fit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from ahbm.calibrate import constants
from ahbm.calibrate.laws import BOUNDS, Rows, Term, columns
from ahbm.calibrate.tables import Floats

SCALE = 0.05
"""Relative error up to which a residual counts by its square; beyond, by its size."""
WEAK = 0.01
"""Weight of what is supposed before anything is measured, in a residual of one unit of a logarithm."""
ROUNDS = 60
SURE = 0.3
"""Standard deviation among machines of the logarithms of a tree's step inside a node, and of how many of them one
between nodes takes."""
LEAST_US = 1e-9


def times(terms: Sequence[Term], rows: Rows, points: Floats) -> tuple[Floats, Floats]:
    """us of every row (fits x rows) at points of the search space (fits x parameters), and the derivatives by these.

    The coordinates are logarithms; of an exponent, the logit.
    """
    fits, parameters = points.shape
    n, shared = rows.n, rows.shared
    ways = _ways(tuple(terms), tuple(shared), len(rows.steps))
    us = np.empty((len(ways), fits, len(n)))
    slopes = np.zeros((len(ways), fits, len(n), parameters))
    values = {field: np.exp(points[:, at, None]) for at, field in enumerate(shared)}
    for number, (term, at_step, at_gbs, way) in enumerate(ways):
        step = np.exp(points[:, at_step, None])
        wire = rows.volume[way] * n / (1000 * np.exp(points[:, at_gbs, None]))
        share: Floats | float = 1.0
        if term.ramp:
            over = points[:, at_gbs + 1, None] - np.log(n)
            exponent = 1 / (1 + np.exp(-points[:, at_gbs + 2, None])) if term.exponent else np.full((fits, 1), 0.5)
            part = np.exp(exponent * over)
            share = 1 + part
            slopes[number, :, :, at_gbs + 1] = wire * exponent * part
            if term.exponent:
                slopes[number, :, :, at_gbs + 2] = wire * part * over * exponent * (1 - exponent)
        steps = rows.steps[way] * step
        if "nic_steps" in values:
            between = rows.crossings[way] * step
            slopes[number, :, :, shared.index("nic_steps")] = between * values["nic_steps"]
            steps = steps + between * (values["nic_steps"] - 1)
        us[number] = rows.fixed[way] + steps + wire * share
        slopes[number, :, :, at_step] = steps
        slopes[number, :, :, at_gbs] = -wire * share
    if len(ways) == 1:
        found, slope = us[0], slopes[0]
    else:
        fit, row = np.ogrid[:fits, : len(n)]
        least = us.argmin(axis=0)
        found, slope = us[least, fit, row], slopes[least, fit, row]
    if "launch_us" in values:
        found = found + values["launch_us"]
        slope[:, :, shared.index("launch_us")] = values["launch_us"]
    return found, slope


@cache
def _ways(terms: tuple[Term, ...], shared: tuple[str, ...], algorithms: int) -> list[tuple[Term, int, int, int]]:
    """Each protocol with the places of its step and bandwidth in a point, and each algorithm that it may go with."""
    return [
        (term, *places, way)
        for term, places in zip(terms, columns(terms, shared), strict=True)
        for way in range(algorithms)[term.ways]
    ]


def losses(off: Floats) -> Floats:
    """Of residuals of logarithms, squares up to `SCALE` and lengths beyond."""
    return np.asarray(2 * SCALE**2 * (np.sqrt(1 + (off / SCALE) ** 2) - 1), np.float64)


def robust(off: Floats) -> Floats:
    """What a residual's square counts beside its length, as `losses` has it."""
    return np.asarray(1 / np.sqrt(1 + (off / SCALE) ** 2), np.float64)


def bounds(terms: Sequence[Term], shared: Sequence[str]) -> tuple[Floats, Floats]:
    """Least and most of every coordinate."""
    pairs = [BOUNDS[field] for field in shared]
    for term in terms:
        pairs += [BOUNDS[key] for key in term.keys]
    found = np.log(np.array(pairs))
    for term, (_, at_gbs) in zip(terms, columns(terms, shared), strict=True):
        if term.exponent:
            least, most = BOUNDS["exponent"]
            found[at_gbs + 2] = np.log(least / (1 - least)), np.log(most / (1 - most))
    return found[:, 0], found[:, 1]


def library(terms: Sequence[Term], shared: Sequence[str]) -> tuple[Floats, Floats]:
    """What the library's own constants say of every coordinate, nan for nothing, and the weight of what is supposed of
    it, as `searched` has it."""
    places = columns(terms, shared)
    known = np.full(len(shared) + sum(term.free for term in terms), np.nan)
    # Where algorithms are told apart, the rings of many ranks have the steps of the first.
    if any(term.way is not None for term in terms):
        nccl = constants.steps()
        known[[shared.index("nic_steps"), places[0][0]]] = np.log([nccl.tree / nccl.inside, nccl.inside])
    return known, np.where(np.isnan(known), SCALE * WEAK**2, (SCALE / SURE) ** 2)


def within(values: Floats, least: Floats | float, most: Floats | float) -> Floats:
    """The values, none less than `least` or more than `most`: `np.clip` in a third of its time, for few values."""
    return np.minimum(np.maximum(values, least), most)


def searched(
    terms: Sequence[Term],
    rows: Rows,
    weights: Floats,
    points: Floats,
    supposed: Floats,
    kept: Sequence[int] = (),
    prior: Floats | float = SCALE * WEAK**2,
    rounds: int = ROUNDS,
) -> tuple[Floats, Floats]:
    """The points (fits x parameters) to which the fits come from `points`, and their losses.

    weights: fits x rows, 1 for a row that a fit has and 0 for one that it has not. supposed: where a fit stays that no
    row tells anything. kept: the parameters that stay there in any case. prior: the weight of what is supposed of each
    parameter, in squared residuals of one unit of a logarithm. rounds: steps at most.
    """
    logs, kept = np.log(rows.us), list(kept)
    least, most = bounds(terms, rows.shared)

    def loss_of(where: Floats) -> tuple[Floats, Floats, Floats]:
        us, slopes = times(terms, rows, where)
        slopes[:, :, kept] = 0.0
        us = np.maximum(us, LEAST_US)  # far from the law, what steps and bytes hide may be more than they take
        off = np.log(us) - logs
        held = (prior * (where - supposed) ** 2).sum(1)
        return (weights * losses(off)).sum(1) + held, off, slopes / us[:, :, None]

    points = within(points, least, most)
    damping = np.full(len(points), 1e-2)
    loss, off, slopes = loss_of(points)
    eye = np.eye(points.shape[1])
    for _ in range(rounds):
        weighted = slopes * (weights * robust(off))[:, :, None]
        normal = np.einsum("bri,brj->bij", weighted, slopes) + prior * eye
        gradient = np.einsum("bri,br->bi", weighted, off) + prior * (points - supposed)
        scaled = normal + damping[:, None, None] * (normal * eye + 1e-9 * eye)
        step = within(np.linalg.solve(scaled, gradient[:, :, None])[:, :, 0], -2.0, 2.0)
        moved = within(points - step, least, most)
        other, other_off, other_slopes = loss_of(moved)
        better = other < loss
        points = np.where(better[:, None], moved, points)
        gained = np.where(better, loss - other, 0)
        loss = np.where(better, other, loss)
        off = np.where(better[:, None], other_off, off)
        slopes = np.where(better[:, None, None], other_slopes, slopes)
        damping = within(np.where(better, damping * 0.3, damping * 4), 1e-9, 1e9)
        if not np.any(gained > 1e-9 * loss) and np.all(damping > 1e2):
            break
    return points, loss
