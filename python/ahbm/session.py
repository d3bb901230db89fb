"""What `init_process_group` sets up: an emulator, the group of all ranks, and how their collectives are performed."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ahbm.blame import call_origin, clone
from ahbm.calls import CallRecord
from ahbm.collectives import COLLECTIVES
from ahbm.elements import element
from ahbm.errors import DistributedError, Site
from ahbm.exchange import Exchange
from ahbm.groups import ProcessGroup
from ahbm.history import History, Times
from ahbm.mail import Letter
from ahbm.operation import Operation, Part, Performer
from ahbm.world import World

if TYPE_CHECKING:
    from ahbm._core import Machine
    from ahbm.emulator import Emulator, Invocation

BACKEND = "ahbm"
TIMEOUT_S = 600.0
"""Wall seconds without any progress after which waiting ranks fail, unless `init_process_group` says otherwise."""

QUICK_BYTES = 16 << 20
"""Data that any thread may move; more is left to the one that Ctrl-C reaches."""

KEPT_CALLS = 1 << 16
"""Calls of a rank that `stats` remembers."""

KNOWN_CALLS = 1 << 12
"""Different calls whose descriptions are shared between all that are equal."""


class BackendError(DistributedError, ValueError):
    """`init_process_group` was asked for a backend that is not this one."""


@dataclass(frozen=True)
class Setup:
    """What a run is asked to use; None leaves the choice to the next in line: spawn, command line, environment."""

    topology: str | Path | Machine | None = None
    ccl: str | Path | None = None
    overrides: Mapping[str, object] | None = None
    algorithm: str | None = None
    timeout_s: float | None = None
    accumulate: str | None = None
    """"f32": f16 and bf16 are reduced in f32 and rounded once at the end; their time stays that of the schedule."""

    def over(self, other: Setup) -> Setup:
        """This setup where it says something, `other` where it does not."""
        return Setup(
            *(getattr(other, f.name) if getattr(self, f.name) is None else getattr(self, f.name) for f in fields(Setup))
        )

    def sized(self, ranks: int) -> Setup:
        """This setup with at least as many SIPs as ranks, unless an argument or AHBM_TOPOLOGY names the topology."""
        from ahbm import config, topology

        count, overrides = "system.sips.count", dict(self.overrides or {})
        if self.topology is None and not os.environ.get(topology.ENV) and count not in overrides:
            for_topology, _ = config.split_overrides(overrides)
            if topology.load_machine(None, for_topology).sips < ranks:
                return replace(self, overrides={**overrides, count: ranks})
        return self

    def emulator(self) -> Emulator:
        """The emulator this setup asks for. Raises TopologyError or ConfigError."""
        from ahbm.emulator import Emulator

        return Emulator.load(self.topology, self.ccl, self.overrides)


_NOTHING = Setup()
_ambient: ContextVar[Setup] = ContextVar("ahbm_setup", default=_NOTHING)


def ambient() -> Setup:
    """The setup that holds where `spawn` and `init_process_group` say nothing."""
    return _ambient.get()


@contextmanager
def using(setup: Setup) -> Iterator[None]:
    """Makes `setup` the ambient one inside the `with` block."""
    token = _ambient.set(setup.over(ambient()))
    try:
        yield
    finally:
        _ambient.reset(token)


@dataclass(eq=False, slots=True)
class Call:
    """One rank's side of an operation, as it is issued."""

    kind: str
    """"collective", "exchange" (all_to_all, its buffer an Exchange), "send", "recv" or "new_group"."""
    group: ProcessGroup
    terms: dict[str, object]
    """What all sides must agree on; `"collective"` first, then "dtype", "op", "root" and "shape" as they apply."""
    buffer: Any
    """What the operation works on: a flat array in the collective's in-place layout."""
    finish: Callable[[Operation], object]
    """Takes the result back to the user; returns what `Work.result` gives."""
    peer: int | None = None
    """The other side of a send or receive; None receives from any."""
    tag: int = 0
    give: slice | None = None
    """The elements of the buffer that hold this rank's operand; None: all."""
    take: slice | None = None
    """The elements of the buffer that will hold this rank's result; None: all."""


class Seat(Protocol):
    """Where a rank takes part in operations: issue with `submit`, finish with `wait`."""

    def advance(self, rank: int, ps: int) -> None:
        """Moves the rank's simulated clock by what it has computed."""

    def submit(self, rank: int, call: Call) -> Part:
        """Issues `call` for `rank`; the part is the ticket to wait for. Raises what stopped the world."""

    def group(self, name: str, ranks: tuple[int, ...]) -> ProcessGroup:
        """The group called `name` of these ranks; the first that asks for it creates it."""

    def estimate(self, call: Call) -> int:
        """Simulated ps that `call` would take alone, were it performed with the like of its group; moves no data."""

    def wait(self, part: Part, timeout_s: float | None = None) -> None:
        """Blocks until the part's operation has ended and moves its rank's clock there; raises its error."""

    def settle(self, part: Part) -> None:
        """Blocks until the part's operation has ended, well or not; the rank's clock stays."""

    def notify(self, part: Part, told: Callable[[BaseException | None], None]) -> bool:
        """Has `told` called once, from any thread, with the error of the part's operation when that ends; False when it
        has ended already."""


