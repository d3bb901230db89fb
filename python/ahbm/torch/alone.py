"""One rank of a large world, played by one process: simulated time, and results as if all ranks were like this one.

The contract of uniform ranks: every rank makes the same calls with the same values as this one. So a sum is this rank's
value times the number of ranks, a gathered list holds this rank's value everywhere. A value that cannot be known so
(sends and receives, another rank's scatter list) is an error, as are sizes that differ from rank to rank, and calls of
groups whose like on other ranks are not known (`ahbm.torch.families`). Meta and fake tensors take part with their sizes
alone.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray

from ahbm.base.arguments import checked, fields_fit, whole
from ahbm.base.arrays import Hollow
from ahbm.base.request import Request
from ahbm.errors import DistributedError, UnsupportedError
from ahbm.ranks.blame import call_origin
from ahbm.ranks.choosing import Choosing
from ahbm.ranks.exchange import Exchange
from ahbm.ranks.firsts import first_checks
from ahbm.ranks.groups import Groups, ProcessGroup
from ahbm.ranks.history import ADVANCE, ARRIVE, WAIT, History
from ahbm.ranks.ledger import KNOWN_CALLS, Ledger
from ahbm.ranks.lobby import check_world_size
from ahbm.ranks.operation import Part
from ahbm.ranks.seat import Call
from ahbm.ranks.session import price
from ahbm.ranks.setup import Setup
from ahbm.ranks.terms import Terms, exchanged
from ahbm.ranks.ticket import Notify, Ticket
from ahbm.torch import report
from ahbm.torch.families import Families, Family, watch
from ahbm.torch.place import Place
from ahbm.torch.places import be_rank, options, places

if TYPE_CHECKING:
    from ahbm.core.compiled import Compiled
    from ahbm.source.algorithm import Algorithm


COMPARED_BYTES = 1 << 26
"""Data of all ranks up to which the results of a call are compared with numbers, though no call moves any."""


class _Performed(NamedTuple):
    """A call that every rank makes."""

    call: int
    """Its number among those of a rank."""
    family: Family
    request: Request
    """What this rank's group performs."""
    terms: Terms
    origin: str


def _nothing(_: Ticket) -> None:
    pass


class Alone:
    """The seat of `rank`, the only one of a world of `size` that is played; operations end as they are issued.

    While it makes a call, the others of its kind make theirs, in the groups of the same family.
    """

    def __init__(self, setup: Setup, rank: int, size: int) -> None:
        self.emulator = setup.emulator()
        check_world_size(size, self.emulator.world_size, "this world")
        self.families = Families(size)
        self._rank, self._size = rank, size
        self._choosing = Choosing(self.emulator, setup)
        self._ledger = Ledger(self.emulator, size)
        self._undone: list[tuple[int, int | _Performed]] = []
        """Steps that the ledger does not have yet: a kind, and picoseconds, a call, or what all ranks perform."""
        self._calls = 0
        self._latest: dict[ProcessGroup, int] = {}
        """Per group, the end of its latest call."""
        self._known: dict[tuple[Request, str | Algorithm, Family], int] = {}
        """What the calls of a family take together."""
        self._verify = first_checks(self.emulator, setup, COMPARED_BYTES)
        self._groups = Groups()
        self._clock_ps = 0

    @property
    def ledger(self) -> Ledger:
        """The calls of all ranks."""
        history, undone = self._ledger.history, self._undone
        self._undone = []
        for kind, value in undone:
            for rank in range(self._size):
                if kind == ADVANCE:
                    history.advance(rank, cast(int, value))
                elif kind == ARRIVE:
                    history.arrive(rank)
                else:
                    history.wait(rank, cast(int, value))
            if kind == ARRIVE:
                self._perform(cast(_Performed, value))
        return self._ledger

    def _perform(self, made: _Performed) -> None:
        """Writes a call of every rank down."""
        for group, compiled in zip(made.family, self._compiled(made.request, made.terms, made.family), strict=True):
            terms = made.terms._replace(request=made.terms.request.among(group.ranks))
            parts = [
                Part(Ticket(rank, made.call, members=group.ranks), group, terms, None, _nothing, 0, made.origin)
                for rank in group.ranks
            ]
            rule = self._choosing.by(made.terms, compiled.request).rule
            self._ledger.note(parts, group, (), compiled, rule)

    def _compiled(self, request: Request, terms: Terms, family: Family) -> list[Compiled]:
        """What the groups of a family run where one of them makes this call."""
        found = []
        for group in family:
            of = request if group.ranks == tuple(request.ranks) else request.among(group.ranks)
            found.append(self._choosing.compile(terms, of))
        return found

    def clock_ps(self, rank: int) -> int:
        """See `Seat`."""
        return self._clock_ps

    def advance(self, rank: int, ps: int) -> None:
        """See `Seat`."""
        if ps:
            self._undone.append((ADVANCE, ps))
        self._clock_ps += ps

    def submit(self, rank: int, call: Call) -> Ticket:
        """See `Seat`. Raises UnsupportedError: AHBM-U152 for a call whose result another rank knows, U157 for one of a
        group that others have nothing in the place of."""
        name, request = call.collective, call.terms.request
        if call.kind not in ("collective", "exchange") or (name == "scatter" and request.ranks[request.root] != rank):
            raise UnsupportedError(
                "AHBM-U152",
                f"{call.kind if call.kind != 'collective' else name} by one rank alone: "
                "what the other rank has is not known",
                hint="run all ranks: ahbm.torch.spawn or torchrun",
            )
        family = self.families.of(call.group)
        if isinstance(call.buffer, Exchange):
            request = exchanged(request, _exchange(call.buffer, call.group.rank_of(rank)))
        elif not isinstance(call.buffer, Hollow):
            _uniform(request, call.buffer, call.group.rank_of(rank))
        compiled = self._choosing.compile(call.terms, request)
        if self._verify is not None:
            compiled.verify_once(self._verify)
        ticket = Ticket(rank, self._calls, call_origin(), members=(rank,))
        self._undone.append((ARRIVE, _Performed(self._calls, family, request, call.terms, ticket.origin)))
        self._calls += 1
        start_ps = max(self._clock_ps, self._latest.get(call.group, 0))
        end_ps = self._latest[call.group] = start_ps + self._together(compiled, call.terms, family)
        ticket.result = call.finish(ticket)
        ticket.end(None, end_ps)
        return ticket

    def _together(self, compiled: Compiled, terms: Terms, family: Family) -> int:
        """What a call takes this rank while the others of the family make theirs."""
        key = (compiled.request, compiled.by, family)
        if (known := self._known.get(key)) is not None:
            return known
        if len(family) == 1:
            taken = compiled.latency_ps
        else:
            history = History(self._size)
            for rank in range(self._size):
                history.arrive(rank)
            for group, one in zip(family, self._compiled(compiled.request, terms, family), strict=True):
                # They start together, so what each takes alone only says that it takes any time.
                history.perform([(rank, 0) for rank in group.ranks], -1, one.program, compiled.latency_ps)
            taken = int(history.times(self.emulator.machine).calls[self._rank][0, 2])
        if len(self._known) >= KNOWN_CALLS:
            self._known.clear()
        self._known[key] = taken
        return taken

    def group(self, name: str, ranks: tuple[int, ...]) -> ProcessGroup:
        """See `Seat`."""
        return self._groups.named(name, ranks)

    def estimate(self, call: Call) -> int:
        """See `Seat`."""
        return price(call, self._choosing).latency_ps

    def wait(self, ticket: Ticket, timeout_s: float | None = None) -> None:
        """See `Seat`."""
        self._clock_ps = max(self._clock_ps, ticket.end_ps)
        self._undone.append((WAIT, ticket.call))

    def settle(self, ticket: Ticket) -> None:
        """See `Seat`."""

    def detach(self, ticket: Ticket) -> None:
        """See `Seat`."""

    def absent(self, ticket: Ticket) -> tuple[int, ...]:
        """See `Seat`."""
        return ()

    def notify(self, ticket: Ticket, callback: Notify) -> bool:
        """See `Seat`."""
        return False


