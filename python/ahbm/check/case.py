"""Is the result right, and if not: whose contributions are missing or doubled, and where?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ahbm.base.request import Request
from ahbm.base.sizes import Resized
from ahbm.base.words import IDLE
from ahbm.check.hints import derived
from ahbm.check.reference import Reference, inputs, takes_turns
from ahbm.choice.policy import Policy
from ahbm.config.topology import OVERRULED
from ahbm.core.choice import ARGUMENT, SELECTOR, Choice
from ahbm.core.compiled import Compiled
from ahbm.core.emulator import Emulator
from ahbm.core.spec import Spec
from ahbm.errors import DataError, Site
from ahbm.source.algorithm import Algorithm

SHOWN = 8
"""Places of a wrong result that an error lists."""
ROUNDS = 4
"""Most data passes with wide numbers."""
DIFF_PARTIES = 512
"""Contributions up to which a wrong result is explained: each costs one more data pass."""


Piece = tuple[int, int, int, int, int]
"""A part of a party's array: the party, the buffer, the first byte there, the bytes, the first byte in the array."""


@dataclass(frozen=True)
class Case:
    """A request on an emulator: the same program however often it runs, whatever the data."""

    emulator: Emulator
    request: Request
    algorithm: str | Algorithm | None = None
    """None: the one that is configured."""
    selected: Choice | None = None
    """The choice of a selector, by which `algorithm` is named."""
    notes: tuple[str, ...] = ()
    """What the reader of a result should know of how it was prepared."""
    resized: Resized | None = None
    """The size that was asked for, where it cannot be divided."""

    @cached_property
    def chosen(self) -> Choice:
        """The algorithm that performs it. Raises as `Policy.choose`."""
        if self.selected is not None:
            return self.selected
        if self.algorithm is not None:
            return Choice(ARGUMENT, self.algorithm)
        return Policy.of(self.emulator).choose(self.request)

    @cached_property
    def by(self) -> str | Algorithm:
        """What `Emulator.compile` takes for it."""
        if self.algorithm is not None:
            return self.algorithm
        return Policy.of(self.emulator).algorithm(self.request, self.chosen)

    @property
    def choice(self) -> Choice | None:
        """The choice of the selector that chose the algorithm; None where none did."""
        return self.chosen if self.chosen.rule == SELECTOR else None

    @property
    def overruled(self) -> list[str]:
        """The notes that ccl.yaml has its own number of ranks, where it has, and on choices that change nothing."""
        return [note for note in self.notes if note.endswith((OVERRULED, IDLE))]

    @staticmethod
    def of(spec: Spec) -> Case:
        """The case that `spec` runs. Raises ConfigError (AHBM-C163) when the algorithm is not what it was."""
        return Case(spec.emulator(), spec.request, spec.given or spec.algorithm)

    def spec(self) -> Spec:
        """The case as a value."""
        return Spec.of(self.emulator, self.request, self.compiled().by)

    def execute(self, inputs: Sequence[NDArray[Any]]) -> tuple[Compiled, list[NDArray[Any]]]:
        """Performs the request on copies of the parties' arrays; returns what it ran and the arrays afterwards."""
        request = self.request
        if request.placement is None:
            buffers = [array.copy() for array in inputs]
        else:
            tiles = request.tiles
            buffers = [np.stack(inputs[rank * tiles : (rank + 1) * tiles]) for rank in range(request.world_size)]
        compiled = self.emulator.perform(request, buffers, self.by)
        parties = buffers if request.placement is None else [tile for buffer in buffers for tile in buffer]
        return compiled, parties

    def compiled(self) -> Compiled:
        """The program of the request."""
        return self.emulator.compile(self.request, self.by)

    def operands(self, compiled: Compiled) -> Iterator[Piece]:
        """The operands in memory, rank by rank."""
        return self._cut(compiled.operands, self.request.held)

    def results(self, compiled: Compiled) -> Iterator[Piece]:
        """The results in memory, rank by rank."""

        def part(party: int) -> list[tuple[int, int]]:
            found = self.request.part(party)
            return [(found.start, found.stop)]

        return self._cut(compiled.results, part)

    def parts(self) -> dict[int, slice]:
        """Per party that ends with a result, where in its array it is."""
        found = {party: self.request.part(party) for party in range(self.request.parties)}
        return {party: part for party, part in found.items() if part.stop > part.start}

    def _cut(
        self, pieces: Sequence[NDArray[np.int64]], wanted: Callable[[int], Iterable[tuple[int, int]]]
    ) -> Iterator[Piece]:
        """Pieces of the ranks' arrays, cut to the ranges of elements that are wanted of each party."""
        request = self.request
        item, tiles = request.element.storage.itemsize, request.tiles
        for rank in range(request.world_size):
            # A rank's array holds those of its parties, one after the other.
            ranges = [
                (party, (party % tiles) * request.size * item, low * item, high * item)
                for party in range(rank * tiles, (rank + 1) * tiles)
                for low, high in wanted(party)
            ]
            for buffer, first, to, length in pieces[rank].tolist():
                for party, origin, low, high in ranges:
                    start, end = max(first, origin + low), min(first + length, origin + high)
                    if start < end:
                        yield party, buffer, to + start - first, end - start, start - origin

    def name(self, party: int) -> str:
        """A party in words."""
        ranks, tiles = self.request.ranks, self.request.tiles
        if self.request.placement is None:
            return f"rank {ranks[party]}"
        return f"rank {ranks[party // tiles]} cube {party % tiles}"


