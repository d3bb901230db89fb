"""A rank's place among the others: calls go in, tickets come out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ahbm.base.arrays import Flat
from ahbm.ranks.claims import Touches
from ahbm.ranks.exchange import Exchange
from ahbm.ranks.groups import ProcessGroup
from ahbm.ranks.operation import Finish
from ahbm.ranks.terms import Terms
from ahbm.ranks.ticket import Notify, Ticket

if TYPE_CHECKING:
    from ahbm.selectors.why import Why


@dataclass(eq=False, slots=True)
class Call:
    """One rank's side of an operation, as it is issued."""

    kind: str
    """"collective", "exchange" (all_to_all, its buffer an Exchange), "send", "recv", "new_group" or
    "agreement" (of all ranks on a group that is made elsewhere)."""
    group: ProcessGroup
    terms: Terms
    buffer: Any
    """The data that the operation works on: a flat array in the collective's in-place layout."""
    finish: Finish
    peer: int | None = None
    """The other side of a send or receive; None receives from any."""
    give: slice | None = None
    """The elements of the buffer that hold this rank's operand; None: all."""
    take: slice | None = None
    """The elements of the buffer that will hold this rank's result; None: all."""
    why: Why | None = None
    """The evidence for what this rank's selector answered; None where none was asked."""
    touches: Touches | None = None
    """The caller's tensors, as far as their memory matters until the operation has ended."""
    load: Callable[[], object] | None = None
    """Takes the operand to the buffer; None where the caller's memory is the buffer."""
    after: tuple[Ticket, ...] = ()
    """The rank's calls that end before this one's operand is read."""
    supplied: bool = False
    """Whether the operand comes later, and `World.supply` says so."""
    style: str = ""
    """The way in which it is issued, where that matters to the backend that a script has asked for: "collective", or of
    sends and receives "batch" and "alone"."""
    sides: tuple[Any, Any] | None = None
    """The caller's own flat operand and result, where they are two that may share memory."""

    def copies(self, ins: Sequence[Flat], buffer: Any, starts: Iterable[int]) -> Call:
        """This call, which copies `ins` to `buffer` from the `starts` on."""

        def load() -> None:
            for x, start in zip(ins, starts, strict=False):
                x.into(buffer, start)

        self.load = load
        return self

    def keep(self, x: Flat) -> None:
        """The operand, `x`, is copied when it is read."""
        self.buffer = x.room(x.size)
        self.copies((x,), self.buffer, (0,))

    def read(self, again: bool = True) -> None:
        """Takes the operand to the buffer; `again`: as it is now, and not when the call was made."""
        touches = self.touches
        for x in touches.reads if again and touches is not None else ():
            x.refresh()
        if self.load is not None:
            self.load()
            if touches is not None:
                touches.reads = ()

    @property
    def collective(self) -> str:
        """Name of the collective."""
        return self.terms.request.collective

    @property
    def source(self) -> Any:
        """The holder of its operand: a flat array, or `Hollow`."""
        return self.buffer.source if isinstance(self.buffer, Exchange) else self.buffer

    @property
    def target(self) -> Any:
        """The holder of its result: a flat array, or `Hollow`."""
        return self.buffer.target if isinstance(self.buffer, Exchange) else self.buffer


class Seat(Protocol):
    """The place from which a rank takes part in operations: issue with `submit`, finish with `wait`."""

    def clock_ps(self, rank: int) -> int:
        """The rank's simulated time: the end of the latest operation it has waited for, had that run alone."""

    def advance(self, rank: int, ps: int) -> None:
        """Moves the rank's simulated clock by what it has computed."""

    def submit(self, rank: int, call: Call) -> Ticket:
        """Issues `call` for `rank`; it is performed when those that it comes after have ended. Raises what stopped the
        world."""

    def group(self, name: str, ranks: tuple[int, ...]) -> ProcessGroup:
        """The group called `name` of these ranks; the first that asks for it creates it."""

    def estimate(self, call: Call) -> int:
        """Simulated ps that `call` would take alone, were it performed with the like of its group; moves no data."""

    def wait(self, ticket: Ticket, timeout_s: float | None = None) -> None:
        """Blocks until the operation has ended and moves its rank's clock there; raises its error."""

    def settle(self, ticket: Ticket) -> None:
        """Blocks until the operation has ended, well or not; the rank's clock stays."""

    def detach(self, ticket: Ticket) -> None:
        """From now on the operand of a send, under way, may be written: the send keeps what it was given."""

    def absent(self, ticket: Ticket) -> tuple[int, ...]:
        """The ranks that have not come to the operation yet."""

    def notify(self, ticket: Ticket, callback: Notify) -> bool:
        """Calls `callback` once, from any thread, with the operation's error when that ends; False when it has ended
        already."""
