"""A rank's journal: what it computed, issued and waited for, as the nodes of a Chakra trace.

The rank's thread is a chain: a COMP_NODE for the time between two calls, which waits for the chain so far. A
communication node waits for the chain where it was issued, and joins it where the rank waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ahbm._core import write_recording
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.store import make_folders
from ahbm.errors import DistributedError
from ahbm.ranks.exchange import Exchange
from ahbm.ranks.groups import ProcessGroup
from ahbm.ranks.seat import Call
from ahbm.torch.compute import Stopwatch

Fact = int | str | Sequence[int]
Family = Sequence[ProcessGroup]
"""Groups that ranks have in each other's place."""


Node = tuple[str, str, list[int], int, int, list[tuple[str, Fact]]]
"""Kind, name, nodes that it waits for, start and duration in ps, and facts."""


@dataclass(eq=False)
class Event:
    """A node."""

    number: int
    kind: str
    name: str
    deps: list[int]
    start_ps: int
    duration_ps: int = 0
    facts: dict[str, Fact] = field(default_factory=dict)
    stream: int = 0
    """The stream that a kernel was given to."""

    @property
    def lacks_sender(self) -> bool:
        """Whether it is a receive from anyone that has not ended."""
        return self.kind == "COMM_RECV_NODE" and "comm_src" not in self.facts


class Journal:
    """See above. Any thread of the rank may write to it."""

    def __init__(self, computing: Stopwatch) -> None:
        self.computing = computing
        self.events: list[Event] = []
        """The nodes; their numbers are their places."""
        self._chain: list[int] = []
        self._clock_ps = 0
        self._lock = threading.Lock()

    def compute(self) -> None:
        """Adds the time since the last call ended to the chain."""
        with self._lock:
            ps = self.computing.ps()
            if ps > 0:
                event = self._add("COMP_NODE", "compute")
                event.duration_ps = ps
                self._chain = [event.number]
                self._clock_ps += ps

    def issue(self, call: Call, me: int) -> Event:
        """Adds a communication node for `call` of rank `me`."""
        with self._lock:
            kind = f"COMM_{call.kind.upper()}_NODE" if call.kind in ("send", "recv") else "COMM_COLL_NODE"
            name = call.collective if kind == "COMM_COLL_NODE" else call.kind
            event = self._add(kind, name)
            event.facts = {"pg_name": call.group.name, "dtype": call.terms.request.dtype, **_facts(call, me)}
            return event

    def join(self, events: Iterable[Event]) -> None:
        """Later events wait for `events`."""
        with self._lock:
            self._chain += [event.number for event in events if event.number not in self._chain]

    def write(self, prefix: Path, rank: int, ranks: int, alike: Sequence[Family] | None = None) -> Path:
        """See `write`: all that there is."""
        return write(self.nodes(), prefix, rank, ranks, alike)

    def nodes(self) -> list[Node]:
        """All that there is."""
        return [(e.kind, e.name, e.deps, e.start_ps, e.duration_ps, list(e.facts.items())) for e in self.events]

    def _add(self, kind: str, name: str) -> Event:
        event = Event(len(self.events), kind, name, list(self._chain), self._clock_ps)
        self.events.append(event)
        return event


def write(nodes: Sequence[Node], prefix: Path, rank: int, ranks: int, alike: Sequence[Family] | None = None) -> Path:
    """Writes `prefix.<rank>.et`; with the families of its groups, the rank stands for all, in `prefix.0.et`.

    Raises DistributedError (AHBM-X133), FormatError.
    """
    for kind, _, _, _, _, facts in nodes:
        if kind == "COMM_RECV_NODE" and all(key != "comm_src" for key, _ in facts):
            raise DistributedError(
                "AHBM-X133",
                "a receive from anyone was recorded that nobody waited for: its sender is not known",
                hint="wait for it before the recording ends",
            )
    make_folders(prefix.parent)
    families = None if alike is None else [[(of.name, of.ranks) for of in family] for family in alike]
    return write_recording(prefix, rank, ranks, nodes, alike=families)


def _facts(call: Call, me: int) -> dict[str, Fact]:
    """The attributes of a call of rank `me`; ranks are global."""
    collective, ranks = COLLECTIVES[call.collective], call.group.ranks
    nbytes: int = call.source.nbytes
    if collective.paired:
        ends = (me, call.peer) if call.kind == "send" else (call.peer, me)
        known = {end: rank for end, rank in zip(("comm_src", "comm_dst"), ends, strict=True) if rank is not None}
        return {"comm_size": nbytes, "comm_tag": call.terms.tag, **known}
    size = {"all_gather": nbytes // len(ranks), "gather": nbytes // len(ranks), "barrier": 0}
    facts: dict[str, Fact] = {"comm_size": size.get(collective.name, nbytes), "ranks": ranks}
    if collective.reduces:
        facts["op"] = call.terms.request.op
    if collective.rooted:
        facts["root"] = ranks[call.terms.request.root]
    if (shares := call.terms.request.shares) is not None:
        facts |= {"in_splits" if collective.name == "reduce_scatter" else "out_splits": shares[0]}
    if isinstance(call.buffer, Exchange):
        facts |= {"in_splits": call.buffer.sends, "out_splits": call.buffer.receives}
    return facts