class Performed(NamedTuple):
    """What is remembered of one rank's side of a performed operation."""

    call: int
    """The rank's how-manieth."""
    number: int
    """The operation's, in the session's history."""
    record: CallRecord
    """Without times."""
    origin: str
    """`file:line` of the call."""
    sends: bool
    """Of a send and receive: whether this is the send."""


@dataclass(frozen=True)
class Answer:
    """The simulated times, for one of the ranks that asked."""

    rank: int
    times: Times


class Session:
    """One generation of a world's process groups: between `init_process_group` and `destroy_process_group`."""

    def __init__(self, setup: Setup, emulator: Emulator, world: World) -> None:
        self.setup = setup
        self.emulator = emulator
        self.world = world
        self.world_group = ProcessGroup("WORLD", tuple(range(world.size)))
        self.performed: list[deque[Performed]] = [deque(maxlen=KEPT_CALLS) for _ in range(world.size)]
        """Per rank: its latest calls, in the order of performing."""
        self.history = History(world.size)
        self._made: list[ProcessGroup] = []
        self._groups: dict[tuple[str, tuple[int, ...]], ProcessGroup] = {}
        self._lock = threading.Lock()
        self._performers = {
            "collective": Performer(self._perform, self._quick),
            "exchange": Performer(self._exchange, self._quick_exchange),
            "new_group": Performer(self._make_group, lambda operation: True),
        }
        self._pairs = Performer(self._perform_pair, self._quick_pair)
        self._clock = Performer(self._answer, lambda operation: False)

    def advance(self, rank: int, ps: int) -> None:
        """See `Seat`."""
        self.history.advance(rank, ps)
        self.world.ranks[rank].clock_ps += ps

    def submit(self, rank: int, call: Call) -> Part:
        """See `Seat`."""
        clock_ps = self.world.ranks[rank].clock_ps
        part = Part(rank, call.terms, call.buffer, call.finish, clock_ps, call_origin())
        self.enter(part, call)
        return part

    def enter(self, part: Part, call: Call) -> None:
        """Lets `part` take part in the operation that `call` asks for."""
        part.call = self.history.arrive(part.rank)
        if call.kind in ("send", "recv"):
            sends = call.kind == "send"
            src, dst = (part.rank, call.peer) if sends else (call.peer, part.rank)
            assert dst is not None
            self.world.post(call.group, Letter(src, dst, call.tag, part), sends=sends, performer=self._pairs)
        else:
            self.world.meet(call.group, part, str(call.terms["collective"]), self._performers[call.kind])

    def wait(self, part: Part, timeout_s: float | None = None) -> None:
        """See `Seat`."""
        self.world.wait(part, timeout_s)
        self.history.wait(part.rank, part.call)

    def times(self) -> Times:
        """When everything happened; for a job that has ended."""
        return self.history.times(self.emulator.machine)

    def times_for(self, rank: int) -> Times:
        """When everything happened, once nothing that other ranks have yet to do can change what `rank`, the calling
        thread, has seen: blocks until they wait, have returned, or ask at a later simulated time."""
        while True:
            part = Part(rank, {}, None, lambda operation: operation.record, 0, call_origin())
            self.world.ask(part, self._clock)
            answer = part.result
            assert isinstance(answer, Answer)
            if answer.rank == rank:
                return answer.times

    def records(self, rank: int, times: Times) -> list[tuple[Performed, CallRecord]]:
        """The performed calls of `rank` that are remembered, in the order of its program, at their times."""
        made = sorted(self.performed[rank])
        return [(call, call.record.at(*times.calls[rank][call.call, 1:].tolist())) for call in made]

    def _answer(self, operation: Operation) -> int:
        """Only the earliest of those that ask is told: it may yet do something that overlaps what the others did."""
        times = self.times()
        operation.record = Answer(min(operation.members, key=lambda rank: (times.clocks[rank], rank)), times)
        return 0

    def settle(self, part: Part) -> None:
        """See `Seat`."""
        self.world.settle(part)

    def notify(self, part: Part, told: Callable[[BaseException | None], None]) -> bool:
        """See `Seat`."""
        return self.world.notify(part, told)

    def group(self, name: str, ranks: tuple[int, ...]) -> ProcessGroup:
        """See `Seat`."""
        with self._lock:
            if name == self.world_group.name and ranks == self.world_group.ranks:
                return self.world_group
            return self._groups.setdefault((name, ranks), ProcessGroup(name, ranks))

    def estimate(self, call: Call) -> int:
        """See `Seat`."""
        ranks = call.group.ranks
        if call.kind in ("send", "recv"):
            ranks = ranks[:2]
        buffer = call.buffer
        if isinstance(buffer, Exchange):
            buffer = np.empty(max(buffer.sends) * len(ranks), buffer.source.dtype)
        what = replace(self._invocation(call.terms, ranks), root=0)
        return self.emulator.collective(what, [buffer] * len(ranks), data=False).latency_ps

    def _perform(self, operation: Operation) -> int:
        """Runs one collective on the emulator; returns its end in simulated ps, had it run alone."""
        return self._run(operation, (), *self._collective(operation.ordered()))

    def _quick(self, operation: Operation) -> bool:
        return self._is_quick(*self._collective(operation.ordered()))

    def _exchange(self, operation: Operation) -> int:
        """An all-to-all: every pair's chunk is as large as the largest of all."""
        parts = operation.ordered()
        exchanges = [part.buffer for part in parts]
        for part, padded in zip(parts, Exchange.pad(exchanges, operation.label), strict=True):
            part.buffer = padded
        end_ps = self._perform(operation)
        for rank, exchange in enumerate(exchanges):
            exchange.unpad(parts[rank].buffer)
        return end_ps

    def _quick_exchange(self, operation: Operation) -> bool:
        parts = operation.ordered()
        exchanges = [part.buffer for part in parts]
        padded = np.empty(Exchange.padded_size(exchanges), exchanges[0].source.dtype)
        return self._is_quick(self._collective(parts)[0], [padded] * len(parts))

    def _perform_pair(self, operation: Operation) -> int:
        """Runs one matched send and receive; returns its end in simulated ps, had it run alone."""
        lane = (*operation.members, operation.parts[operation.members[0]].terms["tag"])
        return self._run(operation, lane, *self._pair(operation))

    def _quick_pair(self, operation: Operation) -> bool:
        return self._is_quick(*self._pair(operation))

    def _make_group(self, operation: Operation) -> int:
        """Creates the group that all ranks asked for with `new_group`; takes no simulated time."""
        parts = operation.ordered()
        ranks = parts[0].terms["ranks"]
        assert isinstance(ranks, tuple)
        group = ProcessGroup(f"group {len(self._made) + 1}", ranks)
        self._made.append(group)
        for part in parts:
            part.buffer.append(group)
        self.history.perform([(part.rank, part.call) for part in parts], -1, None, 0)
        return max(part.clock_ps for part in parts)

    def _is_quick(self, what: Invocation, buffers: list[NDArray[Any]]) -> bool:
        if self.setup.accumulate or sum(buffer.nbytes for buffer in buffers) > QUICK_BYTES:
            return False
        return self.emulator.is_known(what, buffers)

    def _collective(self, parts: list[Part]) -> tuple[Invocation, list[Any]]:
        return self._invocation(parts[0].terms, _group(parts[0]).ranks), [part.buffer for part in parts]

    def _pair(self, operation: Operation) -> tuple[Invocation, list[NDArray[Any]]]:
        ranks = tuple(sorted(operation.members))
        src, dst = (ranks.index(rank) for rank in operation.members)
        parts = [operation.parts[rank] for rank in ranks]
        return self._invocation(parts[0].terms, ranks, src, dst), [part.buffer for part in parts]

    def _invocation(self, terms: Mapping[str, Any], ranks: tuple[int, ...], src: int = 0, dst: int = 1) -> Invocation:
        """What the ranks of an operation have agreed on."""
        name, root = terms["collective"], terms.get("root")
        at = 0 if root is None else ranks.index(root) if root in ranks else -1
        algorithm = self.setup.algorithm if name == "all_reduce" else None
        op = terms.get("op") or "sum"
        return _known(name, ranks, op, at, src, dst, terms["dtype"], algorithm, terms.get("placement"))

    def _run(
        self,
        operation: Operation,
        lane: tuple[object, ...],
        what: Invocation,
        buffers: list[NDArray[Any]],
        data: bool = True,
    ) -> int:
        parts = operation.ordered()
        group = _group(parts[0])
        tensor, reduces = buffers[0], COLLECTIVES[what.collective].reduces
        if data and self.setup.accumulate == "f32" and what.dtype in ("f16", "bf16") and reduces:
            outcome = self.emulator.collective(what, buffers, data=False)
            self._accumulate(what, buffers)
        else:
            outcome = self.emulator.collective(what, buffers, data=data)
        # A device tensor's tiles are contributions of their own, and the size is that of one.
        contributions, nbytes = (
            (len(tensor) * len(buffers), tensor[0].nbytes) if tensor.ndim == 2 else (len(buffers), tensor.nbytes)
        )
        after_ps, after = group.latest.get(lane, (0, -1))
        start_ps = max([after_ps, *(part.clock_ps for part in parts)])
        end_ps = start_ps + outcome.latency_ps
        calls = [(part.rank, part.call) for part in parts]
        number = self.history.perform(calls, after, outcome.program, outcome.latency_ps)
        group.latest[lane] = (end_ps, number)
        record = _record(what, group.name, contributions, nbytes, outcome.algorithm, outcome.timeline_hash)
        for part in parts:
            made = Performed(part.call, number, record, part.origin, part.rank == operation.members[0])
            self.performed[part.rank].append(made)
        return end_ps

    def _accumulate(self, what: Invocation, buffers: list[NDArray[Any]]) -> None:
        """Moves the data of a reduction in f32, rounding once at the end."""
        stored = element(what.dtype or "")
        wide = [stored.decode(buffer).astype(np.float32) for buffer in buffers]
        self.emulator.collective(replace(what, dtype="f32"), wide)
        for buffer, sums in zip(buffers, wide, strict=True):
            buffer[...] = stored.encode(sums)


