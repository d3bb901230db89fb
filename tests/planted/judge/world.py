"""Agents that take turns in a random order, what they wait for, and who has heard of whom."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from random import Random
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Turn = Callable[[], bool] | None
"""What an agent waits for before its next step; None for nothing."""
Agent = Generator[Turn, None, None]

CALLS = 3
ORDERS = 20
MOST_STEPS = 200_000


class WrongError(Exception):
    """A program that is wrong: how, and where."""

    def __init__(self, kind: str, told: str) -> None:
        super().__init__(f"{kind}: {told}")
        self.kind = kind


class InvalidError(Exception):
    """No program at all: an operand outside its buffer, a peer that does not exist."""


class Subject(Protocol):
    """What a judge can run."""

    @property
    def ranks(self) -> int:
        """Number of ranks."""

    def blocks(self, rank: int) -> int:
        """Agents of a rank."""

    def enter(self, world: World) -> None:
        """Makes memory, queues and counters for a new run."""

    def block(self, world: World, rank: int, block: int, call: int) -> Agent:
        """One call of one agent."""

    def fill(self, world: World, rank: int, call: int) -> None:
        """Writes the input of a call, and garbage into what the call has to write."""

    def compare(self, world: World, rank: int, call: int) -> str | None:
        """What is wrong with the result that a rank reads at its end."""

    def left(self) -> str | None:
        """What is left over after the last call."""


class World:
    """One run in one order. Every rank has a host, which enters its calls one after the other; the host's agents run
    between its start and its end. A posted write belongs to an agent of its own, the port of its block."""

    def __init__(self, subject: Subject, chance: Random) -> None:
        self.chance, self.subject = chance, subject
        self.hosts = list(range(subject.ranks))
        self.places = [(rank, block) for rank in range(subject.ranks) for block in range(subject.blocks(rank))]
        self.agents = subject.ranks + 2 * len(self.places)
        self.clocks = [np.zeros(self.agents, np.int64) for _ in range(self.agents)]
        self.owner = [*self.hosts, *(rank for rank, _ in self.places), *(rank for rank, _ in self.places)]
        self.me = 0
        self.entered = [[] for _ in self.hosts]  # type: list[list[Array]]
        self.ended = {place: 0 for place in self.places}
        self.posted = {place: deque() for place in self.places}  # type: dict[tuple[int, int], deque[Posted]]

    def run(self) -> None:
        """Runs all calls; raises WrongError."""
        self.subject.enter(self)
        programs = [self._host(rank) for rank in self.hosts]
        programs += [self._block(at, place) for at, place in enumerate(self.places, len(self.hosts))]
        programs += [self._port(place) for place in self.places]
        waiting: list[Turn] = [None] * self.agents
        live, hosts = list(range(self.agents)), set(self.hosts)
        by_rank, again = self.chance.random() < 0.5, self.chance.choice([0.0, 0.02, 0.2, 1.0])
        keys = self._keys(by_rank)
        for _ in range(MOST_STEPS):
            if self.chance.random() < again:
                keys = self._keys(by_rank)
            for at in sorted(live, key=keys.__getitem__) if again < 1 else self.chance.sample(live, len(live)):
                turn = waiting[at]
                if turn is not None and not turn():
                    continue
                self.me = at
                self.clocks[at][at] += 1
                try:
                    waiting[at] = next(programs[at])
                except StopIteration:
                    live.remove(at)
                    hosts.discard(at)
                break
            else:
                raise WrongError("deadlock", f"agents of ranks {sorted({self.owner[at] for at in live})} wait")
            if not hosts:
                break
        else:
            raise InvalidError("too many steps")
        if told := self.subject.left():
            raise WrongError("leftover", told)

    def _keys(self, by_rank: bool) -> list[tuple[float, float]]:
        """Priorities: of whole ranks, so that some are far ahead of others, or of agents."""
        of = [self.chance.random() for _ in self.hosts] if by_rank else [0.0] * len(self.hosts)
        return [(of[self.owner[at]], self.chance.random()) for at in range(self.agents)]

    def _host(self, rank: int) -> Agent:
        mine = [place for place in self.places if place[0] == rank]
        for call in range(CALLS):
            self.subject.fill(self, rank, call)
            self.entered[rank].append(self.clock.copy())
            yield lambda call=call: all(self.ended[place] > call for place in mine)  # type: ignore[misc]
            for at, place in enumerate(self.places, len(self.hosts)):
                if place in mine:
                    self.hear(self.clocks[at])
            if told := self.subject.compare(self, rank, call):
                raise WrongError("result", f"call {call}, rank {rank}: {told}")
            yield None

    def _block(self, at: int, place: tuple[int, int]) -> Agent:
        rank, block = place
        for call in range(CALLS):
            yield lambda call=call: len(self.entered[rank]) > call  # type: ignore[misc]
            self.hear(self.entered[rank][call])
            yield from self.subject.block(self, rank, block, call)
            yield from self.flush(place)
            self.ended[place] += 1

    def _port(self, place: tuple[int, int]) -> Agent:
        """Delivers what a block posted: in any order, but a signal after all that was posted before it."""
        queue = self.posted[place]
        while True:
            yield lambda: bool(queue)
            ahead = next((k for k, posted in enumerate(queue) if posted.signal), len(queue))
            chosen = self.chance.randrange(ahead) if ahead else 0
            posted = queue[chosen]
            self.hear(posted.clock)
            posted.effect()
            del queue[chosen]

    @property
    def clock(self) -> Array:
        """The clock of the agent whose turn it is."""
        return self.clocks[self.me]

    def hear(self, clock: Array) -> None:
        """The agent comes after everything that `clock` has heard of."""
        np.maximum(self.clocks[self.me], clock, out=self.clocks[self.me])

    def post(self, place: tuple[int, int], effect: Callable[[], None], *, signal: bool = False) -> None:
        """Hands a write or a signal to the port."""
        self.posted[place].append(Posted(effect, self.clock.copy(), signal))

    def flush(self, place: tuple[int, int]) -> Agent:
        """Waits for what the block posted."""
        queue = self.posted[place]
        if queue:
            yield lambda: not queue
        self.hear(self.clocks[len(self.hosts) + len(self.places) + self.places.index(place)])


class Posted:
    """A write or signal under way."""

    def __init__(self, effect: Callable[[], None], clock: Array, signal: bool) -> None:
        self.effect, self.clock, self.signal = effect, clock, signal


class Memory:
    """Chunks of one buffer, with the last accesses to each."""

    def __init__(self, world: World, name: str, chunks: int, width: int) -> None:
        self.world, self.name = world, name
        self.values = np.zeros((chunks, width), np.int64)
        self.writer = np.zeros(chunks, np.int64)
        self.written = np.zeros(chunks, np.int64)
        self.reads = np.zeros((chunks, world.agents), np.int64)

    def read(self, first: int, count: int = 1) -> Array:
        """A copy of some chunks."""
        part, world = self._part(first, count), self.world
        self._ordered(part)
        self.reads[part, world.me] = world.clock[world.me]
        return self.values[part].copy()

    def write(self, first: int, values: Array) -> None:
        """Changes some chunks."""
        part, world = self._part(first, len(values)), self.world
        self._ordered(part)
        if (self.reads[part] > world.clock).any():
            raise WrongError("race", f"{self.name}[{first}] is written while it may be read")
        self.values[part] = values
        self.writer[part], self.written[part] = world.me, world.clock[world.me]

    def _part(self, first: int, count: int) -> slice:
        if not 0 <= first <= first + count <= len(self.values):
            raise InvalidError(f"{self.name}[{first}:{first + count}]")
        return slice(first, first + count)

    def _ordered(self, part: slice) -> None:
        if (self.written[part] > self.world.clock[self.writer[part]]).any():
            raise WrongError("race", f"nothing orders an access to {self.name}[{part.start}] after its last write")


class Queue:
    """Messages from one agent to another, in slots that come back."""

    def __init__(self, slots: int | None) -> None:
        self.messages: deque[tuple[Array, Array]] = deque()
        self.slots = slots
        self.sent = 0
        self.freed: list[Array] = []

    def room(self) -> bool:
        """Whether a message can be sent."""
        return self.slots is None or self.sent - len(self.freed) < self.slots

    def put(self, world: World, message: Array) -> None:
        """Sends; the sender has heard of whoever freed the slot."""
        if self.slots is not None and self.sent >= self.slots:
            world.hear(self.freed[self.sent - self.slots])
        self.sent += 1
        self.messages.append((message, world.clock.copy()))

    def take(self, world: World) -> Array:
        """Receives the next message; its slot is still occupied."""
        message, clock = self.messages.popleft()
        world.hear(clock)
        return message

    def free(self, world: World) -> None:
        """Gives the slot of a message back."""
        self.freed.append(world.clock.copy())


class Counter:
    """Signals, each of which ends one wait."""

    def __init__(self, initial: int = 0) -> None:
        self.initial = initial
        self.signals: list[Array | None] = [None] * initial
        self.taken = 0

    def signal(self, world: World) -> None:
        """Adds one."""
        self.signals.append(world.clock.copy())

    def ready(self) -> bool:
        """Whether a wait ends."""
        return self.taken < len(self.signals)

    def wait(self, world: World) -> None:
        """Takes one."""
        clock = self.signals[self.taken]
        self.taken += 1
        if clock is not None:
            world.hear(clock)

    def left(self) -> int:
        """Signals that nobody waits for."""
        return len(self.signals) - self.taken - self.initial


def judge(subject: Subject, seed: str, orders: int = ORDERS) -> str | None:
    """What is wrong with a program: `result`, `deadlock`, `race`, `leftover`, or `refused` before any run; None where
    no order shows anything.

    Raises InvalidError for no program at all. The graver of a leftover and something else is told.
    """
    found = None
    for order in range(orders):
        try:
            World(subject, Random(f"{seed}/{order}")).run()
        except WrongError as wrong:
            if wrong.kind != "leftover":
                return wrong.kind
            found = wrong.kind
    return found


def early(collective: str, ranks: int, rank: int, root: int, begun: Callable[[int], bool]) -> str | None:
    """Whether a rank has ended before another began whose contribution it needs."""
    takes = rank == root or collective not in ("reduce", "gather")
    holders = [root] if collective in ("broadcast", "scatter") else range(ranks)
    late = [other for other in holders if not begun(other)] if takes else []
    return f"it ended before rank {late[0]} began" if late else None


def expected(collective: str, inputs: Sequence[Array], rank: int, root: int, op: str) -> Array | None:
    """What `rank` must hold afterwards: first axis elements or chunks; None for nothing."""
    combine = {"sum": np.add, "max": np.maximum, "min": np.minimum}[op]
    n = len(inputs)

    def block(values: Array, index: int) -> Array:
        size = len(values) // n
        return values[index * size : (index + 1) * size]

    def reduced(parts: Sequence[Array]) -> Array:
        total = parts[0]
        for part in parts[1:]:
            total = combine(total, part)
        return total

    match collective:
        case "all_reduce":
            return reduced(inputs)
        case "all_gather":
            return np.concatenate(inputs)
        case "reduce_scatter":
            return block(reduced(inputs), rank)
        case "all_to_all":
            return np.concatenate([block(values, rank) for values in inputs])
        case "broadcast":
            return inputs[root]
        case "reduce":
            return reduced(inputs) if rank == root else None
        case "gather":
            return np.concatenate(inputs) if rank == root else None
        case "scatter":
            return block(inputs[root], rank)
    raise InvalidError(collective)
