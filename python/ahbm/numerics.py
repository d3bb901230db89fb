"""How exact a reduction is: rounding errors, the order of additions, and whether bits depend on rank, run or size.

The order is read off the results alone, with the masks of FPRev (Xie et al., "FPRev: revealing the order of
floating-point summation", arXiv 2411.00442): a huge number from rank i and its negative from rank j swallow every 1
that is added before the two meet, so the result counts the ranks outside the smallest subtree that holds both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ahbm.errors import DataError, UnsupportedError
from ahbm.reference import inputs, part_of
from ahbm.verify import Case

MOST_PARTIES = 256
"""Contributions up to which orders are found: each pair costs a data pass."""


@dataclass(frozen=True)
class Order:
    """Elements that are added up in one order."""

    order: str
    """Fully bracketed, by rank: "((0+1)+2)+3". A sum's two operands may stand in either order."""
    ranks: list[tuple[int, int]]
    """Ranges [first, end) of the ranks whose results were added up so."""
    elements: list[tuple[int, int]]
    """Ranges [first, end) of the elements of their arrays."""

    def __str__(self) -> str:
        return f"{self.order}  ranks {_told(self.ranks)} elements {_told(self.elements)}"


@dataclass(frozen=True)
class Numerics:
    """What `numerics` found."""

    collective: str
    algorithm: str
    parties: int
    """Contributions."""
    bytes: int
    dtype: str
    op: str
    max_ulp: float
    """Largest distance from the exact result, in units in the last place of `dtype` at the exact result."""
    mean_ulp: float
    samples: int
    """Elements measured, over all seeds and ranks."""
    ranks_agree: bool | None
    """Every rank ends with the same bits; None where every rank has a part of its own."""
    runs_agree: bool
    """A second run gives the same bits."""
    sizes_agree: bool
    """Twice the size gives the same bits in the elements that both have."""
    orders: list[Order]
    """Empty for operators that are no sum."""

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON-serialisable data."""
        return asdict(self)

    def __str__(self) -> str:
        def told(agree: bool | None) -> str:
            return "-" if agree is None else "identical" if agree else "different"

        return "\n".join(
            [
                f"{self.collective} {self.op} by {self.algorithm}: {self.parties} x {self.bytes} B {self.dtype}",
                f"  error       max {self.max_ulp:.3f} ulp, mean {self.mean_ulp:.4f} ulp over {self.samples} elements",
                f"  bits        ranks {told(self.ranks_agree)}, runs {told(self.runs_agree)}, "
                f"sizes {told(self.sizes_agree)}",
                *(f"  order       {order}" for order in self.orders[:8]),
                *([f"  order       and {len(self.orders) - 8} more"] if len(self.orders) > 8 else []),
            ]
        )


def numerics(case: Case, seeds: int = 4) -> Numerics:
    """Measures the rounding errors of a reduction on uniformly distributed numbers, and finds its orders of addition.

    seeds: how many sets of random numbers.

    Raises UnsupportedError (AHBM-U140) for a collective that does not reduce, an integer dtype, or more than 256
    contributions; DataError (AHBM-V320) for results that are no sums of every contribution; and as `ahbm.run`.
    """
    task = case.task
    if not task.reduces or not task.element.is_float or task.parties > MOST_PARTIES:
        raise UnsupportedError(
            "AHBM-U140",
            f"no rounding to measure: {task.collective} of {task.parties} x {task.element.name}",
            hint=f"all_reduce, reduce_scatter or reduce of up to {MOST_PARTIES} x f16, bf16, f32 or f64",
        )
    worst, total, samples = 0.0, 0.0, 0
    runs_agree = True
    for seed in range(seeds):
        given = inputs(task, "random", seed)
        outcome, results = case.execute(given)
        for party, (stored, exact) in _defined(case, given, results).items():
            errors = _ulps(case, stored, exact)
            worst, total, samples = max(worst, float(errors.max())), total + float(errors.sum()), samples + errors.size
            if party == 0 and seed == 0:
                again = case.execute(given)[1]
                runs_agree = all(np.array_equal(a, b) for a, b in zip(results, again, strict=True))
    return Numerics(
        task.collective,
        outcome.algorithm,
        task.parties,
        task.size * task.element.storage.itemsize,
        task.element.name,
        task.op,
        worst,
        total / max(samples, 1),
        samples,
        _ranks_agree(case, given, results),
        runs_agree,
        _sizes_agree(case, given, results),
        _orders(case) if task.op in ("sum", "avg") else [],
    )


def _parts(case: Case) -> dict[int, slice]:
    """Per party that ends with a result, where it is."""
    parts = {party: part_of(case.task, party) for party in range(case.task.parties)}
    return {party: part for party, part in parts.items() if part.stop > part.start}


def _defined(
    case: Case, given: Sequence[NDArray[Any]], results: Sequence[NDArray[Any]]
) -> dict[int, tuple[NDArray[Any], NDArray[Any]]]:
    """Per party, its stored result and the exact one, in extended precision."""
    task = case.task
    numbers = [task.element.decode(values).astype(np.longdouble) for values in given]
    combine = {"sum": np.add, "avg": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}[task.op]
    exact = combine.reduce(numbers)
    if task.op == "avg":
        exact = exact / task.parties
    return {party: (results[party][part], exact[part]) for party, part in _parts(case).items()}


def _ulps(case: Case, stored: NDArray[Any], exact: NDArray[Any]) -> NDArray[np.float64]:
    """Distance from the exact result in units in the last place."""
    element = case.task.element
    smallest = (
        2.0**-24 if element.name == "f16" else 2.0**-126 * element.epsilon if element.name != "f64" else 2.0**-1074
    )
    exponent = np.frexp(np.abs(exact))[1] - 1
    unit = np.maximum(np.ldexp(np.longdouble(element.epsilon), exponent), np.longdouble(smallest))
    distance = np.abs(element.decode(stored).astype(np.longdouble) - exact)
    return np.asarray(distance / unit, np.float64)


def _ranks_agree(case: Case, given: Sequence[NDArray[Any]], results: Sequence[NDArray[Any]]) -> bool | None:
    if case.task.collective != "all_reduce":
        return None
    return all(np.array_equal(result, results[0]) for result in results)


def _sizes_agree(case: Case, given: Sequence[NDArray[Any]], results: Sequence[NDArray[Any]]) -> bool:
    task = case.task
    double = replace(case, task=replace(task, count=2 * task.count))
    chunks = task.size // task.count

    def longer(values: NDArray[Any]) -> NDArray[Any]:
        rows = values.reshape(chunks, task.count)
        return np.concatenate([rows, rows], axis=1).reshape(-1)

    longer_results = double.execute([longer(values) for values in given])[1]
    for party, part in _parts(case).items():
        rows = longer_results[party].reshape(chunks, 2 * task.count)[:, : task.count].reshape(-1)
        if not np.array_equal(rows[part], results[party][part]):
            return False
    return True


def _orders(case: Case) -> list[Order]:
    """The elements of the results by the order of their additions."""
    task = case.task
    trees: dict[str, list[NDArray[np.int64]]] = {}
    everything = np.arange(task.parties * task.size).reshape(task.parties, task.size)
    parts = _parts(case)
    for tree, places in _grown(
        _Subtrees(case),
        list(range(task.parties)),
        np.concatenate([everything[party, part] for party, part in parts.items()]),
    ):
        trees.setdefault(tree.removeprefix("(").removesuffix(")"), []).append(places)
    found: dict[tuple[str, tuple[tuple[int, int], ...]], list[int]] = {}
    for tree, groups in trees.items():
        party, element = np.divmod(np.sort(np.concatenate(groups)), task.size)
        for one in np.unique(party):
            found.setdefault((tree, tuple(_ranges(element[party == one].tolist()))), []).append(int(one))
    orders = [Order(tree, _ranges(ranks), list(elements)) for (tree, elements), ranks in found.items()]
    return sorted(orders, key=lambda order: (order.elements, order.ranks))


class _Subtrees:
    """For two parties, per element of each party's result, how many contributions meet before or when theirs do."""

    def __init__(self, case: Case) -> None:
        element = case.task.element
        # The mask swallows all units together, and sums of units are exact.
        self._mask, self._unit = (2.0**15, 2.0**-10) if element.name == "f16" else (2.0**100, 1.0)
        if case.task.parties * element.epsilon > 1:
            raise UnsupportedError(
                "AHBM-U140",
                f"{element.name} cannot count {case.task.parties} contributions",
                hint="use a dtype with more digits; the order is the same",
            )
        # Sums, for their order is what is looked for: avg divides afterwards.
        self._case = replace(case, task=replace(case.task, op="sum")) if case.task.op == "avg" else case
        self._parts = _parts(case)
        self._known: dict[tuple[int, int], NDArray[np.int64]] = {}

    def __call__(self, i: int, j: int) -> NDArray[np.int64]:
        key = (min(i, j), max(i, j))
        if key not in self._known:
            self._known[key] = self._measure(*key)
        return self._known[key]

    def _measure(self, i: int, j: int) -> NDArray[np.int64]:
        case, task = self._case, self._case.task
        values = {i: self._mask, j: -self._mask}
        given = [task.element.encode(np.full(task.size, values.get(p, self._unit))) for p in range(task.parties)]
        results = case.execute(given)[1]
        outside = np.stack([task.element.decode(result) for result in results]) / self._unit
        sizes = task.parties - np.rint(outside)
        odd = sum(
            np.count_nonzero((sizes[party, part] < 2) | (sizes[party, part] > task.parties))
            for party, part in self._parts.items()
        )
        if odd:
            raise DataError(
                "AHBM-V320",
                f"{odd} elements are no sums of every contribution once, ranks {i} and {j} singled out",
                hint="`ahbm run` with data says whether the result is right",
            )
        # What no collective defines is never looked at, but need not be a number.
        return np.asarray(np.nan_to_num(sizes), np.int64).reshape(-1)


