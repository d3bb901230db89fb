"""The conditions that a kernel decides by: what it compares of its number of ranks, its count and its rank.

A kernel is captured once with integers that remember how they were computed (`Recorded`). Every comparison, and every
division, remainder or mask by a number, is a place where other ranks or counts may take another way. `Conditions` says
on which sides of these places a number of ranks and a count lie.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ahbm.source.module import SIP_ARGUMENTS, ModuleAlgorithm

MOST = 256
"""Conditions that are kept: later ones of a loop ask the same of other numbers."""

Formula = tuple[Any, ...]
"""("w",), ("n",) and ("rank",) are the number of ranks, the count and the rank, ("=", c) is a number, and
(name, a, b) an operation on two formulas."""

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "lshift": operator.lshift,
    "rshift": operator.rshift,
}
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "lt": operator.lt,
    "le": operator.le,
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "ge": operator.ge,
}
_PERIODIC = ("floordiv", "mod", "and", "rshift")
"""Operations whose result changes its kind where the left operand reaches the right one, or one of its multiples."""


class Recorded(int):
    """An integer that remembers its formula; all that is no arithmetic or comparison sees a plain integer."""

    formula: Formula
    conditions: dict[Formula, None]

    def __new__(cls, value: int, formula: Formula, conditions: dict[Formula, None]) -> Recorded:
        found = super().__new__(cls, value)
        found.formula, found.conditions = formula, conditions
        return found

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)

    def __bool__(self) -> bool:
        self.ask(("ne", self.formula, ("=", 0)))
        return int(self) != 0

    __hash__ = int.__hash__

    def __neg__(self) -> Recorded:
        return Recorded(-int(self), ("sub", ("=", 0), self.formula), self.conditions)

    def __divmod__(self, other: int) -> tuple[int, int]:
        return self // other, self % other

    def ask(self, condition: Formula) -> None:
        """Keeps a condition."""
        if len(self.conditions) < MOST:
            self.conditions.setdefault(condition)


def _formula(number: int) -> Formula:
    return number.formula if isinstance(number, Recorded) else ("=", int(number))


def _arithmetic(name: str, apply: Callable[[Any, Any], Any], reflected: bool) -> Callable[[Recorded, Any], Any]:
    def method(self: Recorded, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        left, right = (other, self) if reflected else (self, other)
        formula = name, _formula(left), _formula(right)
        if name in _PERIODIC:
            self.ask(formula)
        return Recorded(apply(int(left), int(right)), formula, self.conditions)

    return method


def _comparison(name: str, apply: Callable[[Any, Any], Any]) -> Callable[[Recorded, Any], Any]:
    def method(self: Recorded, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        self.ask((name, self.formula, _formula(other)))
        return apply(int(self), int(other))

    return method


for _name, _apply in _ARITHMETIC.items():
    setattr(Recorded, f"__{_name}__", _arithmetic(_name, _apply, reflected=False))
    setattr(Recorded, f"__r{_name}__", _arithmetic(_name, _apply, reflected=True))
for _name, _apply in _COMPARISONS.items():
    setattr(Recorded, f"__{_name}__", _comparison(_name, _apply))


class Conditions:
    """The conditions that captures of a kernel met."""

    def __init__(self) -> None:
        self._met: dict[Formula, None] = {}

    def __len__(self) -> int:
        return len(self._met)

    def recording(self, algorithm: ModuleAlgorithm) -> ModuleAlgorithm:
        """`algorithm`, whose captures add to the conditions; it has an identity of its own."""
        kernel, kernel_args, met = algorithm.kernel, algorithm.kernel_args, self._met

        @wraps(kernel_args)
        def arguments(world_size: int, n_elem: int, **keywords: object) -> tuple[object, ...]:
            return kernel_args(Recorded(world_size, ("w",), met), Recorded(n_elem, ("n",), met), **keywords)

        @wraps(kernel)
        def recorded(*given: Any, tl: Any) -> None:
            at = len(given) - len(SIP_ARGUMENTS)
            rank = Recorded(int(given[at]), ("rank",), met)
            kernel(*given[:at], rank, *given[at + 1 :], tl=tl)

        return replace(
            algorithm, kernel=recorded, kernel_args=arguments, digest=f"{algorithm.digest} recorded {len(met)}"
        )

    def sides(self, ranks: Sequence[int], counts: Sequence[int]) -> NDArray[np.int64]:
        """The side of every condition, by number of ranks, count and condition: 0 where it holds on no rank, 2 where it
        holds on all, 1 between; of a division, whether its result is 0 on no, some or all ranks.

        Five ranks stand for all: the first two, the middle and the last two.
        """
        of = np.asarray(ranks, np.int64)[:, None, None]
        rank = np.stack([of * 0, of * 0 + 1, of // 2, of - 2, of - 1], axis=-1)[:, 0].clip(0, of - 1)
        shape = len(ranks), len(counts)
        values = {("w",): of, ("n",): np.asarray(counts, np.int64)[None, :, None], ("rank",): rank}
        columns = []
        with np.errstate(all="ignore"):
            for condition in self._met:
                truth = _value(condition, values) != 0
                side = truth.all(axis=2).astype(np.int64) + truth.any(axis=2)
                columns.append(np.broadcast_to(side, shape))
        return np.stack(columns, axis=2) if columns else np.zeros((*shape, 0), np.int64)

    def numbers(self) -> list[int]:
        """The numbers that stand in conditions on the count, in order."""
        found: set[int] = set()
        of_count: dict[int, bool] = {}
        seen: set[int] = set()
        for condition in self._met:
            if _depends(condition, ("n",), of_count):
                _add_constants(condition, found, seen)
        return sorted(found)


def _value(formula: Formula, values: dict[Formula, NDArray[np.int64]]) -> NDArray[np.int64]:
    known = values.get(formula)
    if known is None:
        if formula[0] == "=":
            known = np.full((1, 1, 1), max(min(formula[1], 2**62), -(2**62)), np.int64)
        else:
            left, right = (_value(part, values) for part in formula[1:])
            apply = _ARITHMETIC.get(formula[0]) or _COMPARISONS[formula[0]]
            if formula[0] in ("lshift", "rshift"):
                right = right.clip(0, 62)
            known = np.asarray(apply(left, right), np.int64)
        values[formula] = known
    return known


# Formulas share their parts, and a part may stand in one formula a million times: each is looked at once, by its
# identity.


def _depends(formula: Formula, name: Formula, known: dict[int, bool]) -> bool:
    found = known.get(id(formula))
    if found is None:
        parts = (part for part in formula[1:] if isinstance(part, tuple))
        found = formula == name if len(formula) == 1 else any(_depends(part, name, known) for part in parts)
        known[id(formula)] = found
    return found


def _add_constants(formula: Formula, found: set[int], seen: set[int]) -> None:
    if id(formula) in seen:
        return
    seen.add(id(formula))
    if formula[0] == "=":
        found.add(abs(formula[1]))
        return
    for part in formula[1:]:
        _add_constants(part, found, seen)


def turns(sides: NDArray[np.int64]) -> list[int]:
    """The rows before and at which a condition changes its side for the first or the second time, those of the first
    condition first."""
    found: dict[int, None] = {}
    for column in sides.T:
        for change in (np.flatnonzero(column[1:] != column[:-1]) + 1)[:2].tolist():
            found |= {change - 1: None, change: None}
    return list(found)
