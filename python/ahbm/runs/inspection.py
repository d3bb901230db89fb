"""What happened inside a run: its state at any time, and the history of any element, backwards and forwards."""

from __future__ import annotations

import html
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from ahbm._core import Memory
from ahbm.base.arguments import checked, whole
from ahbm.base.elements import ELEMENTS
from ahbm.base.words import IDLE
from ahbm.check.case import Case
from ahbm.check.checks import IDEMPOTENT
from ahbm.check.reference import inputs
from ahbm.errors import ConfigError, DeadlockError
from ahbm.runs.history import NAMED, Contribution, Fate, Lost, Origin, Step
from ahbm.runs.keywords import Arguments, spelled
from ahbm.runs.measure import prepare
from ahbm.runs.snapshot import State, moment, state
from ahbm.runs.traces import nothing_ran

if TYPE_CHECKING:
    from ahbm._core import Flow, Machine, Program, Timeline

MIDDLE, END = "50%", "100%"
"""The times that are looked at where none is given: of a run that ends, and of one that ends in a deadlock."""
STEPS = 1 << 20
"""Most steps of the history of one element."""


class Inspection:
    """Looks into a run, which is simulated and replayed again as often as needed: the same inputs give the same run.

    Elements are named by rank and index in the rank's array, in place where operand and result are one (`cube` names a
    tile of a device tensor). Times are ns from the launch, or texts such as "1.2us" and "50%"; None is the end. A run
    that ends in a deadlock ends with its last progress: its elements are what they were then.
    """

    @checked
    def __init__(
        self,
        program: Program,
        timeline: Timeline,
        case: Case | None = None,
        mode: str = "integers",
        seed: int = 0,
        notes: Sequence[str] = (),
    ):
        """Of a program and a recorded timeline of it; of a case where elements are to have ranks and values.

        `mode` and `seed` choose the data, as in `ahbm.run`. notes: what is to be said of the run.
        """
        self.notes = tuple(notes)
        self._program, self._timeline, self._case = program, timeline, case
        self._mode, self._seed = mode, seed

    @staticmethod
    @checked
    def of(case: Case, mode: str = "integers", seed: int = 0) -> Inspection:
        """Of a case, until its end or its deadlock.

        Raises ConfigError (AHBM-C148) when there is nothing to run, and what running it raises but DeadlockError.
        """
        compiled = case.compiled().moving
        if compiled.program is None:
            raise nothing_ran()
        timeline = compiled.program.simulate(record=True, max_events=compiled.event_budget, stuck=True)
        idle = [note for note in case.notes if note.endswith(IDLE)]
        return Inspection(compiled.program, timeline, case, mode, whole("seed", seed, 0, 2**64 - 1), idle)

    @property
    def latency_ps(self) -> int:
        """Of the run; in a deadlock the last progress."""
        return self._timeline.latency_ps

    @property
    def deadlock(self) -> DeadlockError | None:
        """The deadlock that the run ends in; None for one that comes to its end."""
        return self._timeline.deadlock

    @property
    def ranks(self) -> Sequence[int]:
        """The rank of each agent."""
        return self._program.ranks

    @property
    def timeline_hash(self) -> str:
        """16 hex digits; equal hashes are equal timelines."""
        return f"{self._timeline.hash:016x}"

    @checked
    def at(self, when: float | str | None = None) -> State:
        """Who does what, who waits for whom, and what is in the queues, counters and links.

        None is the middle of the run, or the end of one that ends in a deadlock: there, nothing moves any more.

        Raises ConfigError (AHBM-C129) for no time of the run, BudgetError (AHBM-B121) for a run whose links have more
        pieces of time than the budget.
        """
        when = when if when is not None else MIDDLE if self.deadlock is None else END
        return state(self._program, self._timeline, self._detailed, moment(when, self.latency_ps))

    @checked
    def element(self, rank: int, index: int, *, at: float | str | None = None, cube: int = 0) -> Any:
        """The number in an element of a rank's array. Raises as `origin_of`."""
        return self.origin_of(rank, index, at=at, cube=cube).value

    @checked
    def origin_of(self, rank: int, index: int, *, at: float | str | None = None, cube: int = 0) -> Origin:
        """What an element was made of, down to the inputs.

        Raises ConfigError: AHBM-C129 for no element of a result or no time of the run, C148 for a run without a known
        result. BudgetError (AHBM-B124) for more than a million steps, DataError for what the run itself raises.
        """
        case = self._known
        until = None if at is None else moment(at, self.latency_ps)
        party = self._party(rank, cube)
        buffer, start = self._find(case.compiled().moving.results, party, index)
        item = case.request.element.storage.itemsize
        nodes, roots = self._flow.origin(self._inputs, buffer, start, start + item, at=until, most=STEPS)
        steps = [
            self._step(agent, op, element, time, tuple(made_of), _number(dtype or case.request.dtype, stored))
            for (agent, op, element, dtype), time, made_of, stored in nodes
        ]
        expected = None if until is not None else self._expected(party, index)
        repeats = case.request.reduces and case.request.op in IDEMPOTENT
        end = self.latency_ps if until is None else until
        tile = self._contribution(party, index).tile
        found = Origin(rank, index, tile, end, steps, tuple(roots), expected, repeats)
        lost = tuple(self._lost(one, rank) for one in found.missing[:NAMED])
        return Origin(rank, index, tile, end, steps, tuple(roots), expected, repeats, lost)

    @checked
    def fate_of(self, rank: int, index: int, *, cube: int = 0) -> Fate:
        """Where a contribution went, an element of a rank's array before the call. Raises as `origin_of`."""
        case = self._known
        party = self._party(rank, cube)
        buffer, start = self._find(case.compiled().moving.operands, party, index)
        item = case.request.element.storage.itemsize
        nodes = self._flow.fate(buffer, start, start + item, most=STEPS)
        steps, ends, results = [], dict[Contribution, None](), set()
        for (agent, op, element), time, to, left, over in nodes:
            kept = []
            for where, first, _ in left:
                owner = self._owner(self._results, where, first)
                kept.append(f"buffer {where}, byte {first}" if owner is None else str(owner))
                if (
                    owner is not None
                    and self._expected(self._party(owner.rank, owner.tile or 0), owner.index) is not None
                ):
                    ends[owner] = None
                    results.add(str(owner))
            replaced = tuple(self._sentence(*one) for one in over)
            step = self._step(agent, op, element, time, tuple(to), None)
            steps.append(
                Step(
                    **{name: getattr(step, name) for name in Step.__dataclass_fields__}
                    | {"left": tuple(kept), "over": replaced}
                )
            )
        return Fate(self._contribution(party, index), steps, tuple(sorted(ends)), frozenset(results))

    def to_json(self) -> dict[str, Any]:
        """The run, and its state in the middle, as JSON-serialisable data."""
        return {"program": self._program.name, "timeline_hash": self.timeline_hash} | self.at().to_json()

    def __str__(self) -> str:
        return str(self.at())

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    # -- elements and memory

    @property
    def _known(self) -> Case:
        if self._case is None:
            raise ConfigError(
                "AHBM-C148",
                "this ran for its time only: its elements belong to no known result",
                hint="its state at a time is known: .at(), or --at",
            )
        return self._case

    def _party(self, rank: int, cube: int) -> int:
        request = self._known.request
        return whole("rank", rank, 0, request.world_size - 1) * request.tiles + whole(
            "cube", cube, 0, request.tiles - 1
        )

    def _find(self, table: Sequence[NDArray[np.int64]], party: int, index: int) -> tuple[int, int]:
        """Buffer and byte of an element of a party."""
        request = self._known.request
        tiles, item = request.tiles, request.element.storage.itemsize
        byte = ((party % tiles) * request.size + whole("index", index, 0, request.size - 1)) * item
        for buffer, first, at, size in table[party // tiles].tolist():
            if first <= byte < first + size:
                return buffer, at + byte - first
        name = self._known.name(party)
        raise ConfigError("AHBM-C129", f"index {index}: the collective neither takes nor gives this element of {name}")

    @cached_property
    def _results(self) -> dict[int, list[tuple[int, int, int, int]]]:
        return _by_buffer(self._known.compiled().moving.results)

    @cached_property
    def _operands(self) -> dict[int, list[tuple[int, int, int, int]]]:
        return _by_buffer(self._known.compiled().moving.operands)

    def _owner(self, table: dict[int, list[tuple[int, int, int, int]]], buffer: int, byte: int) -> Contribution | None:
        """The element of a rank's array that a byte of a buffer belongs to."""
        rows = table.get(buffer, [])
        row = bisect_right(rows, byte, key=lambda row: row[0]) - 1
        if row < 0 or byte >= rows[row][0] + rows[row][1]:
            return None
        request = self._known.request
        at, _, rank, first = rows[row]
        element = (first + byte - at) // request.element.storage.itemsize
        return self._contribution(rank * request.tiles + element // request.size, element % request.size)

    def _expected(self, party: int, index: int) -> Counter[Contribution] | None:
        """The contributions that must be in an element in the end; None where the collective defines nothing."""
        request = self._known.request
        if request.collective == "barrier":
            return None
        segments = self._segments(party)
        place = bisect_right(segments, index, key=lambda segment: segment[0]) - 1
        if place < 0 or index >= segments[place][1]:
            return None
        start, _, whose = segments[place]
        return Counter(self._contribution(who, first + index - start) for who, first in whose)

    def _contribution(self, party: int, index: int) -> Contribution:
        request = self._known.request
        tile = None if request.placement is None else party % request.tiles
        return Contribution(party // request.tiles, index, tile)

    def _segments(self, party: int) -> list[Any]:
        # Every party of an all-reduce ends with the same.
        party = 0 if self._known.request.collective == "all_reduce" else party
        if party not in self._known_segments:
            self._known_segments[party] = self._known.request.expected(party)
        return self._known_segments[party]

    @cached_property
    def _known_segments(self) -> dict[int, list[Any]]:
        return {}

    # -- runs

    @cached_property
    def _detailed(self) -> Timeline:
        return self._program.simulate(record=False, detail=True, stuck=True)

    @cached_property
    def _given(self) -> list[NDArray[Any]]:
        return inputs(self._known.request, self._mode, self._seed)

    def _memory(self) -> Memory:
        """The machine's memory with the inputs of all ranks."""
        memory = Memory(self._program)
        request, given = self._known.request, self._given
        for rank, rows in enumerate(self._known.compiled().moving.operands):
            parties = [given[rank * request.tiles + tile] for tile in range(request.tiles)]
            array = np.concatenate(parties).view(np.uint8)
            for buffer, first, at, size in rows.tolist():
                memory.write(buffer, np.ascontiguousarray(array[first : first + size]), at)
        return memory

    @cached_property
    def _inputs(self) -> Memory:
        return self._memory()

    @cached_property
    def _flow(self) -> Flow:
        # A replay leaves results behind: the inputs stay in a memory of their own.
        return self._memory().flow(self._timeline)

    # -- words

    @cached_property
    def _words(self) -> dict[tuple[int, int], tuple[str, str, str]]:
        return {}

    def _described(self, agent: int, op: int) -> tuple[str, str, str]:
        if (agent, op) not in self._words:
            what, origin = self._program.describe(agent, op)
            # The tile stands behind the last blank.
            self._words[agent, op] = (what.rpartition(" ")[0] or what, origin, self._program.place(agent))
        return self._words[agent, op]

    def _sentence(self, agent: int, op: int) -> str:
        what, origin, place = self._described(agent, op)
        return f"{what} of {place}" + (f" ({origin})" if origin else "")

    def _step(self, agent: int, op: int, element: int, time: int, links: tuple[int, ...], value: Any) -> Step:
        if agent >= 0:
            what, origin, place = self._described(agent, op)
            return Step(time, place, what, origin, value, agent, op, element, None, links)
        request = self._known.request
        whose = self._owner(self._operands, op, element)
        if whose is not None:
            party = whose.rank * request.tiles + (whose.tile or 0)
            stored = self._given[party][whose.index : whose.index + 1]
            value = _number(request.dtype, stored.tobytes())
            if not any(low <= whose.index < high for low, high in request.held(party)):
                whose = None
        what = "unset" if whose is None else "input"
        return Step(0, "", what, "", value, -1, op, element, whose, links)

    def _lost(self, missing: Contribution, rank: int) -> Lost:
        """The last place of a contribution that does not arrive at a rank."""
        fate = self.fate_of(missing.rank, missing.index, cube=missing.tile or 0)
        ranks = self._program.ranks
        here = [step for step in fate.dead_ends if step.agent >= 0 and ranks[step.agent] == rank]
        dead = here or ([] if fate.ends else fate.dead_ends)
        if dead:
            return Lost(missing, dead[-1], fate.why(dead[-1]))
        last = max(fate.steps, key=lambda step: step.at_ps)
        return Lost(missing, last, f"others have it, it does not get to rank {rank}")


@spelled
@checked
def inspect(
    collective: str = "all_reduce",
    algorithm: str | Path | None = None,
    topology: str | Path | Machine | None = None,
    **arguments: Unpack[Arguments],
) -> Inspection:
    """Looks into the run that `ahbm.run` would make of these arguments. Raises as `ahbm.run`."""
    return Inspection.of(prepare(collective, algorithm, topology, **arguments))


def _by_buffer(table: Sequence[NDArray[np.int64]]) -> dict[int, list[tuple[int, int, int, int]]]:
    """By buffer: first byte, bytes, rank, first byte in the rank's array."""
    found: dict[int, list[tuple[int, int, int, int]]] = {}
    for rank, rows in enumerate(table):
        for buffer, first, at, size in rows.tolist():
            found.setdefault(buffer, []).append((at, size, rank, first))
    return {buffer: sorted(rows) for buffer, rows in found.items()}


def _number(dtype: str, stored: bytes) -> Any:
    """The number; None where there are the bytes of no whole element."""
    element = ELEMENTS[dtype]
    if len(stored) != element.storage.itemsize:
        return None
    return _plain(element.decode(np.frombuffer(stored, element.storage))[0])


def _plain(number: Any) -> int | float:
    """A number as JSON has it."""
    plain: int | float = number.item()
    return plain
