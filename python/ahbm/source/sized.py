"""Graphs that say how many bytes travel, not which: read for their messages, and made plans of chunks."""

from __future__ import annotations

import heapq
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from ahbm._core import Plan, PlanBuilder, Workload, plan_files
from ahbm.config.reading import PLAIN, Reading
from ahbm.errors import AhbmError
from ahbm.source.assignment import Assignment, Lack, Message, Sized, lack, search, tasks

MOST = 1 << 48
"""Bytes of a message, at most: the program of a graph knows no larger ones."""
MOST_ENDS = 4096
"""Sends and receives among which it is found out what messages through other ranks order."""

COLLECTIVES = ("all_gather", "broadcast", "all_to_all")
"""What a graph may perform that adds nothing, in the order in which it is tried."""
REDUCTIONS = ("all_reduce", "reduce_scatter", "reduce")
"""What one may perform that adds."""
_NAMES = {
    re.sub("_", "", name): name for name in ("reduce_scatter", "all_reduce", "all_gather", "all_to_all", "broadcast")
}
_LABEL = re.compile(r"chunk[\s_#:=\[(]*(\d+)", re.IGNORECASE)
_ADDS = re.compile(
    r"redu|\badd|\bsum\b|accum|^comp[\s_]*(node)?[\s_]*(tb\d+)?[\s_]*(step)?\d*$|^rr?c?s?$", re.IGNORECASE
)
_SAYS = re.compile(r"redu|\badd|\bsum\b|accum", re.IGNORECASE)
_FACTS = frozenset((b"comm_size", b"comm_src", b"comm_dst", b"comm_tag", b"pg_name"))
COMP, SEND, RECV = 4, 5, 6
"""Kinds of nodes of the schema."""


