"""The memory that a rank's operations under way read and write.

A call that reads what an earlier one has yet to write, or writes what that one has yet to read or to write, comes
after it, as on a device that runs its collectives in order: it is performed when that one has ended, and only then are
its operands read. The rank goes on meanwhile. Sends and receives do not come after one another, since a pair that
exchanges one buffer would never end: a send keeps what it was given, and what a receive has yet to fill is nobody's
until it is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ahbm.base.arrays import Flat

if TYPE_CHECKING:
    from ahbm.ranks.seat import Call
    from ahbm.ranks.ticket import Ticket

EXACT = 1000
"""Steps after which two strided arrays that cross count as sharing memory."""


@dataclass(eq=False, slots=True)
class Touches:
    """The tensors of one call."""

    reads: tuple[Flat, ...]
    """Those that are still to be read."""
    writes: tuple[Flat, ...]
    paired: bool = False
    """Whether the call is a send or a receive."""
    after: tuple[Ticket, ...] = ()
    """The calls that end before it reads its operands."""

    _span: tuple[int, int] | None = None

    @property
    def span(self) -> tuple[int, int]:
        """From the lowest address of the tensors to the highest; (0, 0) for none."""
        if self._span is None:
            tensors = self.writes if self.reads == self.writes else (*self.reads, *self.writes)
            start, end = tensors[0].span if tensors else (0, 0)
            for x in tensors[1:]:
                low, high = x.span
                if high:
                    start, end = (min(start, low), max(end, high)) if end else (low, high)
            self._span = start, end
        return self._span


class Claims:
    """One rank's calls that may not have ended."""

    def __init__(self, detach: Callable[[Ticket], object]) -> None:
        """`detach`: see `Seat`."""
        self._detach = detach
        self.open: dict[Ticket, tuple[int, int]] = {}
        """Those that were under way when they had been issued, and that nobody has waited for since, with the spans of
        what they touch."""

    def order(self, call: Call) -> None:
        """Says what `call`, about to be issued, comes after; reads its operands if that is nothing."""
        mine = call.touches
        if mine is None:
            return
        near: list[Ticket] = []
        if self.open:
            start, end = mine.span
            near = [ticket for ticket, (low, high) in list(self.open.items()) if low < end and start < high]
        if near:
            before = [self._before(ticket, mine) for ticket in near]
            mine.after = call.after = tuple(dict.fromkeys(ticket for some in before for ticket in some))
        if not call.after:
            call.read(again=bool(near))  # one that ends may have ended just now
        elif mine.paired and mine.reads:
            call.keep(mine.reads[0])

    def add(self, ticket: Ticket) -> None:
        """A call was issued; what it touches is in its ticket."""
        touches = ticket.touches
        if not ticket.done and touches is not None:
            self.open[ticket] = touches.span

    def drop(self, ticket: Ticket) -> None:
        """The rank has waited for a call."""
        self.open.pop(ticket, None)

    def _before(self, ticket: Ticket, mine: Touches) -> tuple[Ticket, ...]:
        """The calls that the next one, which touches `mine`, comes after because of an earlier one."""
        theirs = ticket.touches
        if theirs is None:
            self.drop(ticket)
            return ()
        if not (theirs.paired and mine.paired) and (
            _meet(mine.reads, theirs.writes) or _meet(mine.writes, theirs.writes)
        ):
            return (ticket,)
        if not _meet(mine.writes, theirs.reads):
            return ()
        if theirs.paired and not theirs.after:
            self._detach(ticket)
        return theirs.after if theirs.paired else (ticket,)


def _meet(some: Iterable[Flat], others: Iterable[Flat]) -> bool:
    return any(_share(x, y) for x in some for y in others)


def _share(x: Flat, y: Flat) -> bool:
    (start, end), (other_start, other_end) = x.span, y.span
    if end <= other_start or other_end <= start:
        return False
    if x.view is None and y.view is None:
        return True
    try:
        return np.shares_memory(x.memory, y.memory, max_work=EXACT)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
