"""The fit of laws to rows: several starts, robust residuals, and the shape that predicts held-back rows best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ahbm.calibrate import constants, uncertainty
from ahbm.calibrate.laws import BOUNDS, FREE, PLAIN, RAMPED, Law, Rows, Shape, Term, decoded, encoded
from ahbm.calibrate.search import library, losses, searched
from ahbm.calibrate.tables import Floats
from ahbm.errors import ConfigError

STARTS, FEW_STARTS = 256, 12
"""Starts of a fit, and of one that only compares shapes."""
MOST = 9
"""Free parameters of a fit."""
AHEAD, GO_ON = 15, 16
"""Steps of a search after which few of its starts go on, and how many."""
NEARER = 3
"""Searches from the best point on."""
FOLDS = 4
WORST = 0.5
"""An error that is larger counts as much as this."""
CANDIDATES = 6
"""Borders that are tried: those where the times jump most."""
LEAST = 3
"""Rows on each side of a border."""
LIBRARY = Shape(((PLAIN, PLAIN, RAMPED),)), Shape(((PLAIN, PLAIN, FREE),))
"""Calls of few bytes, LL and Simple. These shapes are taken for nothing else: they follow noise, too."""
QUICKEST = (
    (2, Shape(((PLAIN,),))),
    (5, Shape(((FREE,),))),
    (6, Shape(((PLAIN, PLAIN),))),
    (7, Shape(((PLAIN, RAMPED),))),
    (9, Shape(((PLAIN, FREE),))),
    (9, Shape(((PLAIN, PLAIN, PLAIN),))),
    *((12, shape) for shape in LIBRARY),
)
"""Sizes that a shape needs, and the shape."""
AMONG_NODES = (
    Shape(((Term(ramp=True, way=0), Term(way=1), Term(way=2), Term(way=3, step_of=0, gbs_of=2)),)),
    Shape(((Term(ramp=True, way=0), Term(way=2), Term(way=3, step_of=0, gbs_of=1)),)),
    Shape(((Term(way=0), Term(way=2), Term(way=3, step_of=0, gbs_of=1)),)),
)
"""Shapes of a library with trees for small arrays and rings for large ones, on several numbers of nodes: LL with a
ramp, LL128 and Simple, as NCCL has them, or fewer. Rings have the step of the first and the bandwidth of the last."""
AS_WELL = 1.1
"""What a border may multiply the loss of the best one by, to fit as well."""
THREE, BETTER = Shape(((PLAIN, PLAIN, PLAIN),)), 0.8
"""Three plain protocols, and the part of the others' error that they are believed at: corners are rare."""
WORTH, SMALL = 1.06, 1e-3
"""What a parameter must divide the error by, of which so much does not matter, to be worth having."""
SWITCHING = Shape(((PLAIN,), (FREE,)))
"""The shape of libraries that do not take the quickest: the size decides between two protocols."""
UNSURE, AS_TOLD = 0.3, 1.25
"""Standard error of a parameter's logarithm from which on a law does without it, where its error grows by no more."""
AS_ROUND = 1.15
"""What a round number may multiply the error by."""
SURE = 0.01
"""Mean error up to which a law of the measured rows needs no time that others suggest."""
HELD, SEEN = 0.85, 0.8
"""A switch is believed where it leaves at most so much of the error at rows that were held back, and at others."""

Fit = tuple[float, Law]
"""Loss and law."""


def fits(shape: Shape, rows: Rows, weights: Floats, starts: int = STARTS) -> list[Fit | None]:
    """The law of a shape with the least loss, and that loss, for each row of `weights` (fits x rows: 1 for a row that a
    fit has); None where its rows are too few."""
    borders = len(shape.groups) > 1
    few = shape.free(len(rows.shared)) > min(MOST, int(weights.sum(1).min()) - borders)
    if few or (rows.shared and borders):
        return [None] * len(weights)
    if shape.bordered:
        return _chunked(shape, rows, weights, starts)
    if not borders:
        return _least(shape.terms, rows, weights, starts)
    best: list[Fit | None] = [None] * len(weights)
    for border in _borders(rows):
        part = rows.n >= border
        sides = [_least(group, rows, weights * (part == number), starts) for number, group in enumerate(shape.groups)]
        for number, found in enumerate(zip(*sides, strict=True)):
            if all(each is not None for each in found):
                loss = sum(each[0] for each in found if each is not None)
                known = best[number]
                if known is None or loss < known[0]:
                    protocols = tuple(one for each in found if each is not None for one in each[1].protocols)
                    best[number] = loss, Law(shape, 0.0, protocols, (border,))
    return best