@lru_cache(KNOWN_CALLS)
def _known(*terms: Any) -> Invocation:
    from ahbm.emulator import Invocation

    return Invocation(*terms)


@lru_cache(KNOWN_CALLS)
def _record(what: Invocation, group: str, ranks: int, nbytes: int, algorithm: str, timeline_hash: int) -> CallRecord:
    op = what.op if COLLECTIVES[what.collective].reduces else ""
    return CallRecord(what.collective, group, ranks, nbytes, what.dtype or "", op, algorithm, timeline_hash, what.root)


def _group(part: Part) -> ProcessGroup:
    group = part.terms["group"]
    assert isinstance(group, ProcessGroup)
    return group


@dataclass
class Context:
    """The calling thread's rank."""

    world: World
    rank: int
    lobby: Lobby
    generation: int = 0
    session: Session | None = None


class Lobby:
    """Where the ranks of one world agree on a session."""

    def __init__(self, first: Setup | None = None, emulator: Emulator | None = None) -> None:
        self.first = first or Setup()
        self._emulator = emulator
        self._lock = threading.Lock()
        self._entries: list[tuple[Setup, Session | BaseException, Site]] = []

    def session(self, context: Context, asked: Setup, backend: str, origin: str) -> Session:
        """The session of the context's generation, created by the first rank that asks for it.

        Raises BackendError (AHBM-X101), DistributedError AHBM-X104 for an impossible number of ranks and AHBM-X110
        when the ranks ask for different things, TopologyError and ConfigError.
        """
        setup = asked.over(self.first).over(ambient())
        site = Site(f"rank {context.rank}: backend={backend!r}, {setup}", origin)
        with self._lock:
            if len(self._entries) == context.generation:
                self._entries.append((setup, self._create(context, setup, backend, site), site))
            agreed, session, first_site = self._entries[context.generation]
        if isinstance(session, BaseException):
            raise clone(session)
        if agreed != setup or backend != BACKEND:
            differing = [f.name for f in fields(Setup) if getattr(agreed, f.name) != getattr(setup, f.name)]
            raise DistributedError(
                "AHBM-X110",
                f"init_process_group: the ranks disagree on {', '.join(differing) or 'backend'}",
                sites=[first_site, site],
                hint="pass the same arguments on every rank",
            )
        return session

    def sessions(self) -> list[Session]:
        """The sessions so far, oldest first."""
        return [session for _, session, _ in self._entries if isinstance(session, Session)]

    def _create(self, context: Context, setup: Setup, backend: str, site: Site) -> Session | BaseException:
        if backend != BACKEND:
            return BackendError(
                "AHBM-X101",
                f"unknown backend {backend!r}",
                sites=[site],
                hint=f'this library is one backend: backend="{BACKEND}"',
            )
        try:
            emulator = self._emulator if setup == self.first and self._emulator is not None else setup.emulator()
            check_world_size(context.world.size, emulator.world_size, "ahbm.spawn" if self._emulator else "this script")
        except Exception as error:
            return error
        return Session(setup, emulator, context.world)


def check_world_size(size: int, capacity: int, who: str) -> None:
    """Raises DistributedError (AHBM-X104) unless `size` ranks are what `capacity` SIPs can take."""
    if who == "this script" and capacity != size:
        raise DistributedError(
            "AHBM-X104",
            f"this script is one rank, but the configured world has {capacity}",
            hint="start the ranks with ahbm.spawn(worker)",
        )
    if not 1 <= size <= capacity:
        raise DistributedError(
            "AHBM-X104",
            f"cannot run {size} ranks: the configured world has {capacity}",
            hint="a rank is a SIP: raise system.sips.count, or set world_size in ccl.yaml",
        )
