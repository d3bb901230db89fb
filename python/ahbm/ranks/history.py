"""The history of the ranks of a session: the steps of each rank in its own order, and the times of all steps.

Operations are performed as they fill up, in whatever order the ranks' threads come by; their times follow from what
every rank computed, entered and waited for. So they are found afterwards, for all ranks together: operations of
different groups that overlap contend for links and engines, and nothing depends on the order of performing.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ahbm._core import Job

if TYPE_CHECKING:
    from ahbm._core import Machine, Program

ADVANCE, ARRIVE, WAIT = range(3)
"""The kinds of a step, its lowest bits; above them stand picoseconds, or the index of the rank's call it is about."""


class Times(NamedTuple):
    """When everything happened so far, in simulated ps."""

    clocks: list[int]
    """Per rank."""
    calls: list[NDArray[np.uint64]]
    """Per rank, a row per call: when the rank entered it, its start and its end; zeros for those under way."""
    computed: list[NDArray[np.uint64]]
    """Per rank, a row per stretch it computed in: start and end."""


class _Steps:
    """A rank's steps: seven bits a byte, lowest first, the eighth set where more follow. A call is told by how many
    calls were entered after it, so that most steps are one byte."""

    def __init__(self) -> None:
        self.packed = bytearray()
        self.calls = 0

    def add(self, kind: int, value: int) -> None:
        """`value` is picoseconds or a call."""
        if kind == ARRIVE:
            self.calls += 1
        if kind != ADVANCE:
            value = self.calls - 1 - value
        step = value << 2 | kind
        while step > 127:
            self.packed.append(step & 127 | 128)
            step >>= 7
        self.packed.append(step)

    def resolved(self, operations: NDArray[np.int64]) -> NDArray[np.uint64]:
        """The steps as `Job` takes them: `operations` instead of calls; those under way are left out."""
        packed = np.frombuffer(bytes(self.packed), np.uint8)
        ends = np.flatnonzero(packed < 128)
        starts = np.append(0, ends + 1)[:-1]
        shifts = 7 * (np.arange(len(packed)) - np.repeat(starts, ends - starts + 1)).astype(np.uint64)
        steps = np.add.reduceat((packed & 127).astype(np.uint64) << shifts, starts)
        kinds, values = steps & np.uint64(3), steps >> np.uint64(2)
        named = np.flatnonzero(kinds != ADVANCE)
        of = operations[np.cumsum(kinds == ARRIVE)[named] - 1 - values[named].astype(np.int64)]
        values[named] = of.astype(np.uint64)
        kept = np.ones(len(steps), bool)
        kept[named[of < 0]] = False
        return (values << np.uint64(2) | kinds)[kept]


class History:
    """The steps of `size` ranks, and the operations they met in."""

    def __init__(self, size: int) -> None:
        self._steps = [_Steps() for _ in range(size)]
        self._operations = [array("i") for _ in range(size)]
        """Per rank and call, the operation; -1 while under way."""
        self._first = array("Q")
        """Per operation, a rank and its call: what operations are ordered by, whatever came first."""
        self._after = array("i")
        self._ran = array("i")
        """Per operation, which of the programs."""
        self._programs: dict[tuple[Program, int] | None, int] = {}
        self._known: tuple[int, Times] | None = None

    def advance(self, rank: int, ps: int) -> None:
        """`rank` computes."""
        if ps:
            self._steps[rank].add(ADVANCE, ps)

    def arrive(self, rank: int) -> int:
        """`rank` enters its next call; returns the call's number."""
        call = self._steps[rank].calls
        self._operations[rank].append(-1)
        self._steps[rank].add(ARRIVE, call)
        return call

    def wait(self, rank: int, call: int) -> None:
        """`rank` waits for the end of one of its calls."""
        self._steps[rank].add(WAIT, call)

    def extend(self, rank: int, steps: Sequence[int]) -> None:
        """Adds steps of `rank`, noted elsewhere: computing and waiting. Raises ValueError for any other step."""
        for step in steps:
            kind, value = step & 3, step >> 2
            known = kind == ADVANCE or (kind == WAIT and value < self._steps[rank].calls)
            if not (0 <= step < 1 << 64 and known):
                raise ValueError(f"{step} is no step of rank {rank}")
            self._steps[rank].add(kind, value)

    def perform(self, calls: Sequence[tuple[int, int]], after: int, program: Program | None, alone_ps: int) -> int:
        """The (rank, call) of one operation have met: `program` runs, in `alone_ps` if nothing else does, once the
        operation `after` (-1: none) has ended. Returns the operation's number."""
        number = len(self._ran)
        ran = None if program is None else (program, alone_ps)
        self._ran.append(self._programs.setdefault(ran, len(self._programs)))
        self._after.append(after)
        rank, call = calls[0]
        self._first.append(rank << 40 | call)
        for rank, call in calls:
            self._operations[rank][call] = number
        return number

    def times(self, machine: Machine) -> Times:
        """When everything happened, as far as it has; no rank takes steps meanwhile. Raises as `Job.times`."""
        length = sum(len(steps.packed) for steps in self._steps) + len(self._ran)
        if self._known is None or self._known[0] != length:
            self._known = (length, self._times(machine))
        return self._known[1]

    def _times(self, machine: Machine) -> Times:
        order = np.argsort(np.array(self._first), kind="stable")
        renumbered = np.empty(len(order) + 1, np.int64)
        renumbered[order] = np.arange(len(order))
        renumbered[-1] = -1
        calls = [renumbered[np.array(operations, np.int64)] for operations in self._operations]
        hosts = [steps.resolved(of) for steps, of in zip(self._steps, calls, strict=True)]
        after = renumbered[np.array(self._after, np.int64)[order]]
        job = Job(hosts, [int(n) if n >= 0 else None for n in after])
        programs = list(self._programs)
        times = job.times(machine, [programs[kind] for kind in np.array(self._ran, np.int64)[order]])
        spans = np.array([times.starts_ps, times.ends_ps], np.uint64).T
        found = []
        for of, entered in zip(calls, times.entered_ps, strict=True):
            rows, met = np.zeros((len(of), 3), np.uint64), of >= 0
            rows[met, 0], rows[met, 1:] = entered, spans[of[met]]
            found.append(rows)
        computed = [np.array(stretches, np.uint64).reshape(-1, 2) for stretches in times.computed_ps]
        return Times(times.hosts_ps, found, computed)
