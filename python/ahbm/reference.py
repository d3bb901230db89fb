"""What a collective must give, computed with NumPy.

A *party* is what contributes one array: a rank of a collective on host arrays, a cube of a rank on device tensors.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ahbm.collectives import BITWISE, COLLECTIVES
from ahbm.elements import Element
from ahbm.errors import BudgetError, ConfigError


@dataclass(frozen=True)
class Task:
    """A collective over `parties` arrays of `chunks` * `count` elements each."""

    collective: str
    element: Element
    parties: int
    count: int
    op: str = "sum"
    root: int = 0
    src: int = 0
    dst: int = 1

    @property
    def size(self) -> int:
        """Elements of one party's array."""
        return COLLECTIVES[self.collective].chunks(self.parties) * self.count

    @property
    def reduces(self) -> bool:
        """True when contributions are combined."""
        return COLLECTIVES[self.collective].reduces


_COMBINE: dict[str, np.ufunc] = {
    "sum": np.add,
    "avg": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}


class Reference:
    """The right answer to a task for given inputs."""

    def __init__(self, task: Task, inputs: Sequence[NDArray[Any]], exact: bool) -> None:
        """`inputs[i]`: party i's stored elements, shape (task.size,). With `exact`, sums are known to be exact."""
        self._task = task
        self._exact = exact or not task.element.is_float
        self._inputs = inputs
        self._total: NDArray[Any]
        self._magnitude: NDArray[Any]
        if task.reduces:
            self._total, self._magnitude = self._combine()

    def part(self, party: int) -> slice:
        """The elements of a party's array that the collective defines; the rest are unspecified."""
        return part_of(self._task, party)

    def expected(self, party: int) -> NDArray[Any]:
        """The numbers (decoded) that must stand in `part(party)`."""
        task, part = self._task, self.part(party)
        if task.reduces:
            return self._total[part]
        if task.collective in ("broadcast", "scatter"):
            return self._decoded(task.root)[part]
        if task.collective == "send_recv":
            return self._decoded(task.src)[part]
        if task.collective == "all_to_all":
            mine = slice(party * task.count, (party + 1) * task.count)
            chunks = [self._decoded(peer)[mine] for peer in range(task.parties)]
        else:
            chunks = [self._decoded(peer)[peer * task.count : (peer + 1) * task.count] for peer in range(task.parties)]
        return np.concatenate(chunks)[: part.stop]

    def wrong(self, party: int, result: NDArray[Any]) -> NDArray[np.intp]:
        """Indices in `part(party)` where `result`, the party's stored elements afterwards, is not what it must be.

        Exact where sums are exact; averages may be off by two units in the last place; otherwise the error of a
        reduction of m numbers is bounded by m * epsilon * the sum of their magnitudes, whatever their order.
        """
        task, part = self._task, self.part(party)
        want, got = self.expected(party), task.element.decode(result[part])
        inexact = task.reduces and task.element.is_float and task.op in ("sum", "prod", "avg")
        if not inexact or (self._exact and task.op != "avg"):
            return np.flatnonzero(~(got == want))
        terms, scale = (2, np.abs(want)) if self._exact else (task.parties + 1, self._magnitude[part])
        bound = terms * task.element.epsilon * scale + np.finfo(np.float16).tiny * task.element.epsilon
        return np.flatnonzero(~(np.abs(got - want) <= bound))

    def _decoded(self, party: int) -> NDArray[Any]:
        return self._task.element.decode(self._inputs[party])

    def _combine(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The reduction of all inputs, and the scale of its rounding errors."""
        task = self._task
        total = self._decoded(0).copy()
        magnitude = np.abs(total)
        combine = _COMBINE[task.op]
        with np.errstate(over="ignore"):
            for party in range(1, task.parties):
                value = self._decoded(party)
                combine(total, value, out=total)
                if not self._exact:
                    combine(magnitude, np.abs(value), out=magnitude)
            if task.op == "avg":
                total = total / task.parties if task.element.is_float else total.astype(np.int64) // task.parties
                magnitude = magnitude / task.parties
        return total, magnitude


def part_of(task: Task, party: int) -> slice:
    """The elements of a party's array that the collective defines; the rest are unspecified."""
    own = slice(party * task.count, (party + 1) * task.count)
    name = task.collective
    if (
        name == "barrier"
        or (name in ("reduce", "gather") and party != task.root)
        or (name == "send_recv" and party != task.dst)
    ):
        return slice(0, 0)
    return own if name in ("reduce_scatter", "scatter") else slice(0, task.size)


def _check_memory(task: Task) -> None:
    """Raises BudgetError (AHBM-B301) where inputs, their copies and the machine's memory exceed this computer's."""
    asked = 3 * task.parties * task.size * task.element.storage.itemsize
    if asked > (most := os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")):
        raise BudgetError(
            "AHBM-B301",
            f"the data of {task.parties} x {task.size} elements take at least {asked} bytes, this computer has {most}",
            hint="--no-data (data=False) runs them for their time",
        )


def inputs(task: Task, mode: str, seed: int) -> list[NDArray[Any]]:
    """Contributions for every party, the same for the same arguments.

    `"integers"`: small integers chosen so that every partial result of the collective is exact in its dtype, in any
    order. `"random"`: uniformly distributed numbers. Raises ConfigError (AHBM-C124) for another mode,
    BudgetError (AHBM-B301) for data that this computer cannot hold.
    """
    _check_memory(task)
    if mode not in ("integers", "random"):
        raise ConfigError("AHBM-C124", f"unknown mode {mode!r} of test data", hint="one of integers, random")
    make = _random if mode == "random" and task.element.is_float else _integers
    return [
        task.element.encode(make(task, party, np.random.default_rng([seed, party]), seed))
        for party in range(task.parties)
    ]


def _random(task: Task, party: int, rng: np.random.Generator, seed: int) -> NDArray[Any]:
    # Products stay near 1, so that many factors neither overflow nor vanish.
    low, high = (0.875, 1.125) if task.op == "prod" else (-1.0, 1.0)
    return rng.uniform(low, high, task.size)


def _integers(task: Task, party: int, rng: np.random.Generator, seed: int) -> NDArray[Any]:
    element, m = task.element, task.parties
    positions = np.arange(task.size) + party
    if not task.reduces or task.op in ("min", "max", *BITWISE):
        return rng.integers(-element.exact if element.signed else 0, element.exact, task.size, endpoint=True)
    if task.op == "prod":
        # At most three parties put a factor 2 at a position.
        sign = rng.choice([-1, 1], task.size) if element.signed else np.ones(task.size, np.int64)
        return np.where(positions % m < 3, 2 * sign, sign)
    share = min(element.exact // m, 8)
    if task.op == "avg" and not element.is_float:
        # One base value for all, and pairs of +1 and -1: the sum is a multiple of m.
        base = np.random.default_rng([seed]).integers(1, max(share, 1), task.size, endpoint=True)
        step = (1, -1)[party % 2] if party ^ 1 < m else 0
        return (base + step) * int(share > 1)
    if share:
        return rng.integers(-share if element.signed else 0, share, task.size, endpoint=True)
    # More parties than exact units: they take turns, so that each position adds up to what fits.
    turns = -(-m // element.exact)
    return np.where(positions % turns == 0, 1, 0)
