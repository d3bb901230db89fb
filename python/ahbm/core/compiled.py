"""A request that was compiled, and what it costs."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ahbm._core import Memory, Program, Recipe, Timeline
from ahbm.base.request import Request
from ahbm.core.limits import Bound
from ahbm.core.with_knobs import WithKnobs
from ahbm.errors import AhbmError, BudgetError, Finding, described
from ahbm.source.algorithm import Algorithm, Lowered

SPARE_BYTES = 1 << 30
"""Memory of programs that an emulator keeps for their next run."""
EARLY_OPS = 1 << 18
"""Operations up to which the first run of a program is by a recipe; to make one takes longer than a run without."""


@dataclass(eq=False)
class Compiled:
    """The program of a request, where every rank's array goes, and its timeline once it has been simulated."""

    request: Request
    algorithm: str
    """Name of the algorithm."""
    program: Program | None = None
    """None where there is nothing to do: 0 elements."""
    operands: Sequence[NDArray[np.int64]] = ()
    """Per group rank, which bytes of its host array go into which buffer: see `Memory.run`."""
    results: Sequence[NDArray[np.int64]] = ()
    """Per group rank, which bytes of its host array come out of which buffer."""
    event_budget: int = 0
    covered: bool = False
    """Whether the operands fill all buffers, so that nothing of an earlier run remains."""
    timed: bool = False
    """Whether only its time is known: it moves no data."""
    notes: tuple[str, ...] = ()
    """The options that were chosen where the configuration leaves a choice and its first option does not do."""
    protocol: str = ""
    """The protocol of the machine's library that was chosen for it; "" where one is for all runs, or none."""
    moved: Callable[[], Lowered] | None = field(default=None, repr=False)
    """What moves the data, where `program` only says how long it takes."""
    given: Algorithm | None = None
    """The algorithm itself, where it is not one of ccl.yaml."""
    _timelines: dict[bool, Timeline] = field(default_factory=dict, repr=False)
    _recipes: list[Recipe | None] = field(default_factory=list, repr=False)
    """The recipe, or None in its place, once it has been asked for."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _verified: bool = False
    _runs: int = 0

    @property
    def by(self) -> str | Algorithm:
        """The algorithm, as `Emulator.compile` takes it."""
        return self.given or self.algorithm

    @cached_property
    def moving(self) -> Compiled:
        """What moves the data: itself, but for a graph of sizes. Raises as lowering a plan."""
        if self.moved is None:
            return self
        lowered = self.moved()
        how = (lowered.program, lowered.operands, lowered.results, self.event_budget, lowered.covered)
        return Compiled(self.request, self.algorithm, *how, given=self.given)

    @property
    def knobs(self) -> str:
        """The knobs of a choice that are in its time, in words; "" for none."""
        return self.given.modelled if isinstance(self.given, WithKnobs) else ""

    @property
    def ops(self) -> int:
        """Operations of all agents."""
        return self.program.ops if self.program is not None else 0

    @cached_property
    def memory_bytes(self) -> int:
        """Bytes of the buffers and queue slots at the PE that has most."""
        return self.program.memory_bytes if self.program is not None else 0

    @cached_property
    def operand_bytes(self) -> int:
        """Bytes of all operands."""
        return sum(int(rows[:, 3].sum()) for rows in self.operands)

    @property
    def is_recorded(self) -> bool:
        """Whether only data is left to move."""
        return self.program is None or True in self.moving._timelines

    def timeline(self, *, record: bool) -> Timeline | None:
        """The timeline, simulated when it is first asked for; with `record`, one that can be replayed. None where there
        is nothing to do.

        Raises DeadlockError, BudgetError.
        """
        if self.program is None:
            return None
        with self._lock:
            for recorded in (True, record):
                if recorded in self._timelines:
                    return self._timelines[recorded]
            self._timelines[record] = self.program.simulate(record=record, max_events=self.event_budget)
            return self._timelines[record]

    def ends_within(self, events: int) -> bool:
        """Whether it is simulated in so many events; then its timeline is there. Raises DeadlockError."""
        if self.program is None:
            return True
        with self._lock:
            if not self._timelines:
                try:
                    most = min(events, self.event_budget)
                    self._timelines[False] = self.program.simulate(record=False, max_events=most)
                except BudgetError:
                    return False
            return True

    def recipe(self, timeline: Timeline) -> Recipe | None:
        """How to make the results of the operands without buffers, made when it is first asked for, of a long program
        when it is asked for again; None where only a replay of `timeline`, the recorded one, can tell."""
        with self._lock:
            early = self._runs or self.ops <= EARLY_OPS
            self._runs += 1
            if not self._recipes and self.program is not None and early:
                self._recipes.append(Recipe.of(self.program, timeline, self.operands, self.results))
            return self._recipes[0] if self._recipes else None

    def forget(self) -> None:
        """Lets the timelines go: the next use simulates again."""
        with self._lock:
            self._timelines.clear()
            self._recipes.clear()

    def verify_once(self, verify: Callable[[Compiled], object]) -> None:
        """Calls `verify` unless a call of it has succeeded before."""
        if not self._verified:
            verify(self)
            self._verified = True

    @property
    def latency_ps(self) -> int:
        """Simulated time in ps."""
        timeline = self.timeline(record=False)
        return 0 if timeline is None else timeline.latency_ps

    @property
    def messages(self) -> int:
        """Number of messages."""
        timeline = self.timeline(record=False)
        return 0 if timeline is None else timeline.messages

    @property
    def bytes(self) -> int:
        """Payload bytes of all messages."""
        timeline = self.timeline(record=False)
        return 0 if timeline is None else timeline.bytes

    @property
    def timeline_hash(self) -> int:
        """Equal hashes are equal timelines."""
        timeline = self.timeline(record=False)
        return 0 if timeline is None else timeline.hash


@dataclass(frozen=True)
class Cost:
    """The cost of a request, without its data. Times in ps."""

    algorithm: str
    ps: int
    messages: int
    bytes: int
    """Payload of all messages."""
    bound: Bound = field(compare=False, repr=False)
    """The least time that any algorithm could take."""
    notes: tuple[str, ...] = ()

    @property
    def bound_ps(self) -> int | None:
        """The least time that any algorithm could take; None where none is known."""
        return self.bound.ps

    @property
    def reason(self) -> str:
        """The tight cut or the longest way behind the bound, or why no bound is known."""
        return self.bound.reason


class Refusal(NamedTuple):
    """Why a request cannot be performed: the findings of an error, as a value."""

    findings: tuple[Finding, ...]

    @property
    def code(self) -> str:
        """Of the first finding."""
        return self.findings[0].code

    @property
    def message(self) -> str:
        """Of the first finding."""
        return self.findings[0].message

    def error(self) -> AhbmError:
        """The error that stands for it."""
        return AhbmError.of(self.findings)

    def __str__(self) -> str:
        return described(self.findings)


class Spares:
    """Memory images of programs that have run, for their next run: pages that were touched once are fast."""

    def __init__(self) -> None:
        self._held: OrderedDict[int, tuple[Compiled, Memory]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def take(self, compiled: Compiled, program: Program) -> Memory:
        """An image that the operands of `compiled` will fill."""
        with self._lock:
            found = self._held.pop(id(compiled), None)
            if found is None:
                return Memory(program)
            self._bytes -= compiled.operand_bytes
            return found[1]

    def put(self, compiled: Compiled, memory: Memory) -> None:
        """Keeps an image if the next operands will overwrite all of it; the oldest make room."""
        size = compiled.operand_bytes
        if not compiled.covered or size > SPARE_BYTES:
            return
        with self._lock:
            if id(compiled) not in self._held:
                self._held[id(compiled)] = (compiled, memory)
                self._bytes += size
            while self._bytes > SPARE_BYTES:
                self._bytes -= self._held.popitem(last=False)[1][0].operand_bytes