@dataclass
class Node:
    """A node of a trace, as far as messages are concerned."""

    id: int = 0
    name: str = ""
    kind: int = 0
    waits: list[int] = field(default_factory=list)
    """Ids of the nodes that it waits for."""
    facts: dict[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Assigned:
    """A graph whose messages have chunks."""

    plan: Plan
    """What moves the data: the same messages, in the same order."""
    assignment: Assignment
    note: str
    most: int
    """Bytes of the largest message."""

    @property
    def collective(self) -> str:
        """What it performs."""
        return self.assignment.collective


@dataclass(frozen=True)
class Unassigned:
    """A graph of which no assignment of chunks is known."""

    why: str
    stated: bool = False
    """Whether its names say what it should perform."""
    proven: bool = False
    """Whether no assignment exists; else none was found."""


def assigned(path: str | Path, collective: str | None = None, reading: Reading = PLAIN) -> Assigned | Unassigned:
    """The chunks of the messages in the trace at `path`.

    collective: what it performs; without one its names or its messages say so.
    """
    files = sorted(Path(path).parent.glob(f"{Path(path).name.split('.')[0]}*"))
    key = tuple((str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files if file.is_file())
    return _assigned(str(path), key, collective, reading)


@lru_cache(maxsize=64)
def _assigned(path: str, _: tuple[object, ...], collective: str | None, reading: Reading) -> Assigned | Unassigned:
    try:
        graphs = nodes(path, reading)
    except AhbmError as error:
        return Unassigned(f"it is read as an algorithm alone: {error.message}")
    named = collective or _named(path, graphs)
    found: Assigned | Unassigned | None = None
    for adding in (True, False):
        graph = messages(graphs, adding)
        if graph is None:
            continue
        if named is None and not adding:
            break
        wanted = (named,) if named is not None else (REDUCTIONS if graph.adds else COLLECTIVES)
        if named is not None and (named in REDUCTIONS) != graph.adds:
            continue
        answer = _first(graph, wanted, named is not None)
        if isinstance(answer, Assignment):
            name = Path(path).name.split(".")[0]
            files = [file.name for file in plan_files(path)]
            most = max(message.bytes for message in graph.messages)
            return Assigned(_plan(name, graph, answer, files), answer, _note(answer), most)
        found = found or answer
    return found or Unassigned("nothing of it is a message with a size")


def _first(graph: Sized, collectives: Sequence[str], stated: bool) -> Assignment | Unassigned:
    """The first of several collectives that a graph performs."""
    lacks: list[tuple[str, Lack]] = []
    given_up = False
    for task in tasks(graph, collectives):
        if (missing := lack(graph, task)) is not None:
            lacks.append((task.collective, missing))
            continue
        answer = search(graph, task)
        if answer is not None:
            return answer
        given_up = True
    if lacks and not given_up:
        what, missing = lacks[0]
        return Unassigned(f"no {what}: rank {missing.rank} cannot get what it needs, {missing.why}", stated, True)
    kinds = " or ".join(collectives)
    return Unassigned(f"no assignment of chunks was found that makes it {kinds}", stated)


def _note(answer: Assignment) -> str:
    how = "the only assignment" if answer.forced else "the first of several assignments"
    chunks = f"{answer.chunks} chunks of {answer.chunk_bytes} B"
    return f"the graph states sizes only: {how} of {chunks} that makes it {answer.collective}"


def _named(path: str, graphs: Sequence[Sequence[Node]]) -> str | None:
    """The collective that the file or its first nodes name."""
    texts = [Path(path).name, *(node.name for node in graphs[0][:1])]
    for text in texts:
        plain = re.sub(r"[^a-z]", "", text.lower())
        for short, name in _NAMES.items():
            if short in plain:
                return name
    return None


def nodes(path: str | Path, reading: Reading = PLAIN) -> list[list[Node]]:
    """The nodes of every rank, in the order of the trace. Raises as `Workload.read`."""
    with tempfile.TemporaryDirectory() as folder:
        job = Workload.read(path, lenient=reading.lenient, limits=reading.limits)
        files = job.write(Path(folder, "graph"))
        return [list(_decoded(file.read_bytes())) for file in files if file.suffix == ".et"]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        byte = data[at]
        found |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return found, at


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
        elif kind == 2:
            length, at = _varint(data, at)
            yield key >> 3, data[at : at + length]
            at += length
        else:
            at += 8 if kind == 1 else 4


def _decoded(data: bytes) -> Iterator[Node]:
    """The nodes of a file: documents with their lengths before them, the first of which is metadata."""
    at, first = 0, True
    while at < len(data):
        length, at = _varint(data, at)
        if not first:
            yield _node(data[at : at + length])
        at, first = at + length, False


def _node(data: bytes) -> Node:
    node = Node()
    for number, value in _fields(data):
        if isinstance(value, int):
            if number == 1:
                node.id = value
            elif number == 3:
                node.kind = value
            elif number in (4, 5):
                node.waits.append(value)
        elif number == 2:
            node.name = value.decode(errors="replace")
        elif number in (4, 5):
            at = 0
            while at < len(value):
                waited, at = _varint(value, at)
                node.waits.append(waited)
        elif number == 10 and value[:1] == b"\n" and (name := value[2 : 2 + value[1]]) in _FACTS:
            fact = next((found for at, found in _fields(value[2 + value[1] :]) if at > 2), 0)
            node.facts[name.decode()] = fact if isinstance(fact, int) else fact.decode(errors="replace")
    return node


def _ordered(graph: Sequence[Node]) -> list[int]:
    """Positions of the nodes, each behind those that it waits for, small ids first."""
    at = {node.id: index for index, node in enumerate(graph)}
    users: list[list[int]] = [[] for _ in graph]
    left = [0] * len(graph)
    for index, node in enumerate(graph):
        for waited in {at[id_] for id_ in node.waits if id_ in at}:
            users[waited].append(index)
            left[index] += 1
    ready = [(node.id, index) for index, node in enumerate(graph) if not left[index]]
    heapq.heapify(ready)
    found = []
    while ready:
        _, index = heapq.heappop(ready)
        found.append(index)
        for user in users[index]:
            left[user] -= 1
            if not left[user]:
                heapq.heappush(ready, (graph[user].id, user))
    return found


def messages(graphs: Sequence[Sequence[Node]], adding: bool) -> Sized | None:
    """The messages of a graph; None where a send has no size or no receive.

    adding: computations next to a receive, whose names say nothing else, add what arrived."""
    orders = [_ordered(graph) for graph in graphs]
    ends: list[list[int]] = []
    """By rank, the positions of its sends and receives, in order."""
    for graph, order in zip(graphs, orders, strict=True):
        ends.append([index for index in order if graph[index].kind in (SEND, RECV)])
    adds = [_adding(graph) if adding else {} for graph in graphs]
    waits = [_before(*each) for each in zip(graphs, orders, ends, adds, strict=True)]
    before, near = [one for one, _ in waits], [one for _, one in waits]
    issued = [_issued(*each) for each in zip(graphs, orders, ends, before, strict=True)]
    filed: dict[tuple[object, ...], tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]] = {}
    for rank, (graph, mine) in enumerate(zip(graphs, ends, strict=True)):
        for end, index in enumerate(mine):
            node = graph[index]
            size, peer = node.facts.get("comm_size"), node.facts.get("comm_dst" if node.kind == SEND else "comm_src")
            if not isinstance(size, int) or not isinstance(peer, int) or size <= 0:
                return None
            way = (rank, peer) if node.kind == SEND else (peer, rank)
            key = (node.facts.get("pg_name", ""), *way, node.facts.get("comm_tag", 0))
            filed.setdefault(key, ([], []))[node.kind == RECV].append((size, end, index))
    found: list[tuple[int, Message]] = []
    for (_, src, dst, _), (sent, received) in filed.items():
        if len(sent) != len(received):
            return None
        assert isinstance(src, int) and isinstance(dst, int)
        for (size, out, a), (_, into, b) in zip(
            sorted(sent, key=lambda e: e[0]), sorted(received, key=lambda e: e[0]), strict=True
        ):
            label = _label(graphs[src][a].name, graphs[dst][b].name)
            found.append((a, Message(src, dst, size, out, into, b in adds[dst], label)))
    if not found:
        return None
    depth = _depths([message for _, message in found], near)
    found.sort(key=lambda each: (depth[each[1].src, each[1].sent], each[1].sent, each[1].src))
    ids = tuple(tuple(graph[index].id for index in mine) for graph, mine in zip(graphs, ends, strict=True))
    all_ = tuple(message for _, message in found)
    known = [[a | b for a, b in zip(*each, strict=True)] for each in zip(before, issued, strict=True)]
    known = _caused(all_, known)
    return Sized(len(graphs), all_, tuple(map(tuple, known)), tuple(map(tuple, near)), ids, tuple(map(tuple, issued)))


def overlap_capable(path: str | Path, reading: Reading = PLAIN) -> bool:
    """Whether a computation of a graph that adds nothing waits for some of what its rank receives, and not for all.

    Raises as `nodes`.
    """
    for graph in nodes(path, reading):
        order, adds = _ordered(graph), set(_adding(graph).values())
        at = {node.id: index for index, node in enumerate(graph)}
        receives = {index for index, node in enumerate(graph) if node.kind == RECV}
        known: list[set[int]] = [set() for _ in graph]
        for index in order:
            for id_ in graph[index].waits:
                if (waited := at.get(id_)) is not None:
                    known[index] |= known[waited] | ({waited} & receives)
            if graph[index].kind == COMP and index not in adds and known[index] and known[index] != receives:
                return True
    return False


def _label(*names: str) -> int:
    for name in names:
        if (named := _LABEL.search(name)) is not None:
            return int(named[1])
    return -1


def _before(
    graph: Sequence[Node], order: Sequence[int], ends: Sequence[int], adds: Mapping[int, int]
) -> tuple[list[int], list[tuple[int, ...]]]:
    """By end: the ends that it waits for, as bits, and those of them that are next to it.

    What arrives is added when the computation in `adds` runs, so behind the sends that it waits for."""
    at = {node.id: index for index, node in enumerate(graph)}
    number = {index: end for end, index in enumerate(ends)}
    known: list[int] = [0] * len(graph)
    close: list[set[int]] = [set() for _ in graph]
    for index in order:
        for id_ in graph[index].waits:
            waited = at.get(id_)
            if waited is None:
                continue
            end = number.get(waited)
            known[index] |= known[waited] | (0 if end is None else 1 << end)
            close[index] |= close[waited] if end is None else {end}
    for index, computation in adds.items():
        own = number[index]
        for end in close[computation]:
            there = ends[end]
            if graph[there].kind == SEND and not known[there] >> own & 1:
                known[index] |= known[there] | 1 << end
                close[index].add(end)
    return [known[index] for index in ends], [tuple(sorted(close[index])) for index in ends]


def _issued(graph: Sequence[Node], order: Sequence[int], ends: Sequence[int], before: Sequence[int]) -> list[int]:
    """By receive: the sends, as bits, that wait for nothing that the receive does not wait for too. Such a send has
    left with what was there before anything arrives."""
    at = {node.id: index for index, node in enumerate(graph)}
    above: list[int] = [0] * len(graph)
    for index in order:
        for waited in (at[id_] for id_ in graph[index].waits if id_ in at):
            above[index] |= above[waited] | 1 << waited
    found = [0] * len(ends)
    for end, index in enumerate(ends):
        if graph[index].kind != RECV:
            continue
        for other, there in enumerate(ends):
            if graph[there].kind != SEND or before[end] >> other & 1 or above[there] >> index & 1:
                continue
            if not above[there] & ~above[index]:
                found[end] |= 1 << other
    return found


def _caused(all_: Sequence[Message], before: Sequence[Sequence[int]]) -> list[list[int]]:
    """`before` with what is ordered by messages through other ranks; as it is for more than `MOST_ENDS` ends."""
    starts = [0]
    for ends in before:
        starts.append(starts[-1] + len(ends))
    if starts[-1] > MOST_ENDS:
        return [list(ends) for ends in before]
    source = {starts[one.dst] + one.received: starts[one.src] + one.sent for one in all_}
    needs: list[list[int]] = []
    for rank, ends in enumerate(before):
        for end, bits in enumerate(ends):
            own = [starts[rank] + other for other in range(len(ends)) if bits >> other & 1]
            needs.append([*own, *(found for found in (source.get(starts[rank] + end),) if found is not None)])
    known: dict[int, int] = {}
    for start in range(starts[-1]):
        stack = [start]
        open_: set[int] = set()
        while stack:
            there = stack[-1]
            if there in known:
                stack.pop()
                continue
            left = [need for need in needs[there] if need not in known]
            if left and there not in open_:
                open_.add(there)
                stack.extend(left)
                continue
            # What waits in a circle is known for what it is elsewhere: it never runs.
            bits = 0
            for need in needs[there]:
                bits |= known.get(need, 0) | 1 << need
            known[there] = bits
            stack.pop()
    masks = [(1 << len(ends)) - 1 for ends in before]
    return [
        [known[starts[rank] + end] >> starts[rank] & masks[rank] & ~(1 << end) for end in range(len(ends))]
        for rank, ends in enumerate(before)
    ]


def _adding(graph: Sequence[Node]) -> dict[int, int]:
    """The receives behind which what arrived is added, and the computations that add it: those next to a receive, and
    those that say so behind a receive with neither another message nor another addition between."""
    at = {node.id: index for index, node in enumerate(graph)}
    found: dict[int, int] = {}
    close: list[set[int]] = [set() for _ in graph]
    for index in _ordered(graph):
        node = graph[index]
        waits = {at[id_] for id_ in node.waits if id_ in at}
        near = {other for other in waits if graph[other].kind == RECV}
        for other in waits:
            close[index] |= {other} if graph[other].kind in (SEND, RECV) else close[other]
        if node.kind != COMP or not _ADDS.search(node.name.strip() or "COMP"):
            continue
        behind = {other for other in close[index] if graph[other].kind == RECV}
        mine = near or (behind if _SAYS.search(node.name) else set())
        found |= dict.fromkeys(mine - found.keys(), index)
        close[index] -= mine if not near else set()
    return found


def _depths(all_: Iterable[Message], near: Sequence[Sequence[Sequence[int]]]) -> Mapping[tuple[int, int], int]:
    """By rank and end: the messages of the longest chain that it waits for. A chain through an addition is as long as
    the longest of what the addition waits for."""
    source = {(message.dst, message.received): (message.src, message.sent) for message in all_}
    known: dict[tuple[int, int], int] = {}
    for start in ((rank, end) for rank, ends in enumerate(near) for end in range(len(ends))):
        stack = [start]
        while stack:
            there = stack[-1]
            if there in known:
                stack.pop()
                continue
            rank, end = there
            needs = [(rank, other) for other in near[rank][end]]
            own = source.get(there)
            if own is not None:
                needs.append(own)
            open_ = [need for need in needs if need not in known]
            if open_:
                stack.extend(open_)
                continue
            known[there] = max((known[need] + (need in source or need == own) for need in needs), default=0)
            stack.pop()
    return known


def _linear(graph: Sized) -> list[tuple[int, int]]:
    """All ends, each behind those that it waits for."""
    depth = _depths(graph.messages, graph.near)
    message = {(one.src, one.sent): at for at, one in enumerate(graph.messages)}
    message |= {(one.dst, one.received): at for at, one in enumerate(graph.messages)}

    def key(there: tuple[int, int]) -> tuple[int, int, int]:
        return depth[there], graph.before[there[0]][there[1]].bit_count(), message[there]

    return sorted(message, key=key)


def _runs(chunks: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Neighbours among chunks: the first, and how many."""
    start = 0
    for at in range(1, len(chunks) + 1):
        if at == len(chunks) or chunks[at] != chunks[at - 1] + 1:
            yield chunks[start], at - start
            start = at


def _plan(name: str, graph: Sized, answer: Assignment, files: Sequence[str]) -> Plan:
    """The plan of thread blocks of an assignment: one for each sender and each receiver of a rank, per channel. `files`
    are those of the ranks; the line of a step is the id of its node."""
    to_all = answer.collective == "all_to_all"
    builder = PlanBuilder(
        name, answer.collective, ranks=graph.ranks, chunks=answer.chunks, root=answer.root, in_place=not to_all
    )
    space = "o" if answer.collective in ("all_gather", "broadcast") else "i"
    block = answer.chunks // graph.ranks
    if to_all:
        for rank in range(graph.ranks):
            builder.copy(rank, rank * block, rank * block, block)
    order = _linear(graph)
    place = {there: number for number, there in enumerate(order)}
    channel = _channels(graph, place)
    ends = {(message.src, message.sent): (at, True) for at, message in enumerate(graph.messages)}
    ends |= {(message.dst, message.received): (at, False) for at, message in enumerate(graph.messages)}
    left = {
        (rank, end): [other for other in range(len(each)) if bits >> other & 1]
        for rank, each in enumerate(graph.issued)
        for end, bits in enumerate(each)
        if bits
    }
    """By receive: the sends of its rank that have left before."""
    blocks: dict[tuple[int, bool, int, int], int] = {}
    steps: dict[tuple[int, int], list[int]] = {}
    arrived: dict[tuple[int, int], int] = {}
    """By rank and chunk: the step that wrote it last."""
    for rank, end in order:
        at, sends = ends[rank, end]
        message = graph.messages[at]
        peer = message.dst if sends else message.src
        key = (rank, sends, peer, channel[at])
        origin = (files[min(rank, len(files) - 1)], graph.nodes[rank][end])
        if key not in blocks:
            ways = (peer, None) if sends else (None, peer)
            blocks[key] = builder.thread_block(rank, send=ways[0], recv=ways[1], channel=channel[at], place=origin)
        waits = {step for other in graph.near[rank][end] for step in steps[rank, other]}
        chunks = answer.of[at]
        if to_all:
            own = (message.dst if sends else message.src) * block
            chunks = tuple(own + chunk % block for chunk in chunks)
        steps[rank, end] = []
        for start, count in _runs(chunks):
            written = range(start, start + count)
            after = waits | (set() if sends else {arrived[rank, c] for c in written if (rank, c) in arrived})
            for other in left.get((rank, end), ()):
                if not set(written).isdisjoint(answer.of[ends[rank, other][0]]):
                    after |= set(steps.get((rank, other), ()))
            action = "s" if sends else "rrc" if message.adds else "r"
            there = ("o" if to_all and not sends else space, start)
            step = builder.step(blocks[key], action, there, count=count, after=sorted(after), place=origin)
            steps[rank, end].append(step)
            arrived |= {} if sends else {(rank, c): step for c in written}
    return builder.finish()


def _channels(graph: Sized, place: Mapping[tuple[int, int], int]) -> dict[int, int]:
    """The channel of every message: those of one channel are received in the order in which they are sent."""
    latest: dict[tuple[int, int], list[int]] = {}
    found = {}
    for at in sorted(range(len(graph.messages)), key=lambda at: place[graph.messages[at].src, graph.messages[at].sent]):
        message = graph.messages[at]
        into = place[message.dst, message.received]
        open_ = latest.setdefault((message.src, message.dst), [])
        number = next((number for number, last in enumerate(open_) if last < into), len(open_))
        open_[number : number + 1] = [into]
        found[at] = number
    return found
