"""One rank of a large world, played by one process: simulated time, and results as if all ranks were like this one.

The contract of uniform ranks: every rank makes the same calls with the same values as this one. So a sum is this rank's
value times the number of ranks, a gathered list holds this rank's value everywhere. What cannot be known that way
(sends and receives, another rank's scatter list) is an error, as are sizes that differ from rank to rank. Meta and fake
tensors take part with their sizes alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray

from ahbm.blame import call_origin
from ahbm.elements import element
from ahbm.errors import DistributedError, UnsupportedError
from ahbm.exchange import Exchange
from ahbm.operation import Operation, Part
from ahbm.session import Call, Session, Setup, check_world_size
from ahbm.torch import report
from ahbm.torch.place import Place, be_rank, options
from ahbm.torch.tensors import hollow, is_hollow
from ahbm.world import World


class Alone(Session):
    """A session whose only rank is `rank`."""

    def __init__(self, setup: Setup, rank: int, size: int) -> None:
        emulator = setup.emulator()
        check_world_size(size, emulator.world_size, "this world")
        super().__init__(setup, emulator, World(size))
        self._rank = rank

    def submit(self, rank: int, call: Call) -> Part:
        """See `Seat`; the operation has ended when this returns."""
        clock_ps = self.world.ranks[rank].clock_ps
        part = Part(rank, call.terms, call.buffer, call.finish, clock_ps, call_origin())
        name = str(call.terms["collective"])
        if call.kind not in ("collective", "exchange") or (name == "scatter" and call.terms["root"] != rank):
            raise UnsupportedError(
                "AHBM-U152",
                f"{call.kind if call.kind != 'collective' else name} by one rank alone: "
                "what the other rank has is not known",
                hint="run all ranks: ahbm.torch.spawn or torchrun",
            )
        operation = Operation(name, (rank,), self._performers["collective"])
        operation.add(part)
        part.call = self.history.arrive(rank)
        operation.end_ps = self._play(operation, call)
        part.settle()
        operation.done = True
        return part

    def _play(self, operation: Operation, call: Call) -> int:
        part, group = operation.parts[self._rank], call.group
        me, n = group.rank_of(self._rank), group.size()
        if isinstance(call.buffer, Exchange):
            part.buffer = _exchanged(call.buffer, me)
        elif not is_hollow(call.buffer):
            _uniform(call, me, n)
        return self._run(operation, (), self._collective([part])[0], [part.buffer] * n, data=False)


def _exchanged(exchange: Exchange, me: int) -> NDArray[Any]:
    """Does a uniform exchange; returns an array as long as the padded one."""
    mine = exchange.sends[me]
    if set(exchange.receives) != {mine}:
        raise DistributedError(
            "AHBM-X110",
            f"all_to_all: ranks like this one would send it {mine} elements each, "
            f"but it receives {list(exchange.receives)}",
            hint="one rank alone stands for uniform ranks",
        )
    if not is_hollow(exchange.target):
        start = sum(exchange.sends[:me])
        exchange.target[:] = np.tile(exchange.source[start : start + mine], len(exchange.receives))
    return hollow(Exchange.padded_size([exchange]) * len(exchange.sends), exchange.source.dtype)


def _uniform(call: Call, me: int, n: int) -> None:
    """The result of a collective between `n` ranks like this one."""
    name, op, buffer = call.terms["collective"], str(call.terms.get("op") or ""), call.buffer
    if name in ("all_gather", "gather"):
        chunks = buffer.reshape(n, -1)
        chunks[:] = chunks[me].copy()
    elif op:
        stored = element(str(call.terms["dtype"]))
        if op == "bxor" and n % 2 == 0:
            buffer[:] = 0
        elif op in ("sum", "prod") and stored.is_float:
            values = stored.decode(buffer)
            buffer[:] = stored.encode(values * n if op == "sum" else values**n)
        elif op in ("sum", "prod"):
            factor = np.array(n).astype(buffer.dtype)
            buffer[:] = buffer * factor if op == "sum" else buffer ** np.array(n, buffer.dtype)


def init_alone(rank: int, world_size: int, **asked: Any) -> None:
    """Makes this process rank `rank` of `world_size` ranks, all like it: `dist.init_process_group` for one.

    `asked`: fields of `Options`. Raises what `dist.init_process_group` raises, ConfigError (AHBM-C127).
    """

    def make(_: Setup) -> Place:
        session = Alone(options(asked).sized(world_size), rank, world_size)
        return _AlonePlace(session, rank, range(world_size), moves_data=False)

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
        report.add(self.seat)
