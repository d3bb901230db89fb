"""What wrong numbers have in common: a factor, another operator, a block that stands elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ahbm.base.elements import COMBINE, ELEMENTS
from ahbm.base.request import Request
from ahbm.check.reference import Reference
from ahbm.errors import AhbmError

NARROWER = {"f64": ("f32", "f16", "bf16"), "f32": ("f16", "bf16"), "f16": ("bf16",), "bf16": ("f16",)}
SIMPLE = 64
"""Largest denominator of a factor that is named."""


def derived(
    request: Request,
    given: Sequence[NDArray[Any]],
    reference: Reference,
    party: int,
    result: NDArray[Any],
    name: str,
) -> str | None:
    """The hint for the wrong result of a party called `name`, its stored elements afterwards; None where nothing simple
    explains it."""
    part = request.part(party)
    wrong = reference.wrong(party, result)
    got = request.element.decode(result[part]).astype(np.float64)
    want = reference.expected(party).astype(np.float64)
    if narrower := _narrowed(request, got, want):
        return f"the result is as {narrower} holds it: is a value cast to {narrower} on its way?"
    shown = f"element {part.start + int(wrong[0])}"
    if request.reduces and (other := _by_other(request, given, party, result)):
        return f"{_all(wrong, got)} of {name} are the {other} of all contributions, not their {request.op}"
    if (shift := _shifted(got, want, wrong)) is not None:
        return (
            f"from {shown} on stands what belongs {abs(shift)} elements {'further on' if shift > 0 else 'before'}: "
            "is a block stored, or loaded, at another block's place?"
        )
    if (factor := _factor(got, want, wrong)) is not None:
        return f"{_all(wrong, got)} are {factor} of what they should be: is a factor, a divisor or a repetition wrong?"
    return None


def _narrowed(request: Request, got: NDArray[np.float64], want: NDArray[np.float64]) -> str | None:
    """The narrower type that the result is rounded to; None where it is to none."""
    for name in NARROWER.get(request.element.name, ()):
        element = ELEMENTS[name]
        with np.errstate(all="ignore"):
            if np.array_equal(got, element.decode(element.encode(want))):
                return name
    return None


def _all(wrong: NDArray[np.intp], got: NDArray[np.float64]) -> str:
    return "all elements" if len(wrong) == len(got) else f"the {len(wrong)} wrong elements"


def _by_other(request: Request, given: Sequence[NDArray[Any]], party: int, result: NDArray[Any]) -> str | None:
    """The operator whose right result this is."""
    for op in COMBINE:
        if op == request.op:
            continue
        with suppress(AhbmError, TypeError), np.errstate(all="ignore"):  # Not every type has every operator.
            if not len(Reference(replace(request, op=op), given, exact=True).wrong(party, result)):
                return op
    return None


def _factor(got: NDArray[np.float64], want: NDArray[np.float64], wrong: NDArray[np.intp]) -> Fraction | None:
    """The simple factor, other than 1, between the wrong elements, two or more, and the right ones."""
    have, need = got[wrong], want[wrong]
    counts = np.isfinite(have) & np.isfinite(need) & (need != 0)
    if counts.sum() < 2 or np.any(have[~counts & (need == 0)] != 0):
        return None
    with np.errstate(all="ignore"):
        ratios = have[counts] / need[counts]
    middle = float(np.median(ratios))
    if not np.isfinite(middle) or np.any(np.abs(ratios - middle) > 1e-2 * abs(middle)):
        return None
    factor = Fraction(middle).limit_denominator(SIMPLE)
    near = factor != 0 and abs(float(factor) - middle) <= 1e-2 * abs(middle)
    return factor if near and factor != 1 else None


def _shifted(got: NDArray[np.float64], want: NDArray[np.float64], wrong: NDArray[np.intp]) -> int | None:
    """How far on the first run of wrong elements stands in the right result; None where it does not."""
    low = int(wrong[0])
    gap = np.flatnonzero(np.diff(wrong) != 1)
    high = int(wrong[gap[0]] if len(gap) else wrong[-1]) + 1
    length = min(high - low, 64)
    if length < 4:
        return None
    block = got[low : low + length]
    if np.all(block == block[0]):
        return None
    starts = np.flatnonzero(want[: len(want) - length + 1] == block[0])
    found = [int(start) for start in starts if start != low and np.array_equal(want[start : start + length], block)]
    return found[0] - low if len(found) == 1 else None
