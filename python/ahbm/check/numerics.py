"""The exactness of a reduction: rounding errors, the order of additions, and bits that depend on rank, run or size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ahbm.base.elements import COMBINE
from ahbm.check.case import Case
from ahbm.check.orders import Order, orders
from ahbm.check.reference import inputs
from ahbm.errors import UnsupportedError

MOST_PARTIES = 256
"""Contributions up to which orders are found: about a data pass each."""


@dataclass(frozen=True)
class Numerics:
    """The result of `numerics`."""

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
    notes: tuple[str, ...] = ()
    """What the reader should know of the number of ranks."""

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON-serialisable data."""
        return asdict(self)

    def __str__(self) -> str:
        def described(agree: bool | None) -> str:
            return "-" if agree is None else "identical" if agree else "different"

        return "\n".join(
            [
                f"{self.collective} {self.op} by {self.algorithm}: {self.parties} x {self.bytes} B {self.dtype}",
                f"  error       max {self.max_ulp:.3f} ulp, mean {self.mean_ulp:.4f} ulp over {self.samples} elements",
                f"  bits        ranks {described(self.ranks_agree)}, runs {described(self.runs_agree)}, "
                f"sizes {described(self.sizes_agree)}",
                *(f"  order       {order}" for order in self.orders[:8]),
                *([f"  order       and {len(self.orders) - 8} more"] if len(self.orders) > 8 else []),
                *(f"  note        {note}" for note in self.notes),
            ]
        )


def numerics(case: Case, seeds: int = 4, tell: Callable[[str], object] = lambda text: None) -> Numerics:
    """Measures the rounding errors of a reduction on uniformly distributed numbers, and finds its orders of addition.

    seeds: how many sets of random numbers. tell: told what runs next, for people.

    Raises UnsupportedError (AHBM-U140) for a collective that does not reduce, no elements, an integer dtype, or more
    than 256 contributions; DataError (AHBM-V320) for results that are no sums of every contribution; and as `ahbm.run`.
    """
    request = case.request
    empty = not request.count
    if empty or not request.reduces or not request.element.is_float or request.parties > MOST_PARTIES:
        raise UnsupportedError(
            "AHBM-U140",
            f"no rounding to measure: {request.collective} of {request.parties} x {request.size} {request.dtype}",
            hint=f"all_reduce, reduce_scatter or reduce of up to {MOST_PARTIES} x a floating-point type",
        )
    worst, total, samples = 0.0, 0.0, 0
    runs_agree = True
    for seed in range(seeds):
        tell(f"random numbers {seed + 1} of {seeds}")
        given = inputs(request, "random", seed)
        compiled, results = case.execute(given)
        exact = _exact(case, given)
        # Ranks that end with the same bits of the same elements have the same errors.
        known: tuple[slice, NDArray[Any], NDArray[np.float64]] | None = None
        for party, part in case.parts().items():
            stored = results[party][part]
            if known is None or known[0] != part or not np.array_equal(known[1], stored):
                known = part, stored, _ulps(case, stored, exact[part])
            errors = known[2]
            worst, total, samples = max(worst, float(errors.max())), total + float(errors.sum()), samples + errors.size
        if seed == 0:
            again = case.execute(given)[1]
            runs_agree = all(np.array_equal(a, b) for a, b in zip(results, again, strict=True))
    return Numerics(
        request.collective,
        compiled.algorithm,
        request.parties,
        request.size * request.element.storage.itemsize,
        request.element.name,
        request.op,
        worst,
        total / max(samples, 1),
        samples,
        _ranks_agree(case, given, results),
        runs_agree,
        _sizes_agree(case, given, results),
        orders(case) if request.op in ("sum", "avg") else [],
        tuple(case.overruled),
    )


def _exact(case: Case, given: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """The exact result, in extended precision."""
    request = case.request
    combine = COMBINE[request.op]
    exact = request.element.decode(given[0]).astype(np.longdouble)
    for values in given[1:]:
        exact = combine(exact, request.element.decode(values).astype(np.longdouble))
    return exact / request.parties if request.op == "avg" else exact


def _ulps(case: Case, stored: NDArray[Any], exact: NDArray[Any]) -> NDArray[np.float64]:
    """Distance from the exact result in units in the last place."""
    element = case.request.element
    smallest = (
        2.0**-24 if element.name == "f16" else 2.0**-126 * element.epsilon if element.name != "f64" else 2.0**-1074
    )
    exponent = np.frexp(np.abs(exact))[1] - 1
    unit = np.maximum(np.ldexp(np.longdouble(element.epsilon), exponent), np.longdouble(smallest))
    distance = np.abs(element.decode(stored).astype(np.longdouble) - exact)
    return np.asarray(distance / unit, np.float64)


def _ranks_agree(case: Case, given: Sequence[NDArray[Any]], results: Sequence[NDArray[Any]]) -> bool | None:
    if case.request.collective != "all_reduce":
        return None
    return all(np.array_equal(result, results[0]) for result in results)


def _sizes_agree(case: Case, given: Sequence[NDArray[Any]], results: Sequence[NDArray[Any]]) -> bool:
    request = case.request
    double = replace(case, request=replace(request, count=2 * request.count))
    chunks = request.size // request.count

    def longer(values: NDArray[Any]) -> NDArray[Any]:
        rows = values.reshape(chunks, request.count)
        return np.concatenate([rows, rows], axis=1).reshape(-1)

    longer_results = double.execute([longer(values) for values in given])[1]
    for party, part in case.parts().items():
        rows = longer_results[party].reshape(chunks, 2 * request.count)[:, : request.count].reshape(-1)
        if not np.array_equal(rows[part], results[party][part]):
            return False
    return True