def _exchange(exchange: Exchange, me: int) -> list[tuple[int, ...]]:
    """Does an exchange of ranks like this one; returns what every rank sends to each.

    Alike is what all ranks send, or what all receive: the way back from ranks that have got unlike shares. There it is
    known how much comes from whom, but not what."""
    mine = exchange.sends[me]
    if set(exchange.receives) == {mine}:
        if not isinstance(exchange.target, Hollow):
            start = sum(exchange.sends[:me])
            exchange.target[:] = np.tile(exchange.source[start : start + mine], len(exchange.receives))
        return [tuple(exchange.sends)] * len(exchange.receives)
    if set(exchange.sends) == {exchange.receives[me]} and isinstance(exchange.target, Hollow):
        return [(size,) * len(exchange.sends) for size in exchange.receives]
    raise DistributedError(
        "AHBM-X110",
        f"all_to_all: ranks like this one would send it {mine} elements each, "
        f"but it receives {list(exchange.receives)}",
        hint="one rank alone stands for uniform ranks",
    )


def _uniform(request: Request, buffer: NDArray[Any], me: int) -> None:
    """The result of a collective between ranks like this one."""
    n, op = request.world_size, request.op
    if not request.reduces:
        # Contributions are alike, wherever in its array a rank holds its own.
        mine, given = request.held(me), buffer.copy()
        for start, stop, ((whose, at),) in request.expected(me) if mine else ():
            first = mine[0][0] + at - request.held(whose)[0][0]
            buffer[start:stop] = given[first : first + stop - start]
    else:
        stored = request.element
        if op == "bxor" and n % 2 == 0:
            buffer[:] = 0
        elif op in ("sum", "prod") and stored.is_float:
            values = stored.decode(buffer)
            buffer[:] = stored.encode(values * n if op == "sum" else values**n)
        elif op in ("sum", "prod"):
            factor = np.array(n).astype(buffer.dtype)
            buffer[:] = buffer * factor if op == "sum" else buffer ** np.array(n, buffer.dtype)


def _playing() -> Families | None:
    return next((place.seat.families for place in places() if isinstance(place.seat, Alone)), None)


@checked
def init_alone(rank: int, world_size: int, **asked: Any) -> None:
    """Makes this process rank `rank` of `world_size` ranks, all like it: `dist.init_process_group` for one.

    `asked`: fields of `Options`. Raises what `dist.init_process_group` raises, ConfigError (AHBM-C127, C129).
    """
    fields_fit(Setup, asked)
    rank, world_size = whole("rank", rank, 0, 2**31 - 1), whole("world_size", world_size, 1, 2**31 - 1)

    watch(_playing)

    def make(_: Setup) -> Place:
        session = Alone(options(asked).sized(world_size), rank, world_size)
        return _AlonePlace(session, rank, range(world_size), lambda: session.emulator, moves_data=False)

    be_rank([], make)
    try:
        dist.init_process_group("ahbm", rank=rank, world_size=world_size, store=dist.HashStore())
    except BaseException:
        be_rank(None)
        raise


class _AlonePlace(Place):
    agrees = False

    def leave(self) -> None:
        """See `Place`."""
        assert isinstance(self.seat, Alone)
        be_rank(None)
        if self.keeper is not None:
            self.keeper.leaves()
            self.keeper.left()
        if os.environ.get(report.ENV):
            report.add(self.seat.ledger)
