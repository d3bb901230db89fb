"""One rank of a large world, played by one process: simulated time, and results as if all ranks were like this one.

The contract of uniform ranks: every rank makes the same calls with the same values as this one. So a sum is this rank's
value times the number of ranks, a gathered list holds this rank's value everywhere. A value that cannot be known so
(sends and receives, another rank's scatter list) is an error, as are sizes that differ from rank to rank. Meta and fake
tensors take part with their sizes alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray

from ahbm.base.arguments import checked, fields_fit, whole
from ahbm.base.arrays import Hollow
from ahbm.base.request import Request
from ahbm.errors import DistributedError, UnsupportedError
from ahbm.ranks.blame import call_origin
from ahbm.ranks.exchange import Exchange
from ahbm.ranks.firsts import first_checks
from ahbm.ranks.groups import Groups, ProcessGroup
from ahbm.ranks.ledger import Ledger
from ahbm.ranks.lobby import check_world_size
from ahbm.ranks.operation import Part
from ahbm.ranks.seat import Call
from ahbm.ranks.session import by, price
from ahbm.ranks.setup import Setup
from ahbm.ranks.terms import exchanged
from ahbm.ranks.ticket import Notify, Ticket
from ahbm.torch import report
from ahbm.torch.place import Place
from ahbm.torch.places import be_rank, options


class Alone:
    """The seat of `rank`, the only one of a world of `size` that is played; operations end as they are issued."""

    def __init__(self, setup: Setup, rank: int, size: int) -> None:
        self._setup = setup
        self.emulator = setup.emulator()
        check_world_size(size, self.emulator.world_size, "this world")
        self.ledger = Ledger(self.emulator, size, setup)
        self._verify = first_checks(self.emulator, setup)
        self._groups = Groups()
        self._clock_ps = 0

    def clock_ps(self, rank: int) -> int:
        """See `Seat`."""
        return self._clock_ps

    def advance(self, rank: int, ps: int) -> None:
        """See `Seat`."""
        self.ledger.history.advance(rank, ps)
        self._clock_ps += ps

    def submit(self, rank: int, call: Call) -> Ticket:
        """See `Seat`."""
        name, request = call.collective, call.terms.request
        if call.kind not in ("collective", "exchange") or (name == "scatter" and request.ranks[request.root] != rank):
            raise UnsupportedError(
                "AHBM-U152",
                f"{call.kind if call.kind != 'collective' else name} by one rank alone: "
                "what the other rank has is not known",
                hint="run all ranks: ahbm.torch.spawn or torchrun",
            )
        ticket = Ticket(rank, self.ledger.history.arrive(rank), members=(rank,))
        part = Part(ticket, call.group, call.terms, call.buffer, call.finish, self._clock_ps, call_origin())
        if isinstance(call.buffer, Exchange):
            _exchange(call.buffer, call.group.rank_of(rank))
            request = exchanged(request, [call.buffer.sends] * request.world_size)
        elif not isinstance(call.buffer, Hollow):
            _uniform(request, call.buffer, call.group.rank_of(rank))
        compiled = self.emulator.compile(request, by(self._setup, call.terms, request, self.emulator))
        if self._verify is not None:
            compiled.verify_once(self._verify)
        end_ps = self.ledger.note([part], call.group, (), compiled)
        part.settle()
        ticket.end(None, end_ps)
        return ticket

    def group(self, name: str, ranks: tuple[int, ...]) -> ProcessGroup:
        """See `Seat`."""
        return self._groups.named(name, ranks)

    def estimate(self, call: Call) -> int:
        """See `Seat`."""
        return price(call, self.emulator, self._setup).latency_ps

    def wait(self, ticket: Ticket, timeout_s: float | None = None) -> None:
        """See `Seat`."""
        self._clock_ps = max(self._clock_ps, ticket.end_ps)
        self.ledger.history.wait(ticket.rank, ticket.call)

    def settle(self, ticket: Ticket) -> None:
        """See `Seat`."""

    def detach(self, ticket: Ticket) -> None:
        """See `Seat`."""

    def absent(self, ticket: Ticket) -> tuple[int, ...]:
        """See `Seat`."""
        return ()

    def notify(self, ticket: Ticket, told: Notify) -> bool:
        """See `Seat`."""
        return False


def _exchange(exchange: Exchange, me: int) -> None:
    """Does a uniform exchange."""
    mine = exchange.sends[me]
    if set(exchange.receives) != {mine}:
        raise DistributedError(
            "AHBM-X110",
            f"all_to_all: ranks like this one would send it {mine} elements each, "
            f"but it receives {list(exchange.receives)}",
            hint="one rank alone stands for uniform ranks",
        )
    if not isinstance(exchange.target, Hollow):
        start = sum(exchange.sends[:me])
        exchange.target[:] = np.tile(exchange.source[start : start + mine], len(exchange.receives))


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


@checked
def init_alone(rank: int, world_size: int, **asked: Any) -> None:
    """Makes this process rank `rank` of `world_size` ranks, all like it: `dist.init_process_group` for one.

    `asked`: fields of `Options`. Raises what `dist.init_process_group` raises, ConfigError (AHBM-C127, C129).
    """
    fields_fit(Setup, asked)
    rank, world_size = whole("rank", rank, 0, 2**31 - 1), whole("world_size", world_size, 1, 2**31 - 1)

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
    def leave(self) -> None:
        """See `Place`."""
        assert isinstance(self.seat, Alone)
        be_rank(None)
        if self.keeper is not None:
            self.keeper.left()
        report.add(self.seat.ledger)
