"""Is the result right, and if not: whose contributions are missing or doubled, and where?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ahbm.collectives import COLLECTIVES
from ahbm.emulator import Emulator, Invocation, Outcome
from ahbm.errors import DataError, Site
from ahbm.placement import DPPolicy
from ahbm.reference import Reference, Task

SHOWN = 8
"""Places of a wrong result that an error lists."""
DIFF_PARTIES = 512
"""Contributions up to which a wrong result is explained: each costs one more data pass."""


@dataclass(frozen=True)
class Case:
    """A task on an emulator: the same program however often it runs, whatever the data."""

    emulator: Emulator
    task: Task
    ranks: int
    algorithm: str | None = None
    placement: DPPolicy | None = None

    def execute(self, inputs: Sequence[NDArray[Any]], data: bool = True) -> tuple[Outcome, list[NDArray[Any]]]:
        """Runs the collective on copies of the parties' arrays; returns what it took and the arrays afterwards."""
        tiles = self.task.parties // self.ranks
        if data and self.placement is None:
            buffers = [array.copy() for array in inputs]
        elif data:
            buffers = [np.stack(inputs[rank * tiles : (rank + 1) * tiles]) for rank in range(self.ranks)]
        else:
            shape = self.task.size if self.placement is None else (tiles, self.task.size)
            # Shapes without memory.
            buffers = [np.broadcast_to(np.empty((), self.task.element.storage), shape)] * self.ranks
        task, kind = self.task, COLLECTIVES[self.task.collective]
        what = Invocation(
            task.collective,
            op=task.op,
            root=task.root if kind.rooted else 0,
            src=task.src if kind.paired else 0,
            dst=task.dst if kind.paired else 1,
            dtype=task.element.name,
            algorithm=self.algorithm,
            placement=self.placement,
        )
        outcome = self.emulator.collective(what, buffers, data=data)
        parties = buffers if self.placement is None else [tile for buffer in buffers for tile in buffer]
        return outcome, parties

    def timed(self) -> Outcome:
        """Runs the collective without data."""
        return self.execute((), data=False)[0]

    def name(self, party: int) -> str:
        """A party in words."""
        if self.placement is None:
            return f"rank {party}"
        rank, cube = divmod(party, self.task.parties // self.ranks)
        return f"rank {rank} cube {cube}"


def explain_wrong(
    case: Case, inputs: Sequence[NDArray[Any]], results: Sequence[NDArray[Any]], reference: Reference
) -> DataError:
    """The error (AHBM-V301) for wrong `results`: which contributions are missing, doubled or strangers, and where.

    Found by replaying the same program once per contribution with inputs that single it out.
    """
    task = case.task
    wrong = [reference.wrong(party, results[party]) for party in range(task.parties)]
    suspects = [party for party in range(task.parties) if len(wrong[party])]
    total = sum(len(indices) for indices in wrong)
    explained = task.parties <= DIFF_PARTIES
    sites = _differing(case, suspects) if explained else []
    more = f" and {len(sites) - SHOWN} more places" if len(sites) > SHOWN else ""
    if not sites:
        first, index = suspects[0], int(wrong[suspects[0]][0])
        part = reference.part(first)
        got = task.element.decode(results[first][part])[index]
        want = reference.expected(first)[index]
        why = "every contribution is there once, so their values, order or rounding differ"
        if not explained:
            why = f"with {task.parties} contributions (more than {DIFF_PARTIES}) it is not said whose are missing"
        sites = [Site(f"{case.name(first)}, element {part.start + index}: got {got}, expected {want}; {why}")]
    return DataError(
        "AHBM-V301",
        f"wrong result: {total} elements on {len(suspects)} of {task.parties} "
        f"{'ranks' if case.placement is None else 'tiles'}; {sites[0].label}{more}",
        sites=sites[:SHOWN],
        hint="follow the named contribution through the kernel: which send or combine leaves it out or repeats it?",
    )


def _differing(case: Case, suspects: Sequence[int]) -> list[Site]:
    """Runs of elements of the suspects in which the set of contributions is not what it must be."""
    task = case.task
    background, mark = _probe(task)
    found: dict[int, list[tuple[int, NDArray[np.int64], NDArray[np.int64]]]] = {party: [] for party in suspects}
    # What a kernel adds or drops whatever the contributions are is no contribution: count from a run without any.
    plain = [task.element.encode(np.full(task.size, background)) for _ in range(task.parties)]
    nobody = Reference(task, plain, exact=True)
    _, empty = case.execute(plain)
    for contributor in range(task.parties):
        marked = task.element.encode(np.full(task.size, mark))
        probe = [marked if party == contributor else plain[party] for party in range(task.parties)]
        ideal = Reference(task, probe, exact=True)
        _, results = case.execute(probe)
        for party in suspects:
            part = ideal.part(party)
            want = _times(task, ideal.expected(party)) - _times(task, nobody.expected(party))
            got, zero = (task.element.decode(arrays[party][part]) for arrays in (results, empty))
            times = _times(task, got) - _times(task, zero)
            if not np.array_equal(want, times):
                found[party].append((contributor, want, times))
    sites = []
    for party, differences in found.items():
        if not differences:
            continue
        start = nobody.part(party).start
        table = np.stack([column for _, want, got in differences for column in (want, got)])
        edges = [0, *(np.flatnonzero((table[:, 1:] != table[:, :-1]).any(axis=0)) + 1).tolist(), table.shape[1]]
        for low, high in pairwise(edges):
            told = [text for who, want, got in differences if (text := _told(case.name(who), want[low], got[low]))]
            if told:
                sites.append(Site(f"{case.name(party)}, elements [{start + low},{start + high}): {', '.join(told)}"))
    return sites


def _told(who: str, want: int, got: int) -> str:
    if want == got:
        return ""
    if got == 0:
        return f"{who} missing"
    return f"{who} {'by mistake' if want == 0 else 'twice' if got == 2 else f'{got} times'}"


def _probe(task: Task) -> tuple[float, float]:
    """The value of all contributions but one, and of that one, such that results show how often it took part."""
    if not task.reduces:
        return 0, 1
    inverted, counted = (1, 0), (0, 1)
    probes = {"avg": (0, task.parties), "prod": (1, 2), "min": inverted, "band": inverted}
    return probes.get(task.op, counted)


def _times(task: Task, values: NDArray[Any]) -> NDArray[np.int64]:
    """How often the singled-out contribution took part, per element of a result."""
    numbers = np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    if task.reduces and task.op == "prod":
        numbers = np.log2(np.maximum(np.abs(numbers), 1))
    elif task.reduces and task.op in ("min", "band"):
        numbers = 1 - numbers
    return np.rint(numbers).astype(np.int64)
