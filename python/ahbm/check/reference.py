"""The right result of a collective, computed with NumPy.

A *party* is what contributes one array: a rank of a collective on host arrays, a cube of a rank on device tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ahbm.base.collectives import BITWISE
from ahbm.base.elements import COMBINE, Element
from ahbm.base.host import memory_bytes
from ahbm.base.request import Request
from ahbm.errors import BudgetError, ConfigError


class Reference:
    """The right answer to a request for given inputs."""

    def __init__(self, request: Request, inputs: Sequence[NDArray[Any]], exact: bool) -> None:
        """`inputs[i]`: party i's stored elements, shape (request.size,). With `exact`, sums are known to be exact."""
        self._request = request
        self._exact = exact or not request.element.is_float
        self._inputs = inputs
        self._total: NDArray[Any]
        self._magnitude: NDArray[Any]
        self._stored: NDArray[Any] | None = None
        """The exact answer as it is stored: a result with the same bits needs no second look."""
        if request.reduces:
            self._total, self._magnitude = self._combine()
            if self._exact and request.op != "avg" and not np.isnan(self._total).any():
                self._stored = request.element.encode(self._total)

    def expected(self, party: int) -> NDArray[Any]:
        """The numbers (decoded) that must stand in `request.part(party)`."""
        part = self._request.part(party)
        return self._total[part] if self._request.reduces else self._request.element.decode(self._moved(party, part))

    def _moved(self, party: int, part: slice) -> NDArray[Any]:
        """The stored elements of a collective that reduces nothing."""
        wanted = self._inputs[party][part].copy()
        for start, stop, ((whose, at),) in self._request.expected(party):
            wanted[start - part.start : stop - part.start] = self._inputs[whose][at : at + stop - start]
        return wanted

    def wrong(self, party: int, result: NDArray[Any]) -> NDArray[np.intp]:
        """Indices in `request.part(party)` where `result`, the party's stored elements afterwards, is not right.

        Exact where sums are exact; averages may be off by two units in the last place; otherwise the error of a
        reduction of m numbers is bounded by m * epsilon * the sum of their magnitudes, whatever their order.
        """
        request, part = self._request, self._request.part(party)
        stored = None if self._stored is None else self._stored[part]
        if not request.reduces:
            stored = self._moved(party, part)
        if stored is not None and result.dtype == stored.dtype:
            as_bits = f"u{result.dtype.itemsize}"
            if np.array_equal(result[part].view(as_bits), stored.view(as_bits)):
                return np.empty(0, np.intp)
        want = self._total[part] if stored is None or request.reduces else request.element.decode(stored)
        got = request.element.decode(result[part])
        if request.shares is not None:
            counts = np.zeros(len(want), np.bool_)
            for start, stop, _ in request.expected(party):
                counts[start - part.start : stop - part.start] = True
            got = np.where(counts, got, want)
        inexact = request.reduces and request.element.is_float and request.op in ("sum", "prod", "avg")
        if not inexact or (self._exact and request.op != "avg"):
            return np.flatnonzero(~(got == want))
        terms, scale = (2, np.abs(want)) if self._exact else (request.parties + 1, self._magnitude[part])
        bound = terms * request.element.epsilon * scale + np.finfo(np.float16).tiny * request.element.epsilon
        return np.flatnonzero(~(np.abs(got - want) <= bound))

    def _decoded(self, party: int) -> NDArray[Any]:
        return self._request.element.decode(self._inputs[party])

    def _combine(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The reduction of all inputs, and the scale of its rounding errors."""
        request = self._request
        total = self._decoded(0).copy()
        magnitude = np.abs(total)
        combine = COMBINE[request.op]
        with np.errstate(over="ignore"):
            for party in range(1, request.parties):
                value = self._decoded(party)
                combine(total, value, out=total)
                if not self._exact:
                    combine(magnitude, np.abs(value), out=magnitude)
            if request.op == "avg":
                total = (
                    total / request.parties if request.element.is_float else total.astype(np.int64) // request.parties
                )
                magnitude = magnitude / request.parties
        return total, magnitude


def _check_memory(request: Request) -> None:
    """Raises BudgetError (AHBM-B301) where inputs, their copies, the machine's memory and the numbers of the reference
    exceed this computer's."""
    item = request.element.storage.itemsize
    # Decoded floats are f64: a reduction has its total, its scale and a contribution, all else what is and what should
    # be.
    number, arrays = 8 if request.element.is_float else item, 3 if request.reduces else 2
    asked = (3 * request.parties * item + arrays * number) * request.size
    if asked > (most := memory_bytes()):
        raise BudgetError(
            "AHBM-B301",
            f"the data of {request.parties} x {request.size} elements take at least {asked} bytes, "
            f"this process may have {most}",
            hint="--no-data (data=False) runs them for their time",
        )


def inputs(request: Request, mode: str, seed: int) -> list[NDArray[Any]]:
    """Contributions for every party, the same for the same arguments.

    `"integers"`: numbers as wide as every partial result of the collective stays exact in its dtype, in any order:
    integers where floats are added; where integers are, sums may wrap around. `"wide"`: numbers that no narrower type
    holds, exact as well: where needed (`takes_turns`), at each element only one party has one, and the others have the
    operator's neutral element; each party in turn, which another seed begins elsewhere. `"random"`: uniformly
    distributed numbers, rounded by every addition. Raises ConfigError (AHBM-C124) for another mode, BudgetError
    (AHBM-B301) for data that this computer cannot hold.
    """
    _check_memory(request)
    makers = {"integers": _integers, "random": _random if request.element.is_float else _integers, "wide": _wide}
    if mode not in tuple(makers):
        raise ConfigError("AHBM-C124", f"unknown mode {mode!r} of test data", hint=f"one of {', '.join(makers)}")
    make = makers[mode]
    return [
        request.element.encode(make(request, party, np.random.default_rng([seed, party]), seed))
        for party in range(request.parties)
    ]


def _random(request: Request, party: int, rng: np.random.Generator, seed: int) -> NDArray[Any]:
    # Products stay near 1, so that many factors neither overflow nor vanish.
    low, high = (0.875, 1.125) if request.op == "prod" else (-1.0, 1.0)
    return rng.uniform(low, high, request.size)


def _integers(request: Request, party: int, rng: np.random.Generator, seed: int) -> NDArray[Any]:
    element, m = request.element, request.parties
    positions = np.arange(request.size) + party
    if not takes_turns(request) or request.op in BITWISE:
        return _all_bits(element, request.size, rng)
    if request.op == "prod":
        # At most three parties put a factor 2 at a position.
        sign = rng.choice([-1, 1], request.size) if element.signed else np.ones(request.size, np.int64)
        return np.where(positions % m < 3, 2 * sign, sign)
    share = element.exact // m
    if request.op == "avg" and not element.is_float:
        share = min(share, 8)
        # One base value for all, and pairs of +1 and -1: the sum is a multiple of m.
        base = np.random.default_rng([seed]).integers(1, max(share, 1), request.size, endpoint=True)
        step = (1, -1)[party % 2] if party ^ 1 < m else 0
        return (base + step) * int(share > 1)
    if share:
        return rng.integers(-share if element.signed else 0, share, request.size, endpoint=True)
    # More parties than exact units: they take turns, so that each position adds up to what fits.
    turns = -(-m // element.exact)
    return np.where(positions % turns == 0, 1, 0)


NARROWER = (8, 11, 24)
"""Bits of the significands of bf16, f16 and f32."""
NEUTRAL = {"sum": 0, "avg": 0, "prod": 1, "band": -1, "bor": 0, "bxor": 0}
"""What changes nothing; the extreme operators need none, for every party's number is exact."""


def takes_turns(request: Request) -> bool:
    """Whether wide numbers stay exact only if one party at a time has one."""
    return request.reduces and request.op not in ("min", "max") and (request.element.is_float or request.op != "sum")


def _wide(request: Request, party: int, rng: np.random.Generator, seed: int) -> NDArray[Any]:
    op, element, m = request.op, request.element, request.parties
    if not takes_turns(request):
        return _all_bits(element, request.size, rng)
    if op == "prod" and not element.is_float:
        return _all_bits(element, request.size, rng) | 1  # factors of two would end as zeros
    turn = int(np.random.default_rng([seed]).integers(m))
    first = (party - turn) % m
    values = _all_bits(element, len(range(first, request.size, m)), rng)
    if op == "avg" and not element.is_float:
        share = m if m <= np.iinfo(element.storage).max else 0
        values = values // 2 // share * share if share else np.zeros_like(values)
    numbers = np.full(request.size, np.array(NEUTRAL[op]).astype(values.dtype))
    numbers[first::m] = values
    return numbers


def _all_bits(element: Element, size: int, rng: np.random.Generator) -> NDArray[Any]:
    """Integers over the whole range of the type, or numbers over its exponents and with significands that lie at least
    a quarter of a unit from those of every narrower type."""
    if not element.is_float:
        info = np.iinfo(element.storage)
        return rng.integers(info.min, info.max, size, element.storage, endpoint=True)
    bits = 1 - math.frexp(element.epsilon)[1] + 1
    significand = rng.integers(1 << (bits - 1), 1 << bits, size) | 1
    for narrower in NARROWER:
        if (rest := bits - narrower) > 1:
            half = rng.integers(1, 2, size, endpoint=True) << (rest - 2)
            significand = significand & ~(3 << (rest - 2)) | half | 1
    exponent = rng.integers(*element.exponents, size, endpoint=True) - (bits - 1)
    numbers: NDArray[Any] = np.ldexp(rng.choice([-1.0, 1.0], size) * significand, exponent)
    return numbers
