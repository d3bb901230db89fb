"""A rank's claim on an operation that it has issued: how the operation ended, wherever it is performed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from ahbm._core import Gate
from ahbm.ranks.claims import Touches

Notify = Callable[[BaseException | None], None]
"""Gets the error of an operation that has ended; None of one that ended well."""


@dataclass(eq=False, slots=True)
class Ticket:
    """One rank's claim on one operation. The performer of the operation writes to it; `done` comes last."""

    rank: int
    """Global rank."""
    call: int = -1
    """Index of the call among the rank's own."""
    origin: str = ""
    """`file:line` of the call, where it was issued."""
    members: tuple[int, ...] = ()
    """Global ranks of the operation; the sender first where it is a send and receive that have met."""
    result: object = None
    """The value that `Work.result` gives."""
    end_ps: int = 0
    """End in simulated ps, had the operation run alone."""
    error: BaseException | None = None
    done: bool = False
    """Whether the operation has ended, well or not."""
    absent: tuple[int, ...] = ()
    """The global ranks that a wait came to wait for in vain."""
    waited: bool = False
    """Whether its rank has waited for it."""
    touches: Touches | None = None
    """The memory that the operation reads and writes; None once it has ended, and where it has none of the rank's."""
    notify: Notify | None = None
    """Called once, from any thread, when the operation has ended."""
    gates: list[Gate] = field(default_factory=list)
    """The gates that waiting threads are blocked on."""

    def end(self, error: BaseException | None, end_ps: int = 0) -> None:
        """The operation has ended."""
        self.touches = None
        self.error, self.end_ps, self.done = error, end_ps, True

    def open_gates(self) -> None:
        """Lets the waiting threads go on."""
        for gate in self.gates:
            gate.open()
        self.gates.clear()


class Telling:
    """Notifies whoever asked to be told of an operation's end, by one thread at a time: in the order of ends."""

    def __init__(self, lock: AbstractContextManager[object]) -> None:
        self._lock = lock
        self._pending: list[Ticket] = []
        self._busy = False

    def add(self, ticket: Ticket) -> None:
        """The ticket's operation has ended. The caller holds the lock."""
        self._pending.append(ticket)

    @property
    def waits(self) -> bool:
        """Whether somebody is to be notified, and nobody does it."""
        return bool(self._pending) and not self._busy

    def tell(self) -> None:
        """Notifies, unless another thread does. The caller does not hold the lock."""
        while self._pending:
            with self._lock:
                if self._busy:
                    return  # that thread looks once more
                self._busy = True
                ended, self._pending = self._pending, []
            try:
                for ticket in ended:
                    if ticket.notify is not None:
                        notify, ticket.notify = ticket.notify, None
                        notify(ticket.error)
            finally:
                self._busy = False
