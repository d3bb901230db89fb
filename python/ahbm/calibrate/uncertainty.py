"""How well rows tell the parameters of a law, the law without those that they do not tell, and round numbers for those
that they hardly tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil, floor, log2, sqrt

import numpy as np

from ahbm.calibrate import constants
from ahbm.calibrate.laws import BOUNDS, Law, Rows, Shape
from ahbm.calibrate.tables import Floats

CHANGE = 1e-4
"""Relative change of a parameter by which the slope of a law is found."""
ROUGH = {"gbs": 0.06, "ramp_bytes": 0.01, "exponent": 0.06, "step_us": 1.0}
"""Standard error of a parameter's logarithm from which on its number is a round one; of a step, a known one."""
FIFTHS = 5
"""Of an exponent, round numbers are fifths."""
FINE = 0.1
"""Standard error up to which a ramp's round numbers are half as far from each other, as powers of the root of two."""


def parameters(law: Law, rows: Rows) -> list[tuple[int | None, str]]:
    """The free parameters in the order of the covariance: the protocol's number, None for what all share, and the field
    of a law or of `ProtocolLaw`."""
    own = [(number, key) for number, term in enumerate(law.shape.terms) for key in term.keys]
    return [*((None, field) for field in rows.shared), *own]


def covariance(law: Law, rows: Rows, kept: Sequence[int] = ()) -> Floats:
    """Of the logarithms of the parameters (parameters x parameters), by least squares: the inverse of the slopes'
    squares, by the robust variance of the residuals. Those that are `kept` are numbers, and no parameters."""
    us = law.us(rows)
    slopes = []
    for at, (number, key) in enumerate(parameters(law, rows)):
        if at in kept:
            continue
        if number is None:
            changed = law.with_shared({key: getattr(law, key) * (1 + CHANGE)})
        else:
            changed = law.with_part(number, key, getattr(law.protocols[number], key) * (1 + CHANGE))
        slopes.append(np.log(changed.us(rows) / us) / CHANGE)
    jacobian = np.array(slopes).T
    # The robust scale: one row in error does not widen all bands.
    scale = max(1.4826 * float(np.median(np.abs(np.log(us / rows.us)))), 1e-6)
    normal = jacobian.T @ jacobian + 1e-6 * np.eye(jacobian.shape[1])
    return np.asarray(scale**2 * np.linalg.inv(normal), np.float64)


def simpler(law: Law, rows: Rows, unsure: float) -> Iterator[Shape]:
    """The shapes of a law without one of the parameters whose standard error is above `unsure`, the least sure
    first."""
    errors = np.sqrt(np.diag(covariance(law, rows)))
    for at in np.argsort(-errors, kind="stable"):
        number, key = parameters(law, rows)[at]
        if number is not None and errors[at] > unsure:
            yield from _without(law.shape, number, key)


def roughest(law: Law, rows: Rows, kept: Sequence[int]) -> tuple[int, list[float]] | None:
    """The least sure of the parameters that are not kept and that rows hardly tell, by what it has to be: its place
    among `parameters`, and the round numbers around it; None where there is none.

    Of two tables that differ little, both have the same round number.
    """
    free = [at for at in range(len(parameters(law, rows))) if at not in kept]
    if not free:
        return None
    errors = np.sqrt(np.diag(covariance(law, rows, kept)))
    named = [parameters(law, rows)[at] for at in free]
    by = [0.0 if number is None else error / ROUGH[key] for error, (number, key) in zip(errors, named, strict=True)]
    place = int(np.argmax(by))
    number, key = named[place]
    if number is None or by[place] <= 1:
        return None
    return free[place], _round(key, getattr(law.protocols[number], key), float(errors[place]))


def _round(key: str, value: float, error: float) -> list[float]:
    """Powers of two around a value, or fifths around an exponent; a step that is known."""
    if key == "step_us":
        return [constants.steps().inside]
    if key == "exponent":
        found = [whole(FIFTHS * value) / FIFTHS for whole in (floor, ceil)]
    else:
        base = sqrt(2.0) if key == "ramp_bytes" and error <= FINE else 2.0
        found = [base ** whole(log2(value) / log2(base)) for whole in (floor, ceil)]
    least, most = BOUNDS[key]
    return sorted({min(max(each, least), most) for each in found})


def _without(shape: Shape, number: int, key: str) -> Iterator[Shape]:
    """The shape in which a protocol has no such parameter of its own, where there is one."""
    groups = [list(group) for group in shape.groups]
    index = [(group, at) for group, terms in enumerate(shape.groups) for at in range(len(terms))]
    of, at = index[number]
    group, term = groups[of], groups[of][at]
    if key == "exponent":
        group[at] = replace(term, exponent=False)
    elif key == "step_us" and at:
        group[at] = replace(term, step_of=0)
    elif key != "step_us" and term.ramp:
        group[at] = replace(term, ramp=False, exponent=False)
    elif len(group) > 1 and at:
        del group[at]
    else:
        return
    yield Shape(tuple(tuple(group) for group in groups))
