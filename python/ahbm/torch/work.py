"""The handle of an operation, as torch knows it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ahbm.groups import ProcessGroup as Members
from ahbm.operation import Part
from ahbm.torch.place import Place


class Work(dist.Work):
    """One rank's side of one or more operations; done when all of them are.

    Waiting looks at the operations, never at the future: callbacks of a future may issue operations of their own. The
    future's value is the list of output tensors; it is completed in a thread of its own. Only `wait` moves the rank's
    simulated clock, so that it does not depend on when a future happens to be completed.
    """

    def __init__(
        self, place: Place, members: Members, tensors: Sequence[torch.Tensor], timeout: timedelta | None
    ) -> None:
        super().__init__()
        self._place = place
        self._members = members
        self.tensors = list(tensors)
        """What the operations write to."""
        self._timeout = timeout
        self.parts: list[Part] = []
        """The tickets; whoever makes the handle adds them."""
        self._future: torch.futures.Future[Any] | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Blocks until all has ended; returns True. Raises what an operation raised, AHBM-X122 after the timeout."""
        limit = timeout if timeout else self._timeout
        for part in self.parts:
            self._place.wait(part, limit.total_seconds() if limit else None)
        return True

    def is_completed(self) -> bool:
        """Whether all has ended, well or not."""
        return all(part.operation.done for part in self.parts)

    def is_success(self) -> bool:
        """Whether all has ended well."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """What an operation raised."""
        return next((part.operation.error for part in self.parts if part.operation.error is not None), None)

    def result(self) -> list[torch.Tensor]:
        """The output tensors; waits for them."""
        self.wait()
        return self.tensors

    def source_rank(self) -> int:
        """Group rank of the sender of an ended receive."""
        return self._members.rank_of(self.parts[0].operation.members[0])

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
            self._future = torch.futures.Future()
            if self._place.eager_futures:
                for part in self.parts:
                    self._place.seat.settle(part)
            self._resolve(self._future)
        return self._future

    def _resolve(self, future: torch.futures.Future[Any], ended: int = 0) -> None:
        """Completes the future once all operations have ended; of the first `ended` that is known."""

        def told(_: BaseException | None) -> None:
            threading.Thread(target=self._resume, args=(future, at + 1), name="ahbm future").start()

        for at in range(ended, len(self.parts)):
            if self._place.seat.notify(self.parts[at], told):
                return
        if (error := self.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(self.tensors)

    def _resume(self, future: torch.futures.Future[Any], ended: int) -> None:
        with self._place.adopt():
            self._resolve(future, ended)
