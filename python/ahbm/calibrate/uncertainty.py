"""How well rows tell the parameters of a law, and the law without those that they do not tell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ahbm.calibrate.laws import Floats, Law, Rows, Shape

CHANGE = 1e-4
"""Relative change of a parameter by which the slope of a law is found."""


def parameters(law: Law, rows: Rows) -> list[tuple[int | None, str]]:
    """The free parameters in the order of the covariance: the protocol's number, None for what all share, and the field
    of a law or of `Spoken`."""
    own = [(number, key) for number, term in enumerate(law.shape.terms) for key in term.keys]
    return [*((None, field) for field in rows.shared), *own]


def covariance(law: Law, rows: Rows) -> Floats:
    """Of the logarithms of the parameters (parameters x parameters), by least squares: the inverse of the slopes'
    squares, by the robust variance of the residuals."""
    us = law.us(rows)
    slopes = []
    for number, key in parameters(law, rows):
        if number is None:
            changed = replace(law, **{key: getattr(law, key) * (1 + CHANGE)})
        else:
            changed = law.with_part(number, key, getattr(law.spoken[number], key) * (1 + CHANGE))
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
