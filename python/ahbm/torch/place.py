"""A rank's place in a world."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from ahbm.base.arrays import Flat, Hollow
from ahbm.errors import DistributedError, UnsupportedError
from ahbm.ranks.claims import Claims
from ahbm.ranks.groups import ProcessGroup as Members
from ahbm.ranks.seat import Call, Seat
from ahbm.ranks.selection import Selection
from ahbm.ranks.ticket import Ticket
from ahbm.torch import hazards
from ahbm.torch.compute import Stopwatch, usual
from ahbm.torch.failures import as_torchs

if TYPE_CHECKING:
    from ahbm.core.emulator import Emulator
    from ahbm.ranks.lobby import Context
    from ahbm.ranks.session import Session
    from ahbm.torch.work import Work


devices = [False]
"""Whether scripts of this process find devices, which they synchronise instead of waiting for calls."""


class Place:
    """One rank of one world; ranks are numbered from 0 in the order of `ranks`."""

    apart = False
    """Whether the other ranks are processes."""
    agrees = True
    """Whether there are other ranks to agree with."""
    eager_futures = False
    """Whether to wait where a future is asked for: nobody else runs while this rank's thread blocks on one."""

    def __init__(
        self, seat: Seat, rank: int, ranks: Sequence[int], emulator: Callable[[], Emulator], *, moves_data: bool = True
    ) -> None:
        """`emulator`: the world's, or in another process than rank 0's one that is configured as it is; for
        selectors."""
        self.seat = seat
        self.rank = rank
        self.index = {rank: i for i, rank in enumerate(ranks)}
        """torch's global rank -> rank in this world."""
        self.root: Members | None = None
        """The group it was opened for."""
        self.closed = False
        self._moves_data = moves_data
        self._computing = Stopwatch(usual[0])
        self.lanes: Any = None
        """Where the rank's calls are written down, if anybody reads it."""
        self._issued: dict[Ticket, Any] = {}
        """Where there are devices, the calls that the rank has not waited for, and where they are written down."""
        self.asked: str | None = None
        """The backend that the script has asked for, of its default group; None: this one."""
        self.store: Any = None
        """torch's store, where the ranks are processes."""
        self.open: dict[int, Any] = {}
        """The handles that nobody has waited for; see `hazards`."""
        self.issued = 0
        """Handles so far."""
        self.watches = os.environ.get("AHBM_LENIENT") != "1"
        """Whether tensors are looked at that are written too early."""
        self.unfinished: dict[Work, None] = {}
        """The handles that have something left to do with the results of their operations."""
        self.keeper: Any = None
        """Told before and after the rank leaves its world."""
        self.selection: Selection | None = None
        """None: the rank selects nothing."""
        self._emulator = emulator
        self.claims = Claims(seat.detach)
        """What the rank's calls under way read and write."""

    def submit(self, call: Call) -> Ticket:
        """Issues `call` for this rank; what it has computed since its last call takes time if AHBM_COMPUTE says so.

        Raises torch's DistBackendError, which is a DistributedError as well, for what stopped the world;
        UnsupportedError (AHBM-U153) for tensors without data, where data are moved.
        """
        if self._moves_data and isinstance(call.source, Hollow):
            raise UnsupportedError(
                "AHBM-U153",
                f"{call.collective} of a tensor without data (meta, fake) among ranks that move data",
                hint="ahbm.torch.init_alone plays one rank of many, for its time; the time estimator works everywhere",
            )
        if self.selection is not None:
            self.selection.apply(call)
        if not self._computing.off:
            self._compute()
        try:
            self.claims.order(call)
            ticket = self.seat.submit(self.rank, call)
            if self.selection is not None:
                self.selection.issued(ticket)
            if devices[0]:
                self._issued[ticket] = None if self.lanes is None else self.lanes.call(call, self.rank)
            self.claims.add(ticket)
            return ticket
        except DistributedError as error:
            raise as_torchs(error) from error.__cause__
        finally:
            self._computing.start()

    def wait(self, ticket: Ticket, timeout_s: float | None) -> None:
        """See `Seat`; what the rank has computed meanwhile overlaps with the operation. Raises torch's
        DistBackendError for a DistributedError."""
        if not self._computing.off:
            self._compute()
        try:
            self.seat.wait(ticket, timeout_s)
            ticket.waited = True
            self.claims.drop(ticket)
            if devices[0]:
                written = self._issued.pop(ticket, None)
                if written is not None and self.lanes is not None:
                    self.lanes.waited(written)
        except DistributedError as error:
            raise as_torchs(error) from error.__cause__
        finally:
            self._computing.start()

    def settle(self, ticket: Ticket) -> None:
        """See `Seat`; the rank computes nothing meanwhile, and its simulated clock stands still. Raises torch's
        DistBackendError for a DistributedError."""
        if not self._computing.off:
            self._compute()
        try:
            self.seat.settle(ticket)
        except DistributedError as error:
            raise as_torchs(error) from error.__cause__
        finally:
            self._computing.start()

    def synchronize(self) -> None:
        """The rank waits for all its calls, as one whose host waits for its device. Raises as `wait`."""
        for ticket in list(self._issued):
            self.wait(ticket, None)
        self.finish()
        if self.open:
            hazards.settled_all(self)

    def finish(self) -> None:
        """Finishes what has ended."""
        for work in list(self.unfinished):
            if work.is_completed():
                self.unfinished.pop(work, None)

    def settle_writes(self, x: Flat) -> None:
        """Blocks until the rank's calls under way that write memory of `x` have ended."""
        start, end = x.span
        for ticket, (low, high) in list(self.claims.open.items()):
            touches = ticket.touches
            if low < end and start < high and touches is not None and touches.writes:
                self.settle(ticket)

    def _compute(self) -> None:
        if ps := self._computing.ps():
            self.seat.advance(self.rank, ps)

    def leave_to_backward(self, tickets: Sequence[Ticket]) -> None:
        """The rank waits for these at the end of the backward pass, as DDP does where no one can see it."""
        if self.lanes is not None:
            engine = torch.autograd.Variable._execution_engine
            engine.queue_callback(lambda: [self.wait(ticket, None) for ticket in tickets])  # type: ignore[func-returns-value]

    def now_ps(self) -> int:
        """The rank's simulated clock."""
        return self.seat.clock_ps(self.rank) + (0 if self._computing.off else self._computing.ps())

    def estimate(self, call: Call) -> float:
        """Simulated microseconds of `call`, were it performed; moves no data."""
        if self.selection is not None:
            self.selection.apply(call, issues=False)
        return self.seat.estimate(call) / 1e6

    def choose(self) -> Selection:
        """The selection of this rank, from now on."""
        if self.selection is None:
            self.selection = Selection(self.rank, self._emulator)
        return self.selection

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

    def fail(self, error: DistributedError) -> None:
        """All ranks get `error`."""


class ThreadPlace(Place):
    """A rank that is a thread of `spawn`."""

    def __init__(self, context: Context, session: Session, adopt: Any, eager_futures: bool) -> None:
        super().__init__(session, context.rank, range(context.world.size), lambda: session.emulator)
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
        super().abort()
        self._context.world.interrupt(DistributedError("AHBM-X124", f"rank {self.rank} aborted its process group"))
