"""The state of a run at a time: who does what, who waits for whom, what is in the queues and on the links."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from ahbm.base.arguments import refused
from ahbm.runs.history import ns

if TYPE_CHECKING:
    from ahbm._core import Program, Timeline

UNITS = {"ps": 1, "ns": 1000, "us": 1_000_000, "ms": 1_000_000_000}
NEVER = 2**64 - 1
"""The end of an operation that is not over in a deadlock, in ps."""
LISTED = 32
"""Agents, queues or links that a text lists before it only counts the rest."""


def moment(at: float | str, latency_ps: int) -> int:
    """A time in ps: a number of ns, or a text with a unit, such as "1200ns", "1.2us", "500ps" or "50%" of the run.

    Raises ConfigError (AHBM-C129) for what is no time from 0 to the end of the run.
    """
    wanted = f"a time such as 1200ns, 1.2us, 500ps or 50%, from 0 to {ns(latency_ps)} ns"
    if isinstance(at, str):
        found = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)(%|[a-z]{2})", at.strip())
        if found is None or found[2] not in (*UNITS, "%"):
            raise refused("at", wanted, at)
        number, scale = float(found[1]), latency_ps / 100 if found[2] == "%" else UNITS[found[2]]
    elif isinstance(at, bool) or not isinstance(at, int | float):
        raise refused("at", wanted, at)
    else:
        number, scale = float(at), 1000
    if not math.isfinite(number * scale) or not 0 <= round(number * scale) <= latency_ps:
        raise refused("at", wanted, at)
    return round(number * scale)


@dataclass(frozen=True)
class Awaited:
    """An operation that somebody waits for."""

    place: str
    rank: int
    what: str
    origin: str
    at_ps: int | None
    """When it will be over; None for never, in a deadlock."""

    def __str__(self) -> str:
        line = f" ({self.origin})" if self.origin else ""
        when = "and never does" if self.at_ps is None else f"by {ns(self.at_ps)} ns"
        return f"{self.place} must do {self.what}{line} {when}"


@dataclass(frozen=True)
class AgentState:
    """An agent at a time."""

    agent: int
    rank: int
    place: str
    op: int
    what: str
    origin: str
    since_ps: int
    until_ps: int | None
    """None for never, in a deadlock."""
    doing: str
    """works, ended; or what it waits for: message, slot, counter, barrier."""
    number: int
    """The value of the counter, or the number of those who have arrived at the barrier."""
    waits_for: tuple[Awaited, ...]
    """The operations that must be over before it goes on, the first few of them; none where no operation would do."""

    @property
    def waits(self) -> bool:
        """Whether somebody else must act."""
        return self.doing not in ("works", "ended")

    def __str__(self) -> str:
        line = f" ({self.origin})" if self.origin else ""
        if self.until_ps is not None and self.doing == "ended":
            return f"{self.place}: ended at {ns(self.until_ps)} ns with {self.what}{line}"
        until = "and never over" if self.until_ps is None else f"until {ns(self.until_ps)} ns"
        text = f"{self.place}: {self.what}{line}, since {ns(self.since_ps)} {until}"
        if not self.waits:
            return text
        about = {
            "message": "waits for a message",
            "slot": "waits for a free slot",
            "counter": f"waits, the counter stands at {self.number}",
            "barrier": f"waits, {self.number} have arrived",
        }[self.doing]
        by = "; ".join(map(str, self.waits_for[:2])) or "nobody has an operation left that would do"
        more = f" and {len(self.waits_for) - 2} more" if len(self.waits_for) > 2 else ""
        return f"{text}; {about}: {by}{more}"


@dataclass(frozen=True)
class MessageState:
    """A message in a queue."""

    sent_by: str
    """The line of the operation that sent it."""
    since_ps: int
    bytes: int
    claimed: bool
    """A posted receive waits for it: it has left its slot, or will at once."""


@dataclass(frozen=True)
class QueueState:
    """A queue at a time."""

    sender: str
    receiver: str
    slots: int
    free: int
    """Slots that no message occupies: sends that would not wait."""
    sent: int
    received: int
    messages: tuple[MessageState, ...]
    """The next to be received first."""

    def __str__(self) -> str:
        held = ", ".join(
            f"{one.bytes} B since {ns(one.since_ps)} ns" + (f" by {one.sent_by}" if one.sent_by else "")
            for one in self.messages[:2]
        )
        more = f" and {len(self.messages) - 2} more" if len(self.messages) > 2 else ""
        return f"{self.sender} -> {self.receiver}: {self.free} of {self.slots} slots free; {held}{more}"


@dataclass(frozen=True)
class LinkState:
    """A link that is busy."""

    name: str
    until_ps: int
    place: str
    """The place of the agent whose bytes are on it."""
    what: str
    """The operation that they belong to."""
    origin: str

    def __str__(self) -> str:
        line = f" ({self.origin})" if self.origin else ""
        return f"{self.name}: until {ns(self.until_ps)} ns, {self.what} of {self.place}{line}"


@dataclass(frozen=True)
class State:
    """A run at a time. Effects at that very time have happened."""

    program: str
    at_ps: int
    latency_ps: int
    """Of the run; in a deadlock the last progress."""
    agents: tuple[AgentState, ...]
    queues: tuple[QueueState, ...]
    counters: tuple[int, ...]
    links: tuple[LinkState, ...]
    deadlock: str = ""
    """The deadlock that the run ends in, with its code; empty for one that comes to its end."""

    @property
    def waiting(self) -> list[AgentState]:
        """The agents for which somebody else must act."""
        return [agent for agent in self.agents if agent.waits]

    def of(self, *, rank: int | None = None, place: str | None = None) -> State:
        """What concerns the agents of a rank, or those at a place such as "sip3.cube0.pe0" or "sip3".

        Raises ConfigError (AHBM-C129) when there are none.
        """
        wanted = [] if place is None else _parts(place)
        kept = [
            agent
            for agent in self.agents
            if (rank is None or agent.rank == rank) and _parts(agent.place)[: len(wanted)] == wanted
        ]
        if not kept or (place is not None and not wanted):
            what = f"rank {rank}" if place is None else place
            raise refused("rank" if place is None else "pe", "one that runs something", what)
        places = {agent.place for agent in kept}
        queues = tuple(queue for queue in self.queues if places & {queue.sender, queue.receiver})
        links = tuple(link for link in self.links if link.place in places)
        return replace(self, agents=tuple(kept), queues=queues, links=links)

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON-serialisable data."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """The state in words; what waits comes first."""
        share = 100 * self.at_ps / self.latency_ps if self.latency_ps else 100.0
        yield f"{self.program} at {ns(self.at_ps)} ns ({share:.1f} % of {ns(self.latency_ps)} ns, simulated)"
        if self.deadlock:
            yield f"nothing moves after {ns(self.latency_ps)} ns: {self.deadlock}"
        yield f"agents: {len(self.waiting)} of {len(self.agents)} wait"
        yield from _some(sorted(self.agents, key=lambda agent: not agent.waits), "agents")
        held = [queue for queue in self.queues if queue.messages]
        yield "queues with messages:" if held else "no queue has a message"
        yield from _some(held, "queues")
        if self.counters:
            shown = ", ".join(f"{number}: {value}" for number, value in enumerate(self.counters[:LISTED]))
            yield f"counters: {shown}" + (" ..." if len(self.counters) > LISTED else "")
        yield "busy links:" if self.links else "no link is busy"
        yield from _some(self.links, "links")

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _some(what: Any, name: str) -> Iterator[str]:
    yield from (f"  {one}" for one in what[:LISTED])
    if len(what) > LISTED:
        yield f"  ... and {len(what) - LISTED} more {name}"


def _parts(place: str) -> list[tuple[str, int]]:
    """A place as `sip 3 cube 0 pe 0` or `sip3.cube0` names it, from the outside in; nothing for what is none."""
    parts = re.findall(r"([a-z]+)[ ]?([0-9]{1,9})", place.lower())
    return [(kind, int(number)) for kind, number in parts]


def state(program: Program, timeline: Timeline, detailed: Timeline, at_ps: int) -> State:
    """The state at `at_ps`. `timeline` is recorded, `detailed` has detail; both are of `program`."""
    agents, queues, counters = timeline.state(at_ps)
    ranks = program.ranks
    places = [program.place(agent) for agent in range(program.agents)]

    def awaited(agent: int, op: int) -> Awaited:
        what, origin = program.describe(agent, op)
        end = int(timeline.spans(agent)[1][op])
        return Awaited(places[agent], ranks[agent], what, origin, end if end != NEVER else None)

    found = []
    for agent, doing in enumerate(agents):
        if doing is None:
            continue
        op, since, until, phase, number, by = doing
        what, origin = program.describe(agent, op)
        waits = tuple(awaited(*one) for one in by)
        found.append(
            AgentState(agent, ranks[agent], places[agent], op, what, origin, since, until, phase, number, waits)
        )
    held = []
    for sender, receiver, slots, free, sent, received, messages in queues:
        inside = tuple(
            MessageState(program.describe(sender, op)[1], since, size, claimed is not None)
            for op, since, size, claimed in messages
        )
        held.append(QueueState(places[sender], places[receiver], slots, free, sent, received, inside))
    busy = []
    for _, name, until, agent, op in detailed.busy_links(at_ps):
        what, origin = program.describe(agent, op)
        busy.append(LinkState(name, until, places[agent], what, origin))
    stuck = "" if timeline.deadlock is None else f"{timeline.deadlock.code} {timeline.deadlock.message}"
    latency_ps = timeline.latency_ps
    return State(program.name, at_ps, latency_ps, tuple(found), tuple(held), tuple(counters), tuple(busy), stuck)
