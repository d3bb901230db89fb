"""Which chunks the messages of a graph carry that says only how many bytes travel.

A graph fixes who sends how many bytes to whom, what waits for what, and which receives are added. An assignment gives
every message its chunks so that all ranks end with what a collective promises. It is searched for: messages in the
order of the graph, the chunks of a message in a fixed order, back to the last choice where a message has none left. So
the first assignment that is found is the least one in that order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import gcd
from typing import NamedTuple

TRIES = 60_000
"""Chunks of messages that one search may place, those that are taken back included."""
MOST_CHUNKS = 4096
"""Chunks of a rank's array, at most."""


class Message(NamedTuple):
    """A send and its receive."""

    src: int
    dst: int
    bytes: int
    sent: int
    """Position of the send among the messages' ends at `src`."""
    received: int
    """Position of the receive among those at `dst`."""
    adds: bool
    """Whether what arrives is added to what is there; else it takes its place."""
    label: int = -1
    """The number of a chunk in the names of its nodes; -1 without one."""


@dataclass(frozen=True)
class Sized:
    """Messages, in an order in which each follows those that it waits for."""

    ranks: int
    messages: tuple[Message, ...]
    before: tuple[tuple[int, ...], ...]
    """By rank and position of an end: which ends of the rank it waits for, as bits."""
    near: tuple[tuple[tuple[int, ...], ...], ...] = ()
    """By rank and position of an end: those of them that no other one waits between."""
    nodes: tuple[tuple[int, ...], ...] = ()
    """By rank and position of an end: the id of its node."""
    issued: tuple[tuple[int, ...], ...] = ()
    """By rank and position of a receive: the sends, as bits, that are before it though it waits for none of them."""

    @property
    def adds(self) -> bool:
        """Whether anything is added."""
        return any(message.adds for message in self.messages)

    def received(self, *, added: bool | None = None) -> list[int]:
        """Bytes that every rank receives; only those that are added or are not."""
        found = [0] * self.ranks
        for message in self.messages:
            if added is None or message.adds is added:
                found[message.dst] += message.bytes
        return found


@dataclass(frozen=True)
class Assignment:
    """The chunks of every message."""

    collective: str
    chunks: int
    """Of a rank's array, the larger of operand and result."""
    chunk_bytes: int
    root: int
    of: tuple[tuple[int, ...], ...]
    """By message: its chunks, ascending; of an all_to_all, numbered by the rank that has them first."""
    forced: bool
    """Whether no message had a choice: no other assignment does."""

    @property
    def bytes(self) -> int:
        """Of a rank's array."""
        return self.chunks * self.chunk_bytes


class Lack(NamedTuple):
    """Why a graph cannot perform a collective, where that is known."""

    rank: int
    why: str


@dataclass(frozen=True)
class Task:
    """A collective on arrays of so many chunks: who has which part of a chunk at first, and must have at the end."""

    collective: str
    ranks: int
    chunks: int
    chunk_bytes: int
    root: int = 0

    @property
    def reduces(self) -> bool:
        """Whether arrays are added."""
        return self.collective in ("all_reduce", "reduce_scatter", "reduce")

    def owner(self, chunk: int) -> int:
        """The rank of the block that a chunk is in."""
        return chunk * self.ranks // self.chunks

    def target(self, chunk: int) -> int:
        """The rank that a chunk of an all_to_all is for: a chunk has a block for every pair of ranks."""
        return chunk * self.ranks * self.ranks // self.chunks % self.ranks

    def first(self, rank: int, chunk: int) -> int:
        """The contributions that a rank has of a chunk, as bits by rank."""
        match self.collective:
            case "all_gather" | "all_to_all":
                return 1 << rank if self.owner(chunk) == rank else 0
            case "broadcast":
                return 1 << rank if rank == self.root else 0
        return 1 << rank

    def whole(self, chunk: int) -> int:
        """The contributions of a chunk that is complete."""
        match self.collective:
            case "all_gather" | "all_to_all":
                return 1 << self.owner(chunk)
            case "broadcast":
                return 1 << self.root
        return (1 << self.ranks) - 1

    def wants(self, rank: int, chunk: int) -> bool:
        """Whether a rank must end with a chunk. Of a reduce_scatter any may, and `_owners` tells which one does."""
        match self.collective:
            case "reduce_scatter":
                return False
            case "reduce":
                return rank == self.root
            case "all_to_all":
                return self.target(chunk) == rank
        return True


