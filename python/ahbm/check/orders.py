"""In which order a reduction adds its contributions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ahbm.check.case import Case
from ahbm.check.masks import Stretch, check_stretches, probed
from ahbm.errors import UnsupportedError


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
        return f"{self.order}  ranks {_described(self.ranks)} elements {_described(self.elements)}"


def orders(case: Case) -> list[Order]:
    """The elements of the results of a sum by the order of their additions.

    Raises UnsupportedError (AHBM-U140) for a dtype that cannot count the contributions, BudgetError (AHBM-B123) for
    orders that change from element to element of large arrays, DataError (AHBM-V320) for results that are no sums of
    every contribution once; and as `ahbm.run`.
    """
    request = case.request
    if request.parties * request.element.epsilon > 1:
        raise UnsupportedError(
            "AHBM-U140",
            f"{request.element.name} cannot count {request.parties} contributions",
            hint="use a dtype with more digits; the order is the same",
        )
    # Sums, for their order is what is looked for: avg divides afterwards.
    summed = replace(case, request=replace(request, op="sum")) if request.op == "avg" else case
    stretches = read(summed)
    return grouped(probed(summed) if stretches is None else stretches)


def read(case: Case) -> list[Stretch] | None:
    """The orders of a sum, read off the operations of its program; None where they do not say.

    They say where agents share no memory and do no more than move and add elements, and then as the results do
    (`ahbm.check.masks`). Raises BudgetError (AHBM-B123).
    """
    request, compiled = case.request, case.compiled().moving
    if compiled.program is None:
        return None
    found = compiled.program.orders(
        dtype=request.element.name,
        operands=list(case.operands(compiled)),
        results=list(case.results(compiled)),
        parties=request.parties,
    )
    if found is None:
        return None
    texts, stretches = found
    check_stretches(len(stretches))
    return sorted((party, first, end, texts[order]) for party, first, end, order in stretches)


def grouped(stretches: Iterable[Stretch]) -> list[Order]:
    """Stretches of elements, sorted, by their order and the ranks that add them up in it."""
    found: dict[int, dict[str, list[tuple[int, int]]]] = {}
    for party, first, end, tree in stretches:
        _extend(found.setdefault(party, {}).setdefault(tree, []), first, end)
    alike: dict[tuple[str, tuple[tuple[int, int], ...]], list[tuple[int, int]]] = {}
    for party in sorted(found):
        for tree, ranges in found[party].items():
            _extend(alike.setdefault((tree, tuple(ranges)), []), party, party + 1)
    listed = [Order(tree, ranks, list(elements)) for (tree, elements), ranks in alike.items()]
    return sorted(listed, key=lambda order: (order.elements, order.ranks))


def _extend(ranges: list[tuple[int, int]], first: int, end: int) -> None:
    """Adds a range behind those of `ranges`, to the last one where they touch."""
    if ranges and ranges[-1][1] == first:
        first = ranges.pop()[0]
    ranges.append((first, end))


def _described(ranges: Sequence[tuple[int, int]]) -> str:
    shown = ", ".join(f"[{a}, {b})" for a, b in ranges[:4])
    return shown + (f" and {len(ranges) - 4} more ranges" if len(ranges) > 4 else "")
