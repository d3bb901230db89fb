"""The order in which a reduction adds its contributions, read off its results alone.

The masks of FPRev (Xie et al., "FPRev: revealing the order of floating-point summation", arXiv 2411.00442): a huge
number from rank i and its negative from rank j swallow every 1 that is added before the two meet, so the result counts
the ranks outside the smallest subtree that holds both. Elements do not touch each other, so one run asks every element
about a pair of its own, and n contributions in one order take about n runs per level of their tree that branches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ahbm.check.case import Case
from ahbm.errors import BudgetError, DataError

Ints = NDArray[np.int64]

MOST_STRETCHES = 1 << 18
"""Stretches of elements of equal order, over all ranks, that are told apart."""

Stretch = tuple[int, int, int, str]
"""A party, the first of some of its elements, their end, and the order in which they are added up."""


def check_stretches(count: int) -> None:
    """Raises BudgetError (AHBM-B123) for more than `MOST_STRETCHES`."""
    if count > MOST_STRETCHES:
        raise BudgetError(
            "AHBM-B123",
            f"orders of addition change {count} times over the arrays, {MOST_STRETCHES} are the most",
            hint="a smaller size",
        )


def probed(case: Case) -> Iterator[Stretch]:
    """The orders of a sum, party by party.

    Raises BudgetError (AHBM-B123) for orders that change from element to element of large arrays, DataError
    (AHBM-V320) for results that are no sums of every contribution once; and as `ahbm.run`.
    """
    request, probe = case.request, _Probe(case)
    # A place is an element of the result of a party: party * size + element. Stretches of places begin at `starts`.
    edges = [party * request.size + at for party, part in probe.parts.items() for at in (part.start, part.stop)]
    starts = np.unique(np.asarray([0, *edges, *range(0, request.parties * request.size, request.size)], np.int64))
    starts = starts[starts < request.parties * request.size]
    wanted = np.isin(starts, edges[::2])
    whole = _Sum(list(range(request.parties)), np.flatnonzero(wanted))
    open_ = [whole] if request.parties > 1 else []
    while open_:
        answers = probe.ask(open_, starts)
        changes = [starts, *(run_starts for run_starts, _ in answers)]
        finer = np.unique(np.concatenate(changes))
        check_stretches(len(finer))
        coarse = np.searchsorted(starts, finer, "right") - 1
        wanted, starts = wanted[coarse], finer
        open_ = [part for one in open_ for part in one.split(answers, coarse, starts)]
    ends = np.append(starts[1:], request.parties * request.size)
    for first, end in zip(starts[wanted].tolist(), ends[wanted].tolist(), strict=True):
        party, element = divmod(first, request.size)
        yield party, element, element + end - first, whole.tree(first).removeprefix("(").removesuffix(")")


Answer = tuple[Ints, Ints]
"""Of one run, where stretches of equal subtree sizes begin, and these sizes."""


@dataclass
class _Sum:
    """The sum over some contributions at some places, whose order is looked for."""

    ranks: list[int]
    stretches: Ints
    """Indices of its stretches."""
    run: int = 0
    """The first of the runs that tell who meets `ranks[0]` at which level: one for each other rank."""
    _starts: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    _which: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    _patterns: list[list[_Sum]] = field(default_factory=list)
    """The ranks that are added to `ranks[0]`, first to last; the stretch from `_starts[i]` has number `_which[i]`."""

    def split(self, answers: Sequence[Answer], coarse: Ints, starts: Ints) -> list[_Sum]:
        """Takes the answers in; returns the sums inside this one whose order is not known yet.

        coarse: per stretch, which stretch it was part of when the sum was asked about.
        """
        inside = np.zeros(int(coarse[-1]) + 1, bool)
        inside[self.stretches] = True
        stretches = np.flatnonzero(inside[coarse])
        self._starts = starts[stretches]
        levels = np.stack([_at(answer, self._starts) for answer in answers[self.run : self.run + len(self.ranks) - 1]])
        patterns, which = np.unique(levels, axis=1, return_inverse=True)
        self._which = which.reshape(-1)
        others = np.array(self.ranks[1:])
        for index, pattern in enumerate(patterns.T):
            here = stretches[self._which == index]
            joined = [others[pattern == level].tolist() for level in np.unique(pattern)]
            self._patterns.append([_Sum(ranks, here) for ranks in joined])
        return [part for added in self._patterns for part in added if len(part.ranks) > 1]

    def tree(self, place: int) -> str:
        """The order at a place, bracketed."""
        text = str(self.ranks[0])
        if len(self.ranks) > 1:
            for added in self._patterns[self._which[np.searchsorted(self._starts, place, "right") - 1]]:
                text = f"({text}+{added.tree(place)})"
        return text


class _Probe:
    """Asks, per element, how many contributions meet before or when those of two parties do."""

    def __init__(self, case: Case) -> None:
        request = case.request
        self._case = case
        self.parts = case.parts()
        # The mask swallows all units together, and sums of units are exact.
        mask, self._unit = (2.0**15, 2.0**-10) if request.element.name == "f16" else (2.0**100, 1.0)
        self._given = request.element.encode(np.array([self._unit, mask, -mask]))

    def ask(self, sums: Sequence[_Sum], starts: Ints) -> list[Answer]:
        """Order of meeting each sum's first rank: runs for its other ranks, beside those of sums at other elements."""
        request, size = self._case.request, self._case.request.size
        ends = np.append(starts[1:], request.parties * size)
        taken = np.zeros(size, np.int64)
        plans: list[tuple[_Sum, Ints]] = []
        for one in sums:
            covered = np.zeros(size + 1, np.int64)
            np.add.at(covered, starts[one.stretches] % size, 1)
            np.add.at(covered, (ends[one.stretches] - 1) % size + 1, -1)
            elements = np.flatnonzero(np.cumsum(covered[:-1]))
            one.run = int(taken[elements].max())
            taken[elements] = one.run + len(one.ranks) - 1
            plans.append((one, elements))
        answers = []
        for run in range(int(taken.max())):
            first, other = np.full(size, -1), np.full(size, -1)
            for one, elements in plans:
                if 0 <= run - one.run < len(one.ranks) - 1:
                    first[elements], other[elements] = one.ranks[0], one.ranks[1 + run - one.run]
            answers.append(self._run(first, other))
        return answers

    def _run(self, first: Ints, other: Ints) -> Answer:
        """Size of the subtree that holds an element's `first` and `other`; 0 where `first` is -1: nothing is asked."""
        request = self._case.request
        unit, mask, minus = self._given
        given = []
        for party in range(request.parties):
            values = np.full(request.size, unit)
            values[first == party], values[other == party] = mask, minus
            given.append(values)
        results = self._case.execute(given)[1]
        changes, sizes = [], []
        for party, result in enumerate(results):
            part = self.parts.get(party, slice(0, 0))
            outside = request.element.decode(result[part]) / self._unit
            counted = np.clip(request.parties - np.rint(np.nan_to_num(outside)), 0, request.parties + 1).astype(
                np.int64
            )
            asked = first[part] >= 0
            odd = part.start + np.flatnonzero(asked & ((counted < 2) | (counted > request.parties)))
            if odd.size:
                raise DataError(
                    "AHBM-V320",
                    f"{odd.size} elements of rank {party} are no sums of every contribution once, "
                    f"ranks {first[odd[0]]} and {other[odd[0]]} singled out",
                    hint="`ahbm run` with data says whether the result is right",
                )
            row = np.zeros(request.size, np.int64)
            row[part] = np.where(asked, counted, 0)
            begin = np.flatnonzero(np.diff(row, prepend=-1))
            changes.append(party * request.size + begin)
            sizes.append(row[begin])
        return np.concatenate(changes), np.concatenate(sizes)


def _at(answer: Answer, places: Ints) -> Ints:
    starts, values = answer
    return values[np.searchsorted(starts, places, "right") - 1]
