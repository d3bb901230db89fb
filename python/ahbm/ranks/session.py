"""One generation of a world's process groups, and how their collectives are performed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ahbm.base.request import Request
from ahbm.ranks.blame import call_origin
from ahbm.ranks.choosing import By, Choosing
from ahbm.ranks.exchange import Exchange
from ahbm.ranks.firsts import first_checks
from ahbm.ranks.groups import Groups, ProcessGroup
from ahbm.ranks.history import Times
from ahbm.ranks.ledger import KNOWN_CALLS, Ledger
from ahbm.ranks.mail import Letter
from ahbm.ranks.operation import Operation, Part, Performer, Ready
from ahbm.ranks.seat import Call
from ahbm.ranks.setup import Setup
from ahbm.ranks.terms import Terms, between, exchanged
from ahbm.ranks.ticket import Notify, Ticket
from ahbm.ranks.world import World

if TYPE_CHECKING:
    from ahbm.core.compiled import Compiled
    from ahbm.core.emulator import Emulator
    from ahbm.source.algorithm import Algorithm

_TIME = Terms(Request("the simulated time", (), 0))
QUICK_BYTES = 16 << 20
"""Data that any thread may move; more is left to the one that Ctrl-C reaches."""


class Answer(NamedTuple):
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
        self.choosing = Choosing(emulator, setup)
        self.ledger = Ledger(emulator, world.size)
        self._verify = first_checks(emulator, setup)
        self._made: list[ProcessGroup] = []
        self._groups = Groups(self.world_group)
        self._small: dict[Request, bool] = {}
        """Whether so little data is in a request that any thread may move them."""
        self._performers: dict[str, Performer] = {
            "collective": self._collective,
            "exchange": self._exchange,
            "new_group": lambda operation: Ready(True, partial(self._make_group, operation)),
            "agreement": lambda operation: Ready(True, partial(self._agree, operation)),
        }

    def clock_ps(self, rank: int) -> int:
        """See `Seat`."""
        return self.world.ranks[rank].clock_ps

    def advance(self, rank: int, ps: int) -> None:
        """See `Seat`."""
        self.ledger.history.advance(rank, ps)
        self.world.ranks[rank].clock_ps += ps

    def submit(self, rank: int, call: Call) -> Ticket:
        """See `Seat`."""
        ticket = Ticket(rank, origin=call_origin(), touches=call.touches)
        self.enter(ticket, call, self.world.ranks[rank].clock_ps, ticket.origin)
        return ticket

    def enter(self, ticket: Ticket, call: Call, clock_ps: int, origin: str) -> None:
        """Lets the ticket's rank take part in what `call` asks for: at its simulated time `clock_ps`, at `file:line`
        `origin`."""
        rank = ticket.rank
        part = Part(ticket, call.group, call.terms, call.buffer, call.finish, clock_ps, origin, call.why)
        if call.after:
            part.load, part.after = call.read, self.world.under_way(call.after)
        part.supplied, part.style = not call.supplied, call.style
        ticket.call = self.ledger.history.arrive(rank)
        if call.kind in ("send", "recv"):
            sends = call.kind == "send"
            src, dst = (rank, call.peer) if sends else (call.peer, rank)
            assert dst is not None
            self.world.post(call.group, Letter(src, dst, call.terms.tag, part), sends=sends, performer=self._pair)
        else:
            self.world.meet(call.group, part, call.collective, self._performers[call.kind])

    def wait(self, ticket: Ticket, timeout_s: float | None = None) -> None:
        """See `Seat`."""
        self.world.wait(ticket, timeout_s)
        self.ledger.history.wait(ticket.rank, ticket.call)

    def times_for(self, rank: int) -> Times:
        """When everything happened, once nothing that other ranks have yet to do can change what `rank`, the calling
        thread, has seen: blocks until they wait, have returned, or ask at a later simulated time."""
        while True:
            answers: list[Answer] = []
            self.world.ask(Part(Ticket(rank), self.world_group, _TIME, answers, _kept, 0, call_origin()), self._clock)
            if answers[0].rank == rank:
                return answers[0].times

    def _clock(self, operation: Operation) -> Ready:
        return Ready(False, partial(self._answer, operation))

    def _answer(self, operation: Operation) -> int:
        """Only the earliest of those that ask is told: it may yet do something that overlaps what the others did."""
        times = self.ledger.times()
        first = min(operation.members, key=lambda rank: (times.clocks[rank], rank))
        for part in operation.ordered():
            part.buffer.append(Answer(first, times))
        return 0

    def settle(self, ticket: Ticket) -> None:
        """See `Seat`."""
        self.world.settle(ticket)

    def detach(self, ticket: Ticket) -> None:
        """See `Seat`."""
        self.world.detach(ticket)

    def absent(self, ticket: Ticket) -> tuple[int, ...]:
        """See `Seat`."""
        return self.world.absent(ticket)

    def notify(self, ticket: Ticket, callback: Notify) -> bool:
        """See `Seat`."""
        return self.world.notify(ticket, callback)

    def group(self, name: str, ranks: tuple[int, ...]) -> ProcessGroup:
        """See `Seat`."""
        return self._groups.named(name, ranks)

    def estimate(self, call: Call) -> int:
        """See `Seat`."""
        return price(call, self.choosing).latency_ps

    def _collective(self, operation: Operation) -> Ready:
        parts = operation.ordered()
        return self._ready(parts, (), parts[0].terms.request, [part.buffer for part in parts])

    def _exchange(self, operation: Operation) -> Ready:
        """An all-to-all, in rooms that are as large as the largest of all."""
        parts = operation.ordered()
        sides: list[Exchange] = [part.buffer for part in parts]
        request = exchanged(parts[0].terms.request, [side.sends for side in sides])
        by = self.choosing.by(parts[0].terms, request)

        def perform() -> int:
            padded = Exchange.pad(sides, operation.label)
            end_ps = self._perform(parts, (), request, padded, by)
            for side, result in zip(sides, padded, strict=True):
                side.unpad(result)
            return end_ps

        return Ready(self._is_quick(request, by.algorithm), perform)

    def _pair(self, operation: Operation) -> Ready:
        """A matched send and receive."""
        src, dst = operation.members
        parts = operation.ordered()
        terms, ordered = parts[0].terms, parts if src < dst else parts[::-1]
        request = between(terms.request, src, dst)
        return self._ready(parts, (src, dst, terms.tag), request, [part.buffer for part in ordered])

    def _make_group(self, operation: Operation) -> int:
        """Creates the group that all ranks asked for with `new_group`; takes no simulated time."""
        parts = operation.ordered()
        group = ProcessGroup(f"group {len(self._made) + 1}", tuple(parts[0].terms.request.ranks))
        self._made.append(group)
        for part in parts:
            part.buffer.append(group)
        self.ledger.history.perform([(part.rank, part.ticket.call) for part in parts], -1, None, 0)
        return max(part.clock_ps for part in parts)

    def _agree(self, operation: Operation) -> int:
        """All ranks have come with the same terms; takes no simulated time."""
        parts = operation.ordered()
        self.ledger.history.perform([(part.rank, part.ticket.call) for part in parts], -1, None, 0)
        return max(part.clock_ps for part in parts)

    def _ready(
        self, parts: list[Part], lane: tuple[object, ...], request: Request, buffers: list[NDArray[Any]]
    ) -> Ready:
        by = self.choosing.by(parts[0].terms, request)
        return Ready(self._is_quick(request, by.algorithm), partial(self._perform, parts, lane, request, buffers, by))

    def _is_quick(self, request: Request, algorithm: str | Algorithm) -> bool:
        small = self._small.get(request)
        if small is None:
            if len(self._small) >= KNOWN_CALLS:
                self._small.clear()
            small = not self.setup.accumulate and request.nbytes * request.parties <= QUICK_BYTES
            self._small[request] = small
        return small and self.emulator.is_known(request, algorithm)

    def _perform(
        self,
        parts: list[Part],
        lane: tuple[object, ...],
        request: Request,
        buffers: list[NDArray[Any]],
        by: By,
    ) -> int:
        """Runs one request on the emulator; returns its end in simulated ps, had it run alone."""
        if self.setup.accumulate == "f32" and request.element.narrow and request.reduces:
            compiled = self.emulator.compile(request, by.algorithm)
            self._accumulate(request, buffers, by.algorithm)
        else:
            compiled = self.emulator.perform(request, buffers, by.algorithm, verify=self._verify)
        return self.ledger.note(parts, parts[0].group, lane, compiled, by.rule)

    def _accumulate(self, request: Request, buffers: list[NDArray[Any]], algorithm: str | Algorithm) -> None:
        """Moves the data of a reduction in f32, rounding once at the end."""
        stored = request.element
        wide = [stored.decode(buffer).astype(np.float32) for buffer in buffers]
        self.emulator.perform(replace(request, dtype="f32"), wide, algorithm, verify=self._verify)
        for buffer, sums in zip(buffers, wide, strict=True):
            buffer[...] = stored.encode(sums)


def price(call: Call, choosing: Choosing) -> Compiled:
    """The program that `call` would run, were it performed with the like of its group."""
    request = replace(call.terms.request, root=0)
    if request.kind.paired:
        request = request.among(call.group.ranks[:2])
    elif isinstance(call.buffer, Exchange):
        request = exchanged(request, [call.buffer.sends] * request.world_size)
    return choosing.compile(call.terms, request)


def _kept(_: Ticket) -> None:
    pass