def tasks(graph: Sized, collectives: Sequence[str]) -> Iterator[Task]:
    """What a graph may perform, by the bytes that its ranks receive: the likeliest first."""
    n = graph.ranks
    sizes = gcd(*(message.bytes for message in graph.messages))
    most = max(message.bytes for message in graph.messages)
    received = graph.received()
    sources = [rank for rank in range(n) if not received[rank]]
    senders = {message.src for message in graph.messages}
    sinks = [rank for rank in range(n) if rank not in senders]
    for collective in collectives:
        wholes: list[tuple[int, int]] = []
        match collective:
            case "all_gather":
                wholes = [(n * bytes_, 0) for bytes_ in _shares(min(received), n - 1, sizes, most)]
            case "all_to_all":
                wholes = [(n * n * bytes_, 0) for bytes_ in _shares(min(received), n - 1, sizes, most)]
            case "broadcast" if len(sources) == 1:
                least = min(bytes_ for rank, bytes_ in enumerate(received) if rank not in sources)
                wholes = [(least, sources[0])]
            case "all_reduce" | "reduce_scatter":
                added = sum(graph.received(added=True))
                exact = [added // (n - 1)] if added % (n - 1) == 0 else []
                plain = any(not message.adds for message in graph.messages)
                if collective == "reduce_scatter":
                    wholes = [] if plain else [(bytes_, 0) for bytes_ in exact]
                elif plain:
                    wholes = [(bytes_, 0) for bytes_ in (*exact, *(most * j for j in (1, 2, *_divisors(n), n)))]
                else:
                    wholes = [(most, 0)]
            case "reduce" if len(sinks) == 1 and all(message.adds for message in graph.messages):
                sent = [sum(m.bytes for m in graph.messages if m.src == rank) for rank in range(n)]
                wholes = [(bytes_, sinks[0]) for bytes_ in (min(filter(None, sent)), most)]
        for whole, root in dict.fromkeys(wholes):
            blocks = n * n if collective == "all_to_all" else n
            parts = blocks if whole % blocks == 0 else 1
            if collective in ("all_gather", "all_to_all", "reduce_scatter") and parts == 1:
                continue
            units = [gcd(sizes, whole // parts)]
            if collective in ("all_reduce", "broadcast", "reduce"):
                # Messages of large parts of a rank's array need no finer chunks.
                units = [*dict.fromkeys((gcd(sizes, whole), *units))]
            for unit in units:
                if whole // unit <= MOST_CHUNKS * (n if collective == "all_to_all" else 1):
                    yield Task(collective, n, whole // unit, unit, root)


def _shares(received: int, parts: int, unit: int, most: int) -> list[int]:
    """Bytes of a block, of which a rank receives `parts`."""
    exact = [received // parts] if parts and received % parts == 0 and received else []
    fitting = [bytes_ for bytes_ in (unit, most) if bytes_ * parts <= received]
    return [*dict.fromkeys((*exact, *fitting))] or [unit]


def _divisors(n: int) -> list[int]:
    return [d for d in range(2, n) if n % d == 0]


def lack(graph: Sized, task: Task) -> Lack | None:
    """The first rank that cannot end with what it must, whatever the chunks: too few bytes arrive, or nothing of
    another rank's reaches it. None where the graph does not tell."""
    reach = [1 << rank for rank in range(graph.ranks)]
    known: list[list[int]] = [[0] * len(ends) for ends in graph.before]
    for message in graph.messages:
        content = 1 << message.src
        before = graph.before[message.src][message.sent]
        for at, sent in enumerate(known[message.src]):
            if before >> at & 1:
                content |= sent
        known[message.dst][message.received] = content
        reach[message.dst] |= content
    added, received = graph.received(added=True), graph.received()
    for rank in range(graph.ranks):
        chunks = [chunk for chunk in range(task.chunks) if task.wants(rank, chunk)]
        absent = [chunk for chunk in chunks if task.first(rank, chunk) != task.whole(chunk)]
        if not absent:
            continue
        missing = [
            other
            for other in range(graph.ranks)
            if not reach[rank] >> other & 1 and any(task.whole(chunk) >> other & 1 for chunk in absent)
        ]
        if missing:
            return Lack(rank, f"nothing that rank {missing[0]} has reaches it")
        if received[rank] < len(absent) * task.chunk_bytes:
            return Lack(rank, f"it receives {received[rank]} B and needs {len(absent) * task.chunk_bytes} B of others")
    if task.reduces:
        merged = sum(added)
        needed = (graph.ranks - 1) * task.chunks * task.chunk_bytes
        if merged < needed:
            return Lack(added.index(min(added)), f"{merged} B are added in all, and {needed} B have to be")
    return None


class Symmetry(NamedTuple):
    """A way to number ranks by digits, under which every rank does what rank 0 does."""

    radix: tuple[int, ...]

    def add(self, a: int, b: int) -> int:
        """The rank `b` places on from `a`, digit by digit."""
        found, scale = 0, 1
        for base in self.radix:
            found += (a % base + b % base) % base * scale
            a, b, scale = a // base, b // base, scale * base
        return found

    def less(self, a: int, b: int) -> int:
        """The place of `a` as `b` sees it."""
        found, scale = 0, 1
        for base in self.radix:
            found += (a % base - b % base) % base * scale
            a, b, scale = a // base, b // base, scale * base
        return found


def symmetries(graph: Sized) -> Iterator[Symmetry]:
    """Those of a graph, coarse ones first."""
    n = graph.ranks
    ends: list[list[tuple[object, ...]]] = [[()] * len(before) for before in graph.before]
    for message in graph.messages:
        common = (message.bytes, message.adds)
        ends[message.src][message.sent] = (True, message.dst, message.received, *common)
        ends[message.dst][message.received] = (False, message.src, message.sent, *common)
    if len({len(one) for one in ends}) > 1 or len(set(graph.before)) > 1:
        return
    radices: list[tuple[int, ...]] = [(n,)] if n > 1 else []
    radices += [(a, n // a) for a in _divisors(n)]
    radices += [(a, b, n // a // b) for a in _divisors(n) for b in _divisors(n // a)]
    if n & n - 1 == 0 and n > 4:
        radices.insert(1, (2,) * (n.bit_length() - 1))
    for radix in dict.fromkeys(radices):
        symmetry = Symmetry(radix)
        moved = (
            end[0] == base[0] and symmetry.less(end[1], rank) == base[1] and end[2:] == base[2:]  # type: ignore[arg-type]
            for rank in range(1, n)
            for end, base in zip(ends[rank], ends[0], strict=True)
        )
        if all(moved):
            yield symmetry


@dataclass
class _State:
    """What every rank has of every chunk, as far as messages are placed."""

    graph: Sized
    task: Task
    held: dict[tuple[int, int], int] = field(default_factory=dict)
    """Contributions of a chunk at a rank once everything placed has arrived, where anything has."""
    writes: dict[tuple[int, int], list[tuple[int, bool, int]]] = field(default_factory=dict)
    """Arrivals of a chunk at a rank: the end, whether it is added, and its contributions."""
    sends: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    labels: dict[int, tuple[int, ...]] = field(default_factory=dict)
    given: set[tuple[int, int]] = field(default_factory=set)
    """Ranks and chunks whose contributions were sent on to be added, where each may be only once."""
    trail: list[tuple[int, int, int, int | None, int]] = field(default_factory=list)
    """What was placed: source, target, chunk, what the target had before, and the label that it named or -1."""

    def __post_init__(self) -> None:
        added = sum(self.graph.received(added=True))
        self.once = added == (self.task.ranks - 1) * self.task.chunks * self.task.chunk_bytes
        """Whether as much is added as has to be: then every sum must be sent on whole, and once."""

    def has(self, rank: int, chunk: int) -> int:
        """The contributions of a chunk at a rank in the end, as far as is known."""
        found = self.held.get((rank, chunk))
        return self.task.first(rank, chunk) if found is None else found

    def at(self, rank: int, chunk: int, end: int) -> int:
        """The contributions that a send has, or 0 where that depends on what comes first."""
        found, before = self.task.first(rank, chunk), self.graph.before[rank]
        for arrived, added, content in self.writes.get((rank, chunk), ()):
            if before[end] >> arrived & 1:
                found = found | content if added else content
            elif not before[arrived] >> end & 1:
                return 0
        return found

    def fits(self, message: Message, chunk: int) -> int:
        """What a message carries of a chunk, 0 where it may not carry it."""
        content = self.at(message.src, chunk, message.sent)
        if not content:
            return 0
        there = self.has(message.dst, chunk)
        if message.adds:
            if (message.src, chunk) in self.given or (message.dst, chunk) in self.given:
                return 0
            if content & there or not self._in_order(message, chunk):
                return 0
            return content
        if content != self.task.whole(chunk) or content == there:
            return 0
        if self.task.collective == "all_to_all" and self.task.target(chunk) != message.dst:
            return 0
        return content if content >> message.dst & 1 or self._in_order(message, chunk) else 0

    def _in_order(self, message: Message, chunk: int) -> bool:
        """Whether what the target sends of the chunk goes before the arrival, or behind it."""
        before, arrival = self.graph.before[message.dst], message.received
        return all(
            before[arrival] >> sent & 1 or before[sent] >> arrival & 1
            for sent in self.sends.get((message.dst, chunk), ())
        )

    def place(self, message: Message, chunks: Sequence[int]) -> bool:
        """Places the chunks of a message; whether all of them may be. The caller takes them back."""
        if message.label >= 0:
            named = self.labels.get(message.label)
            if named is not None and named != tuple(chunks):
                return False
            if named is None:
                self.labels[message.label] = tuple(chunks)
                self.trail.append((-1, -1, -1, None, message.label))
        for chunk in chunks:
            content = self.fits(message, chunk)
            if not content:
                return False
            there = (message.dst, chunk)
            self.trail.append((message.src, message.dst, chunk, self.held.get(there), -1))
            self.writes.setdefault(there, []).append((message.received, message.adds, content))
            self.sends.setdefault((message.src, chunk), []).append(message.sent)
            if message.adds and self.once:
                self.given.add((message.src, chunk))
            self.held[there] = self.has(*there) | content if message.adds else content
        return True

    def back(self, length: int) -> None:
        """Takes back what was placed since the trail had this length."""
        while len(self.trail) > length:
            src, dst, chunk, held, label = self.trail.pop()
            if label >= 0:
                del self.labels[label]
                continue
            self.writes[dst, chunk].pop()
            self.sends[src, chunk].pop()
            self.given.discard((src, chunk))
            if held is None:
                del self.held[dst, chunk]
            else:
                self.held[dst, chunk] = held


def _options(state: _State, message: Message, count: int, rare: bool) -> Iterator[tuple[int, ...]]:
    """The sets of `count` chunks that a message may carry, in the order in which they are tried: what is most complete
    first, then what is nearest behind the sender's own. `rare`: what few ranks have first."""
    task = state.task
    named = state.labels.get(message.label) if message.label >= 0 else None
    if named is not None:
        yield named
        return
    taken = {chunk for chunks in state.labels.values() for chunk in chunks} if message.label >= 0 else frozenset()
    content = {
        chunk: found for chunk in range(task.chunks) if chunk not in taken and (found := state.fits(message, chunk))
    }
    if len(content) < count:
        return
    own = message.src * task.chunks // task.ranks if task.chunks >= task.ranks else 0
    near = {chunk: (chunk - own) % task.chunks for chunk in content}
    spread = {c: sum(state.has(r, c) == task.whole(c) for r in range(task.ranks)) for c in content} if rare else {}
    ordered = sorted(content, key=lambda c: (spread.get(c, 0), -content[c].bit_count(), near[c]))
    if count == 1:
        yield from ((chunk,) for chunk in ordered)
        return
    # Chunks that are equally complete travel together: neighbours, or every k-th.
    best = [chunk for chunk in ordered if content[chunk].bit_count() == content[ordered[0]].bit_count()]
    sets: dict[tuple[int, ...], None] = {}
    for pool in (best, sorted(best), ordered):
        if len(pool) < count:
            continue
        for start in (*range(0, len(pool) - count + 1, count), *range(len(pool) - count + 1)):
            sets[tuple(sorted(pool[start : start + count]))] = None
        for stride in range(2, len(pool) // count + 1):
            for start in range(stride):
                if len(picked := pool[start::stride][:count]) == count:
                    sets[tuple(sorted(picked))] = None
        for width in _divisors(count):
            # Blocks of `width` neighbours, every second one.
            for start in (0, width):
                blocks = [pool[at : at + width] for at in range(start, len(pool), 2 * width)]
                if sum(map(len, blocks)) >= count:
                    sets[tuple(sorted([chunk for block in blocks for chunk in block][:count]))] = None
    yield from sets


def search(graph: Sized, task: Task, tries: int = TRIES) -> Assignment | None:
    """The least assignment with which a graph performs a task; None where none was found in so many tries."""
    ways: list[tuple[Symmetry | None, bool, bool]] = [(one, False, True) for one in symmetries(graph)]
    ways += [(None, False, True), (None, True, True)]
    if any(message.label >= 0 for message in graph.messages):
        ways = [(None, False, True), *((symmetry, rare, False) for symmetry, rare, _ in ways)]
    bare = replace(graph, messages=tuple(message._replace(label=-1) for message in graph.messages))
    for symmetry, rare, labelled in ways:
        search_ = _Search(graph if labelled else bare, task, symmetry, rare, tries // len(ways))
        chosen = search_.run()
        if chosen is not None:
            forced = search_.forced and not (task.reduces and task.chunks > 1)
            chunks = task.chunks // task.ranks if task.collective == "all_to_all" else task.chunks
            return Assignment(task.collective, chunks, task.chunk_bytes, task.root, chosen, forced)
    return None


class _Search:
    """One way to search: with messages of ranks that do the same placed together, or one by one."""

    def __init__(self, graph: Sized, task: Task, symmetry: Symmetry | None, rare: bool, tries: int) -> None:
        self.graph, self.task, self.symmetry, self.rare, self.tries = graph, task, symmetry, rare, tries
        self.state = _State(graph, task)
        self.spent = 0
        self.forced = True
        """Whether no message had a choice."""
        self._block = task.chunks // task.ranks if task.chunks % task.ranks == 0 else 0

    def run(self) -> tuple[tuple[int, ...], ...] | None:
        """The chunks of every message, None without an answer."""
        graph, state = self.graph, self.state
        if not graph.messages or any(message.bytes % self.task.chunk_bytes for message in graph.messages):
            return None
        orbits = self._orbits()
        chosen: list[tuple[int, ...]] = [()] * len(graph.messages)
        options: list[Iterator[tuple[int, ...]]] = []
        marks: list[int] = []
        while True:
            if len(options) == len(orbits):
                owners = _owners(state)
                if owners is not None:
                    return tuple(tuple(sorted(owners[chunk] for chunk in chunks)) for chunks in chosen)
            else:
                first = graph.messages[orbits[len(options)][0]]
                found = list(_options(state, first, first.bytes // self.task.chunk_bytes, self.rare))
                self.forced = self.forced and len(found) <= 1
                options.append(iter(found))
                marks.append(len(state.trail))
                if self._advance(orbits[len(options) - 1], options[-1], chosen, marks[-1]):
                    continue
                options.pop()
                marks.pop()
            while options:
                state.back(marks[-1])
                if self.spent > self.tries:
                    return None
                if self._advance(orbits[len(options) - 1], options[-1], chosen, marks[-1]):
                    break
                options.pop()
                marks.pop()
            else:
                return None

    def _advance(
        self, orbit: Sequence[int], options: Iterator[tuple[int, ...]], chosen: list[tuple[int, ...]], mark: int
    ) -> bool:
        """Whether a further option of the messages of an orbit could be placed."""
        for option in options:
            for at in orbit:
                message = self.graph.messages[at]
                chosen[at] = self._moved(option, message.src)
                self.spent += len(option)
                if not self.state.place(message, chosen[at]):
                    break
            else:
                return True
            self.state.back(mark)
            if self.spent > self.tries:
                break
        return False

    def _orbits(self) -> list[list[int]]:
        """Messages that are placed together, rank 0's first."""
        if self.symmetry is None:
            return [[at] for at in range(len(self.graph.messages))]
        found: dict[int, list[int]] = {}
        for at, message in enumerate(self.graph.messages):
            found.setdefault(message.sent, []).append(at)
        return [sorted(orbit, key=lambda at: self.graph.messages[at].src) for orbit in found.values()]

    def _moved(self, chunks: tuple[int, ...], rank: int) -> tuple[int, ...]:
        """The chunks of a rank that does what rank 0 does with `chunks`."""
        block, symmetry = self._block, self.symmetry
        if symmetry is None or not block or not rank:
            return chunks
        if self.task.collective != "all_to_all":
            return tuple(sorted(symmetry.add(c // block, rank) * block + c % block for c in chunks))
        part = block // self.task.ranks
        places = ((c // block, c % block // part, c % part) for c in chunks)
        return tuple(sorted(symmetry.add(a, rank) * block + symmetry.add(b, rank) * part + c for a, b, c in places))


def _owners(state: _State) -> list[int] | None:
    """The number that every chunk has in the end, None where ranks lack chunks. Those of a reduce_scatter get the
    numbers of the blocks of the ranks that have them."""
    task = state.task
    for rank in range(task.ranks):
        for chunk in range(task.chunks):
            if task.wants(rank, chunk) and state.has(rank, chunk) != task.whole(chunk):
                return None
    if task.collective != "reduce_scatter":
        return list(range(task.chunks))
    block = task.chunks // task.ranks
    numbers, used = [-1] * task.chunks, [0] * task.ranks
    for chunk in range(task.chunks):
        complete = [rank for rank in range(task.ranks) if state.has(rank, chunk) == task.whole(chunk)]
        owner = next((rank for rank in complete if used[rank] < block), None)
        if owner is None:
            return None
        numbers[chunk] = owner * block + used[owner]
        used[owner] += 1
    return numbers