def _chunked(shape: Shape, rows: Rows, weights: Floats, starts: int) -> list[Fit | None]:
    """As `fits`, for the best border between the algorithms of a shape, a power of two."""
    tried: list[list[Fit]] = [[] for _ in weights]
    chunks = np.log2(rows.n / rows.ranks)
    for border in range(max(int(chunks.min()), 0), int(chunks.max()) + 2):
        bordered = rows.bordered(1 << border)
        for number, found in enumerate(_least(shape.terms, bordered, weights, FEW_STARTS)):
            if found is not None:
                tried[number].append((found[0], replace(found[1], chunk_bytes=1 << border)))
    # On more ranks, rings take many more steps: of borders that fit as well, trees hold up to the largest.
    best: list[Fit | None] = []
    for each in tried:
        least = min((loss for loss, _ in each), default=0.0)
        best.append(next((fit for fit in reversed(each) if fit[0] <= AS_WELL * least), None))
    for number, known in enumerate(best):
        if known is not None and starts > FEW_STARTS:
            chunk_bytes = known[1].chunk_bytes
            again = _least(shape.terms, rows.bordered(chunk_bytes), weights[[number]], starts)[0]
            if again is not None and again[0] < known[0]:
                best[number] = again[0], replace(again[1], chunk_bytes=chunk_bytes)
    return best


def refined(law: Law, rows: Rows) -> Law:
    """The law of the same shape and borders that is nearest to the rows, from the parameters that it has."""
    return _ordered(_refined(law, rows))


def _refined(law: Law, rows: Rows, kept: Sequence[int] = ()) -> Law:
    """As `refined`, with the protocols in their order, but that parameters stay: `kept` are their places among
    `uncertainty.parameters`."""
    rows = rows.bordered(law.chunk_bytes)
    part = np.searchsorted(np.asarray(law.borders, np.float64), rows.n, side="right")
    found, at, before = law, 0, 0
    for number, terms in enumerate(law.shape.groups):
        one = replace(law, shape=Shape((terms,)), protocols=law.protocols[at : at + len(terms)])
        point = encoded(one, rows.shared)[None]
        stay = [place - before for place in kept if 0 <= place - before < point.size]
        if len(stay) < point.size:
            point = _nearer(terms, rows, (part == number)[None].astype(np.float64), point, stay)
        protocols = (*found.protocols[:at], *decoded(terms, point[0], rows.shared), *found.protocols[at + len(terms) :])
        values = {field: float(np.exp(point[0, place])) for place, field in enumerate(rows.shared)}
        found = replace(found, protocols=protocols).with_shared(values)
        at, before = at + len(terms), before + point.size
    return found


def chosen(rows: Rows) -> Law:
    """The law of the rows: the quickest of protocols, or, where that explains much more, a choice by size.

    Raises ConfigError (AHBM-C195) for too few rows.
    """
    if not rows.counts.all():
        measured = rows.at(rows.counts > 0)
        law = _shaped(measured)
        if _off(law, measured) < SURE:
            return law
    return _shaped(rows)


def loss(law: Law, rows: Rows) -> float:
    """What a fit to the rows makes least."""
    return float(losses(np.log(law.us(rows) / rows.us)).sum())


def between(one: Law, other: Law, shared: Sequence[str]) -> Law:
    """The law in the middle of two of one shape, with the borders of the first."""
    point = (encoded(one, shared) + encoded(other, shared)) / 2
    return replace(_decoded(one.shape.terms, point, shared), chunk_bytes=one.chunk_bytes)


def _shaped(rows: Rows) -> Law:
    """The law of all rows alike, without parameters that they do not tell, and with round numbers for those that they
    hardly tell."""
    law = _nearest(rows)
    if law.shape.bordered:
        return law
    every, most = np.ones((1, len(rows))), AS_TOLD * _off(law, rows) + 1e-4
    while True:
        shapes = uncertainty.simpler(law, rows, UNSURE)
        found = (fits(shape, rows, every)[0] for shape in shapes)
        simpler = next((fit[1] for fit in found if fit is not None and _off(fit[1], rows) <= most), None)
        if simpler is None:
            break
        law = simpler
    kept: list[int] = []
    while (rough := uncertainty.roughest(law, rows, kept)) is not None:
        at, numbers = rough
        number, key = uncertainty.parameters(law, rows)[at]
        kept.append(at)
        rounded = [_refined(law.with_part(number or 0, key, each), rows, kept) for each in numbers]
        nearest = min(rounded, key=lambda each: loss(each, rows))
        if _off(nearest, rows) <= AS_ROUND * _off(law, rows) + 1e-4:
            law = nearest
    return _ordered(law)