Traced = Callable[[Sequence[NDArray[np.intp]]], tuple[list[Site], str | None]]
"""From the wrong indices in every party's part of the result to the lines that they go back to, and the reason where
one of them shows it."""


def narrowed(case: Case, seed: int, tracing: Callable[[str, int], Traced] | None = None) -> DataError | None:
    """The error (AHBM-V301) where the result is wrong for numbers that need the whole width of their type.

    tracing: gives for the mode and the seed of the inputs what `explain_wrong` asks for.

    Takes one data pass, and up to `ROUNDS` where parties take turns and pieces of the arrays have fewer elements than
    there are parties.
    """
    request = case.request
    piece = max(request.size // request.parties, 1)
    rounds = min(-(-request.parties // piece), ROUNDS) if takes_turns(request) else 1
    for number in range(rounds):
        given = inputs(request, "wide", seed + number)
        _, results = case.execute(given)
        reference = Reference(request, given, exact=True)
        if any(len(reference.wrong(party, results[party])) for party in range(request.parties)):
            return explain_wrong(case, given, results, reference, tracing and tracing("wide", seed + number))
    return None


def explain_wrong(
    case: Case,
    inputs: Sequence[NDArray[Any]],
    results: Sequence[NDArray[Any]],
    reference: Reference,
    traced: Traced | None = None,
) -> DataError:
    """The error (AHBM-V301) for wrong `results`: which contributions are missing, doubled or strangers, and where.

    Found by replaying the same program once per contribution with inputs that single it out. traced: finds the lines,
    with which the error's places begin.
    """
    request = case.request
    wrong = [reference.wrong(party, results[party]) for party in range(request.parties)]
    suspects = [party for party in range(request.parties) if len(wrong[party])]
    total = sum(len(indices) for indices in wrong)
    explained = request.parties <= DIFF_PARTIES
    sites = _differing(case, suspects) if explained else []
    first = suspects[0]
    follow = followed(case, first, wrong)
    lines, reason = ([], None) if traced is None else traced(wrong)
    cause = reason or derived(request, inputs, reference, first, results[first], case.name(first))
    hint = f"{cause or 'which send or combine leaves it out or repeats it?'} {follow}"
    more = f" and {len(sites) - SHOWN} more places" if len(sites) > SHOWN else ""
    if not sites:
        index = int(wrong[first][0])
        part = case.request.part(first)
        got = request.element.decode(results[first][part])[index]
        want = reference.expected(first)[index]
        why = "every contribution is there once, so their values, order or rounding differ"
        hint = f"{cause or f'is a value changed on its way, or an operator another than {request.op}?'} {follow}"
        if not explained:
            why = f"with {request.parties} contributions (more than {DIFF_PARTIES}) it is not said whose are missing"
        sites = [Site(f"{case.name(first)}, element {part.start + index}: got {got}, expected {want}; {why}")]
    return DataError(
        "AHBM-V301",
        f"wrong result: {total} elements on {len(suspects)} of {request.parties} "
        f"{'ranks' if case.request.placement is None else 'tiles'}; {sites[0].label}{more}",
        sites=[*lines, *sites[:SHOWN]],
        hint=hint,
    )


def followed(case: Case, party: int, wrong: Sequence[NDArray[Any]]) -> str:
    """The option of `ahbm inspect` that follows the first wrong element of a party."""
    request = case.request
    index = request.part(party).start + int(wrong[party][0])
    cube = f".{party % request.tiles}" if request.placement is not None else ""
    return f"`ahbm inspect` with --element {party // request.tiles}{cube}:{index} shows where it was lost"


def _differing(case: Case, suspects: Sequence[int]) -> list[Site]:
    """Runs of elements of the suspects in which the set of contributions is not what it must be."""
    request = case.request
    background, mark = _probe(request)
    found: dict[int, list[tuple[int, NDArray[np.int64], NDArray[np.int64]]]] = {party: [] for party in suspects}
    # A term that a kernel adds or drops in every run is no contribution: count from a run without contributions.
    plain = [request.element.encode(np.full(request.size, background)) for _ in range(request.parties)]
    nobody = Reference(request, plain, exact=True)
    _, empty = case.execute(plain)
    for contributor in range(request.parties):
        marked = request.element.encode(np.full(request.size, mark))
        probe = [marked if party == contributor else plain[party] for party in range(request.parties)]
        ideal = Reference(request, probe, exact=True)
        _, results = case.execute(probe)
        for party in suspects:
            part = request.part(party)
            want = _times(request, ideal.expected(party)) - _times(request, nobody.expected(party))
            got, zero = (request.element.decode(arrays[party][part]) for arrays in (results, empty))
            times = _times(request, got) - _times(request, zero)
            if not np.array_equal(want, times):
                found[party].append((contributor, want, times))
    faults = []
    for party, differences in found.items():
        if not differences:
            continue
        start = request.part(party).start
        table = np.stack([column for _, want, got in differences for column in (want, got)])
        edges = [0, *(np.flatnonzero((table[:, 1:] != table[:, :-1]).any(axis=0)) + 1).tolist(), table.shape[1]]
        for low, high in pairwise(edges):
            how_often = ((who, int(want[low]), int(got[low])) for who, want, got in differences)
            if wrong := tuple(one for one in how_often if one[1] != one[2]):
                faults.append(_Fault(party, start + low, start + high, wrong))
    return _merged(case, faults)


class _Fault(NamedTuple):
    """Neighbouring elements of a party that are wrong in the same way."""

    party: int
    start: int
    end: int
    times: tuple[tuple[int, int, int], ...]
    """Contributor, how often it should take part, and how often it does."""

    def described(self, case: Case) -> str:
        parties = case.request.parties
        missing = [who for who, _, got in self.times if got == 0]
        arrived = [who for who in range(parties) if who not in missing]
        texts = [f"{case.name(who)} {_often(want, got)}" for who, want, got in self.times if got]
        if missing and len(missing) == len(self.times) and len(arrived) <= 2 and len(arrived) < len(missing):
            names = " and ".join(map(case.name, arrived))
            texts = [f"only {names} arrived" if arrived else "nothing arrived"]
        elif missing:
            texts.insert(0, f"{', '.join(map(case.name, missing))} missing")
        return f"{case.name(self.party)}, elements [{self.start},{self.end}): {', '.join(texts)}"

    def pattern(self, parties: int) -> tuple[object, ...]:
        """Equal for faults that are the same when parties are counted from the one that has them."""
        relative = sorted(((who - self.party) % parties, want, got) for who, want, got in self.times)
        return (self.end - self.start, tuple(relative))


def _merged(case: Case, faults: Sequence[_Fault]) -> list[Site]:
    alike: dict[tuple[object, ...], list[_Fault]] = {}
    for fault in faults:
        alike.setdefault(fault.pattern(case.request.parties), []).append(fault)
    if len(alike) >= len({fault.times for fault in faults}):
        alike = {}
        for fault in faults:
            alike.setdefault((fault.start, fault.end, fault.times), []).append(fault)
    sites = []
    for first, *rest in alike.values():
        others = {fault.party for fault in rest} - {first.party}
        kind = "rank" if case.request.placement is None else "tile"
        more = f"; and the same on {len(others)} more {kind}{'s' if len(others) > 1 else ''}" if others else ""
        sites.append(Site(first.described(case) + more))
    return sites


def _often(want: int, got: int) -> str:
    return "by mistake" if want == 0 else "twice" if got == 2 else f"{got} times"


def _probe(request: Request) -> tuple[float, float]:
    """The value of all contributions but one, and of that one, such that results show how often it took part."""
    if not request.reduces:
        return 0, 1
    inverted, counted = (1, 0), (0, 1)
    probes = {"avg": (0, request.parties), "prod": (1, 2), "min": inverted, "band": inverted}
    return probes.get(request.op, counted)


def _times(request: Request, values: NDArray[Any]) -> NDArray[np.int64]:
    """Number of times that the singled-out contribution took part, per element of a result."""
    numbers = np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    if request.reduces and request.op == "prod":
        numbers = np.log2(np.maximum(np.abs(numbers), 1))
    elif request.reduces and request.op in ("min", "band"):
        numbers = 1 - numbers
    return np.rint(np.clip(numbers, -(2.0**62), 2.0**62)).astype(np.int64)
