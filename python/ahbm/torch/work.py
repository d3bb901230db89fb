"""The handle of an operation, as torch knows it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ahbm.errors import DistributedError
from ahbm.ranks.groups import ProcessGroup as Members
from ahbm.ranks.ticket import Ticket
from ahbm.torch import hazards
from ahbm.torch.failures import as_torchs
from ahbm.torch.place import Place

_completing = threading.RLock()
"""Held while a completion runs: a future's thread and the rank's may ask at once."""


FUTURE = "ahbm future"
"""The name of threads that call functions of futures."""


class Work(dist.Work):
    """One rank's side of one or more operations; done when all of them are.

    Waiting looks at the operations, never at the future: callbacks of a future may issue operations of their own. The
    future's value is the list of output tensors. A future of what has not ended is completed in a thread of its own,
    and then its value is an object of Python's. The built-in hooks of DistributedDataParallel, which are C++, want a
    list of tensors instead, and only a future that is made complete can hold one. So inside of a backward pass, where
    hooks run, the rank waits before it makes the future. Only `wait` moves the rank's simulated clock, so that it does
    not depend on when a future happens to be completed.
    """

    def __init__(
        self, place: Place, members: Members, tensors: Sequence[torch.Tensor], timeout: timedelta | None
    ) -> None:
        super().__init__()
        self.place = self._place = place
        self.members = self._members = members
        self.tensors = list(tensors)
        """The tensors that the operations write to."""
        self._timeout = timeout
        self.tickets: list[Ticket] = []
        """The maker of the handle adds them."""
        self.completions: list[Callable[[], object]] = []
        """What is left to do with the results of the operations before anyone sees the tensors."""
        self._future: torch.futures.Future[Any] | None = None
        self.watched: list[Any] = []
        """The tensors of its operations and what is known of them; see `hazards`."""
        self.serial = -1
        """Its number among the handles of its rank."""
        self.is_paired = False
        """Whether its operations are sends and receives."""

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Blocks until all has ended; returns True. Raises what an operation raised, AHBM-X122 after the timeout."""
        limit = timeout if timeout else self._timeout
        for ticket in self.tickets:
            self._place.wait(ticket, limit.total_seconds() if limit else None)
        self._complete()
        if self._place.unfinished:  # earlier ones of the group have ended, too
            self._place.finish()
        if self.watched:
            hazards.settled(self)
        return True

    def is_completed(self) -> bool:
        """Whether all has ended, well or not."""
        done = all(ticket.done for ticket in self.tickets)
        if done:
            self._complete()
            if self.watched:
                hazards.settled(self)
        return done

    def _complete(self) -> None:
        """All operations have ended."""
        if self.completions and self.exception() is None:
            with _completing:
                while self.completions:
                    self.completions[0]()
                    self.completions.pop(0)

    def is_success(self) -> bool:
        """Whether all has ended well."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """The error that an operation raised."""
        error = next((ticket.error for ticket in self.tickets if ticket.error is not None), None)
        return as_torchs(error) if isinstance(error, DistributedError) else error

    def result(self) -> list[torch.Tensor]:
        """The output tensors; waits for them."""
        self.wait()
        return self.tensors

    def source_rank(self) -> int:
        """Group rank of the sender of an ended receive."""
        return self._members.rank_of(self.tickets[0].members[0])

    def _source_rank(self) -> int:
        return self.source_rank()

    def synchronize(self) -> None:
        """As `wait`."""
        self.wait()

    def block_current_stream(self) -> None:
        """As `wait`: a CPU has one stream."""
        self.wait()

    def get_future(self) -> torch.futures.Future[Any]:
        """A future whose value is the list of output tensors."""
        if self._future is None:
            if self.watched:
                hazards.dropped(self)
            if self._place.eager_futures or torch._C._current_graph_task_id() >= 0:
                for ticket in self.tickets:
                    self._place.settle(ticket)
                if torch._C._current_graph_task_id() >= 0:
                    self._place.leave_to_backward(self.tickets)
            if self.tensors and self.is_success():
                self._future = torch._C.fork(lambda: self.tensors)
            else:
                self._future = torch.futures.Future()
                self._resolve(self._future)
        return self._future

    def _resolve(self, future: torch.futures.Future[Any], ended: int = 0) -> None:
        """Completes the future once all operations have ended; of the first `ended` that is known."""

        def ended_one(_: BaseException | None) -> None:
            threading.Thread(target=self._resume, args=(future, at + 1), name=FUTURE).start()

        for at in range(ended, len(self.tickets)):
            if self._place.seat.notify(self.tickets[at], ended_one):
                return
        if (error := self.exception()) is not None:
            future.set_exception(error)
        else:
            self._complete()
            future.set_result(self.tensors)

    def _resume(self, future: torch.futures.Future[Any], ended: int) -> None:
        with self._place.adopt():
            self._resolve(future, ended)