def _nearest(rows: Rows) -> Law:
    """The law of the shape whose error is the least for its number of parameters."""
    sizes, every = len(np.unique(rows.n)), np.ones((1, len(rows)))
    shapes = [shape for needed, shape in QUICKEST if needed <= sizes]
    several = len(rows.steps) > 1
    if several:
        shapes = list(AMONG_NODES)
    found = [(shape, fits(shape, rows, every)[0]) for shape in shapes]
    known = [(shape, fit[1], _off(fit[1], rows)) for shape, fit in found if fit is not None]
    known = [each for each in known if each[0] not in LIBRARY or each[1].few]
    if not known:
        raise ConfigError(
            "AHBM-C195",
            f"{len(rows)} rows of {sizes} sizes are too few to fit a machine to",
            hint="give tables with more sizes",
        )
    seen = min(off for *_, off in known)
    # What more ranks take follows from all of the rows' small differences: nothing is given away for simplicity.
    worth = 1.0 if several else WORTH

    def score(shape: Shape, off: float) -> float:
        return (off + SMALL) * worth ** shape.free(len(rows.shared)) / (BETTER if shape == THREE else 1.0)

    law = min(known, key=lambda each: score(each[0], each[2]))[1]
    if rows.shared:
        return law
    held = [error for shape, *_ in known if (error := _held_back(shape, rows)) is not None]
    if not held:
        return law
    error = _held_back(SWITCHING, rows)
    if error is not None and error <= HELD * min(held):
        switching = fits(SWITCHING, rows, every)[0]
        if switching is not None and _off(switching[1], rows) <= SEEN * seen:
            law = switching[1]
    return law


def _off(law: Law, rows: Rows) -> float:
    return float(np.minimum(np.abs(np.log(law.us(rows) / rows.us)), WORST).mean())


def _held_back(shape: Shape, rows: Rows) -> float | None:
    """Mean error of a shape at rows that were held back, each once; None where the others are too few."""
    # By size and not by number: a row that is left out leaves all others where they are.
    sizes = np.log(rows.n)
    order = np.rint(sizes / np.median(np.diff(np.unique(sizes)))).astype(int)
    kept = np.array([order % FOLDS != fold for fold in range(FOLDS)], dtype=np.float64)
    errors: list[float] = []
    for keeps, found in zip(kept, fits(shape, rows, kept, FEW_STARTS), strict=True):
        if found is None:
            return None
        if not (keeps == 0).any():
            continue
        errors += [_off(found[1], rows.at(keeps == 0))] * int((keeps == 0).sum())
    return float(np.mean(errors))


def _least(terms: Sequence[Term], rows: Rows, weights: Floats, count: int) -> list[Fit | None]:
    starts = [
        list(_starts(terms, rows.at(row > 0), rows.shared, count))
        if row.sum() >= sum(term.free for term in terms)
        else []
        for row in weights
    ]
    if not any(starts):
        return [None] * len(weights)
    of = np.array([number for number, each in enumerate(starts) for _ in each])
    points = np.array([point for each in starts for point in each])
    known, prior = library(terms, rows.shared)
    supposed = np.where(np.isnan(known), np.array([each[0] for each in starts for _ in each]), known)
    found, losses = searched(terms, rows, weights[of], points, supposed, prior=prior, rounds=AHEAD)
    # Of a fit's starts, those that are ahead after a few steps go on.
    ahead = np.concatenate([_least_of(losses, of == number, GO_ON) for number in range(len(weights))])
    of = of[ahead]
    found, losses = searched(terms, rows, weights[of], found[ahead], supposed[ahead], prior=prior)
    numbers = np.unique(of)
    best = np.concatenate([_least_of(losses, of == number, 1) for number in numbers])
    nearest = _nearer(terms, rows, weights[numbers], found[best])
    fits: list[Fit | None] = [None] * len(weights)
    for number, at, point in zip(numbers.tolist(), best.tolist(), nearest, strict=True):
        fits[number] = float(losses[at]), _decoded(terms, point, rows.shared)
    return fits


