"""A rank's place in a world, and which place the calling thread's groups belong to."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from ahbm.errors import ConfigError, UnsupportedError
from ahbm.exchange import Exchange
from ahbm.groups import ProcessGroup as Members
from ahbm.operation import Part
from ahbm.session import Call, Context, Seat, Session, Setup
from ahbm.torch.compute import Stopwatch
from ahbm.torch.tensors import is_hollow


class Place:
    """One rank of one world; ranks are numbered from 0 in the order of `ranks`."""

    eager_futures = False
    """Whether to wait where a future is asked for: nobody else runs while this rank's thread blocks on one."""

    def __init__(self, seat: Seat, rank: int, ranks: Sequence[int], *, moves_data: bool = True) -> None:
        self.seat = seat
        self.rank = rank
        self.index = {rank: i for i, rank in enumerate(ranks)}
        """torch's global rank -> rank in this world."""
        self.root: Members | None = None
        """The group it was opened for."""
        self.closed = False
        self._moves_data = moves_data
        self._computing = Stopwatch("none")

    def submit(self, call: Call) -> Part:
        """Issues `call` for this rank; what it has computed since its last call takes time if AHBM_COMPUTE says so.

        Raises UnsupportedError (AHBM-U153) for tensors without data, where data are moved.
        """
        if self._moves_data and is_hollow(call.buffer.source if isinstance(call.buffer, Exchange) else call.buffer):
            raise UnsupportedError(
                "AHBM-U153",
                f"{call.terms['collective']} of a tensor without data (meta, fake) among ranks that move data",
                hint="ahbm.torch.init_alone plays one rank of many, for its time; the time estimator works everywhere",
            )
        if self._computing.off:
            return self.seat.submit(self.rank, call)
        self._compute()
        part = self.seat.submit(self.rank, call)
        self._computing.start()
        return part

    def wait(self, part: Part, timeout_s: float | None) -> None:
        """See `Seat`; what the rank has computed meanwhile overlaps with the operation."""
        if self._computing.off:
            self.seat.wait(part, timeout_s)
            return
        self._compute()
        self.seat.wait(part, timeout_s)
        self._computing.start()

    def _compute(self) -> None:
        if ps := self._computing.ps():
            self.seat.advance(self.rank, ps)

    def estimate(self, call: Call) -> float:
        """Simulated microseconds of `call`, were it performed; moves no data."""
        return self.seat.estimate(call) / 1e6

    def group(self, name: str, ranks: Sequence[int]) -> Members:
        """The group of these ranks of this world."""
        return self.seat.group(name, tuple(ranks))

    def adopt(self) -> AbstractContextManager[None]:
        """Makes the calling thread act for this rank."""
        return nullcontext()

    def close(self, members: Members) -> None:
        """The rank leaves `members`; leaving the group that the place was opened for closes it."""
        if members is self.root and not self.closed:
            self.closed = True
            self.leave()

    def leave(self) -> None:
        """Lets go of the world."""

    def abort(self) -> None:
        """Stops the world with an error."""
        self.closed = True


class ThreadPlace(Place):
    """A rank that is a thread of `spawn`."""

    def __init__(self, context: Context, session: Session, adopt: Any, eager_futures: bool) -> None:
        super().__init__(session, context.rank, range(context.world.size))
        self._context = context
        self._adopt = adopt
        self.eager_futures = eager_futures

    def adopt(self) -> AbstractContextManager[None]:
        """See `Place`."""
        adopted: AbstractContextManager[None] = self._adopt()
        return adopted

    def leave(self) -> None:
        """See `Place`."""
        self._context.session = None
        self._context.generation += 1

    def abort(self) -> None:
        """See `Place`."""
        from ahbm.errors import DistributedError

        super().abort()
        self._context.world.interrupt(DistributedError("AHBM-X124", f"rank {self.rank} aborted its process group"))


class Places(threading.local):
    """The open places of a thread-rank, or (`shared`) of the process."""

    def __init__(self) -> None:
        self.own: list[Place] | None = None
        """None where the thread is no rank of its own."""
        self.make: Any = None
        """How the thread opens a place."""


_threads = Places()
_process: list[Place] = []


def places() -> list[Place]:
    """The open places of the calling rank, oldest first."""
    found = _process if _threads.own is None else _threads.own
    found[:] = [place for place in found if not place.closed]
    return found


def be_rank(own: list[Place] | None, make: Any = None) -> None:
    """Makes the calling thread a rank with places of its own (or, with None, no rank)."""
    _threads.own, _threads.make = own, make


def find(opts: Any, pg_options: object) -> Place:
    """The place for a group that torch asks for with `opts`; opened where there is none yet."""
    ranks = list(opts.global_ranks_in_group)
    for known in places() if ranks else ():
        if all(rank in known.index for rank in ranks):
            return known
    ranks = ranks or list(range(opts.group_size))
    if _threads.make is not None:
        place: Place = _threads.make(options(pg_options))
    else:
        from ahbm.torch.processes import open_place

        place = open_place(options(pg_options).sized(len(ranks)), opts, ranks)
    places().append(place)
    return place


def options(pg_options: object) -> Setup:
    """What a rank asks for: `pg_options` (a Setup or a mapping of its fields), then the environment.

    Raises ConfigError (AHBM-C127).
    """
    if isinstance(pg_options, Mapping):
        unknown = sorted(set(pg_options) - set(Setup.__dataclass_fields__))
        if unknown:
            known = ", ".join(Setup.__dataclass_fields__)
            raise ConfigError("AHBM-C127", f"unknown option {unknown[0]!r} of backend ahbm", hint=f"one of {known}")
        pg_options = Setup(**pg_options)
    setup = pg_options if isinstance(pg_options, Setup) else Setup()
    accumulate = setup.accumulate or os.environ.get("AHBM_ACCUMULATE") or None
    if accumulate not in (None, "f32"):
        raise ConfigError("AHBM-C127", f"accumulate={accumulate!r} is unknown", hint="f32, or nothing")
    return replace(setup, accumulate=accumulate)