def _grown(size: _Subtrees, ranks: list[int], places: NDArray[np.int64]) -> list[tuple[str, NDArray[np.int64]]]:
    """Bracketed orders of the sum over `ranks`, each with those of `places` that have it."""
    first, others = ranks[0], ranks[1:]
    if not others:
        return [(str(first), places)]
    # Who meets `first` at which level; places with equal levels are treated together.
    levels = np.stack([size(first, other)[places] for other in others])
    patterns, which = np.unique(levels, axis=1, return_inverse=True)
    found = []
    for index in range(patterns.shape[1]):
        pattern = patterns[:, index]
        grown = [(str(first), places[which.reshape(-1) == index])]
        for level in np.unique(pattern):
            joined = [other for other, at in zip(others, pattern, strict=True) if at == level]
            grown = [
                (f"({tree}+{branch})", np.intersect1d(mine, theirs, assume_unique=True))
                for tree, mine in grown
                for branch, theirs in _grown(size, joined, mine)
            ]
        found += grown
    return [(tree, mine) for tree, mine in found if mine.size]


def _ranges(elements: Sequence[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for element in elements:
        if ranges and ranges[-1][1] == element:
            ranges[-1] = (ranges[-1][0], element + 1)
        else:
            ranges.append((element, element + 1))
    return ranges


def _told(ranges: Sequence[tuple[int, int]]) -> str:
    shown = ", ".join(f"[{a}, {b})" for a, b in ranges[:4])
    return shown + (f" and {len(ranges) - 4} more ranges" if len(ranges) > 4 else "")