def _least_of(losses: Floats, mine: NDArray[np.bool_], count: int) -> NDArray[np.intp]:
    """The places of the least losses among those that are `mine`."""
    places = np.flatnonzero(mine)
    return places[np.argsort(losses[places], kind="stable")[:count]]


def _nearer(terms: Sequence[Term], rows: Rows, weights: Floats, points: Floats, kept: Sequence[int] = ()) -> Floats:
    """The points to which fits come from where a search has ended: what was supposed drew that one, and nothing draws
    these back. Parameters that are `kept` stay."""
    for _ in range(NEARER):
        nearer, _ = searched(terms, rows, weights, points, points, kept)
        if np.array_equal(nearer, points):
            break
        points = nearer
    return points


def _decoded(terms: Sequence[Term], point: Floats, shared: Sequence[str]) -> Law:
    """The law of a point of the search space."""
    values = {field: float(np.exp(point[at])) for at, field in enumerate(shared)}
    law = Law(Shape((tuple(terms),)), 0.0, tuple(decoded(terms, point, shared)))
    return _ordered(law.with_shared(values))


def _ordered(law: Law) -> Law:
    """The law with its protocols by their bandwidths, where all are of one group and none has what another has."""
    terms = law.shape.terms
    if len(law.shape.groups) > 1 or any(term.step_of is not None or term.gbs_of is not None for term in terms):
        return law
    pairs = sorted(zip(law.protocols, terms, strict=True), key=lambda pair: pair[0].gbs)
    return replace(
        law, shape=Shape((tuple(term for _, term in pairs),)), protocols=tuple(protocol for protocol, _ in pairs)
    )


def _starts(terms: Sequence[Term], rows: Rows, shared: Sequence[str], count: int) -> Iterator[Floats]:
    """Starts, the same for the same rows: protocols that each begin where the row of some size is."""
    by_size = np.argsort(rows.n, kind="stable")
    used = np.where(np.isinf(rows.fixed[0]), len(rows.fixed) - 1, 0)
    fixed, steps, volume, crossings = (
        np.take_along_axis(values, used[None], 0)[0] for values in (rows.fixed, rows.steps, rows.volume, rows.crossings)
    )
    start = constants.steps().ring / constants.steps().inside
    if "nic_steps" in shared:
        steps = steps + (start - 1) * crossings
    n, us, steps, volume = (values[by_size] for values in (rows.n, rows.us - fixed, steps, volume))
    us = np.maximum(us, 1e-3)
    for number in range(count if len(terms) > 1 or terms[0].exponent else 4):
        drawn = np.random.default_rng(number)
        places = np.linspace(0, len(n) - 1, len(terms) + 1)[1:]
        if number:
            places = np.sort(drawn.uniform(0, len(n) - 1, len(terms)))
            places[-1] = len(n) - 1
        point = [float(np.log({"launch_us": 0.5 * us.min(), "nic_steps": start}[field])) for field in shared]
        for position, (place, term) in enumerate(zip(places, terms, strict=True)):
            at = round(float(place))
            part = 0.5 if number == 0 else float(drawn.uniform(0.2, 0.9))
            step = us.min() / steps[0] if position == 0 else us[at] / steps[at] * part
            gbs = volume[at] * n[at] / (1000 * us[at]) / (0.7 if number == 0 else float(drawn.uniform(0.3, 1.0)))
            point += [float(np.log(step))] if term.step_of is None else []
            point += [float(np.log(max(gbs, BOUNDS["gbs"][0])))] if term.gbs_of is None else []
            if term.ramp:
                point.append(float(np.log(n[at] * (1e-2 if number == 0 else 10 ** drawn.uniform(-4, 0)))))
            if term.exponent:
                point.append(0.3 if number == 0 else float(drawn.normal(0.3, 0.5)))
        yield np.asarray(point)


def _borders(rows: Rows) -> list[int]:
    """Borders between two groups, where the times jump: up or down, against the slope on both sides. They are by size:
    of borders that fit as well, the same is taken whatever the other rows' times are."""
    n = np.unique(rows.n)
    us = np.array([np.median(rows.us[rows.n == size]) for size in n])
    slope = np.diff(np.log(us)) / np.diff(np.log(n))
    around = np.convolve(np.pad(slope, 1, mode="edge"), [0.5, 0.0, 0.5], mode="valid")
    jumps = [at for at in np.argsort(-np.abs(slope - around), kind="stable") if LEAST - 1 <= at <= len(n) - LEAST - 1]
    return [round(float(np.sqrt(n[at] * n[at + 1]))) for at in sorted(jumps[:CANDIDATES])]
