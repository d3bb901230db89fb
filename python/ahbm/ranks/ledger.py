"""The operations that the ranks of a session performed, and their cost."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ahbm.base.request import Request
from ahbm.ranks.calls import CallRecord
from ahbm.ranks.groups import ProcessGroup
from ahbm.ranks.history import History, Times
from ahbm.ranks.operation import Part

if TYPE_CHECKING:
    from ahbm.core.compiled import Compiled
    from ahbm.core.emulator import Emulator
    from ahbm.source.algorithm import Algorithm

KEPT_CALLS = 1 << 16
"""Calls of a rank that a ledger remembers."""
KNOWN_CALLS = 1 << 12
"""Different calls whose descriptions are shared between all that are equal."""


class Performed(NamedTuple):
    """The record of one rank's side of a performed operation."""

    call: int
    """Index of the call among the rank's own."""
    number: int
    """The operation's, in the session's history."""
    record: CallRecord
    """Without times."""
    origin: str
    """`file:line` of the call."""
    sends: bool
    """Of a send and receive: whether this is the send."""


class Ledger:
    """The calls of `size` ranks on one emulator."""

    def __init__(self, emulator: Emulator, size: int) -> None:
        self.emulator = emulator
        self.size = size
        self.history = History(size)
        self.watch: Callable[[Sequence[Part], ProcessGroup], object] | None = None
        """Sees all operations as they are performed."""
        self.performed: list[deque[Performed]] = [deque(maxlen=KEPT_CALLS) for _ in range(size)]
        """Per rank: its latest calls, in the order of performing."""
        self._known: dict[tuple[Request, str | Algorithm, str, str], tuple[int, CallRecord]] = {}
        """By request, algorithm, group and rule: what every such call takes in ps, and its record."""

    def note(
        self, parts: Sequence[Part], group: ProcessGroup, lane: tuple[object, ...], compiled: Compiled, rule: str
    ) -> int:
        """Writes down that `parts` have met and run `compiled`, which was chosen by a rule of `ahbm.core.choice`;
        returns their end in simulated ps, had it run alone.

        The operations of one `lane` of a group run one after the other.
        """
        if self.watch is not None:
            self.watch(parts, group)
        key = (compiled.request, compiled.by, group.name, rule)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= KNOWN_CALLS:
                self._known.clear()
            known = self._known[key] = (compiled.latency_ps, self._record(compiled, group.name, rule))
        latency_ps, record = known
        after_ps, after = group.latest.get(lane, (0, -1))
        end_ps = max([after_ps, *(part.clock_ps for part in parts)]) + latency_ps
        tickets = [part.ticket for part in parts]
        number = self.history.perform([(t.rank, t.call) for t in tickets], after, compiled.program, latency_ps)
        group.latest[lane] = (end_ps, number)
        for part, ticket in zip(parts, tickets, strict=True):
            made = Performed(ticket.call, number, record, part.origin, ticket.rank == ticket.members[0])
            self.performed[ticket.rank].append(made)
        return end_ps

    def times(self) -> Times:
        """When everything happened; for a job that has ended, or whose ranks take no steps meanwhile."""
        return self.history.times(self.emulator.machine)

    def records(self, rank: int, times: Times) -> list[tuple[Performed, CallRecord]]:
        """The performed calls of `rank` that are remembered, in the order of its program, at their times."""
        made = sorted(self.performed[rank])
        return [(call, call.record.at(*times.calls[rank][call.call, 1:].tolist())) for call in made]

    def _record(self, compiled: Compiled, group: str, rule: str) -> CallRecord:
        request = compiled.request
        # A device tensor's tiles are contributions of their own, and the size is that of one.
        return CallRecord(
            request.collective,
            group,
            request.parties,
            request.nbytes,
            request.dtype,
            request.op if request.reduces else "",
            compiled.algorithm,
            compiled.timeline_hash,
            request.root,
            rule,
            compiled.protocol,
            compiled.knobs,
            bound_ps=None if request.shares is None else self.emulator.least(request, request.ranks, compiled).ps,
        )
