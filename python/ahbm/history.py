"""What the ranks of a session did, each in its own order, and when all of it happened.

Operations are performed as they fill up, in whatever order the ranks' threads come by; their times follow from what
every rank computed, entered and waited for. So they are found afterwards, for all ranks together: operations of
different groups that overlap contend for links and engines, and nothing depends on the order of performing.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ahbm._core import Job

if TYPE_CHECKING:
    from ahbm._core import Machine, Program

ADVANCE, ARRIVE, WAIT = range(3)
"""The kinds of a step, its lowest bits; above them stand picoseconds, or the rank's how-manieth call it is about."""


@dataclass(frozen=True)
class Times:
    """When everything happened so far, in simulated ps."""

    clocks: list[int]
    """Per rank."""
    calls: list[list[tuple[int, int, int]]]
    """Per rank and call: when the rank entered it, its start and its end; zeros for those under way."""
    computed: list[list[tuple[int, int]]]
    """Per rank, start and end of every stretch it computed in."""


class History:
    """The steps of `size` ranks, and the operations they met in."""

    def __init__(self, size: int) -> None:
        self._steps = [array("Q") for _ in range(size)]
        self._operations = [array("q") for _ in range(size)]
        """Per rank and call, the operation; -1 while under way."""
        self._first = array("Q")
        """Per operation, a rank and its call: what operations are ordered by, whatever came first."""
        self._after = array("q")
        self._programs: list[tuple[Program, int] | None] = []
        self._known: tuple[int, Times] | None = None

    def advance(self, rank: int, ps: int) -> None:
        """`rank` computes."""
        if ps:
            self._steps[rank].append(ps << 2 | ADVANCE)

    def arrive(self, rank: int) -> int:
        """`rank` enters its next call; returns the call's number."""
        call = len(self._operations[rank])
        self._operations[rank].append(-1)
        self._steps[rank].append(call << 2 | ARRIVE)
        return call

    def wait(self, rank: int, call: int) -> None:
        """`rank` waits for the end of one of its calls."""
        self._steps[rank].append(call << 2 | WAIT)

    def extend(self, rank: int, steps: Sequence[int]) -> None:
        """What `rank` computed and waited for, noted elsewhere. Raises ValueError for anything else."""
        for step in steps:
            known = step & 3 == ADVANCE or (step & 3 == WAIT and step >> 2 < len(self._operations[rank]))
            if not (0 <= step < 1 << 64 and known):
                raise ValueError(f"{step} is no step of rank {rank}")
        self._steps[rank].extend(steps)

    def perform(self, calls: Sequence[tuple[int, int]], after: int, program: Program | None, alone_ps: int) -> int:
        """The (rank, call) of one operation have met: `program` runs, in `alone_ps` if nothing else does, once the
        operation `after` (-1: none) has ended. Returns the operation's number."""
        number = len(self._programs)
        self._programs.append(None if program is None else (program, alone_ps))
        self._after.append(after)
        rank, call = calls[0]
        self._first.append(rank << 40 | call)
        for rank, call in calls:
            self._operations[rank][call] = number
        return number

    def times(self, machine: Machine) -> Times:
        """When everything happened, as far as it has; no rank takes steps meanwhile. Raises as `Job.times`."""
        length = sum(map(len, self._steps)) + len(self._programs)
        if self._known is None or self._known[0] != length:
            self._known = (length, self._times(machine))
        return self._known[1]

    def _times(self, machine: Machine) -> Times:
        order = np.argsort(np.array(self._first), kind="stable")
        renumbered = np.empty(len(order) + 1, np.int64)
        renumbered[order] = np.arange(len(order))
        renumbered[-1] = -1
        calls = [renumbered[np.array(operations, np.int64)] for operations in self._operations]
        hosts = [_resolved(np.array(steps), of) for steps, of in zip(self._steps, calls, strict=True)]
        after = renumbered[np.array(self._after, np.int64)[order]]
        job = Job(hosts, [int(n) if n >= 0 else None for n in after])
        times = job.times(machine, [self._programs[n] for n in order])
        entered = map(iter, times.entered_ps)
        found = [
            [(next(at), times.starts_ps[n], times.ends_ps[n]) if n >= 0 else (0, 0, 0) for n in of]
            for of, at in zip(calls, entered, strict=True)
        ]
        return Times(times.hosts_ps, found, times.computed_ps)


def _resolved(steps: NDArray[np.uint64], operations: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Steps that name operations instead of the rank's calls; those under way are left out."""
    kinds, values = steps & np.uint64(3), steps >> np.uint64(2)
    named = np.flatnonzero(kinds != ADVANCE)
    of = operations[values[named].astype(np.int64)]
    values[named] = of.astype(np.uint64)
    kept = np.ones(len(steps), bool)
    kept[named[of < 0]] = False
    return (values << np.uint64(2) | kinds)[kept]
