"""The memory that a rank's operations under way read and write.

A call that reads what an earlier one has yet to write, or writes what that one has yet to read or to write, comes
after it, as on a device that runs its collectives in order. The rank's thread waits for that in wall time; its
simulated clock stands still. Sends and receives do not wait for one another, since a pair that exchanges one buffer
would wait for ever: a send keeps what it was given, and what a receive has yet to fill is nobody's until it is waited
for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ahbm.base.arrays import Flat, Hollow

if TYPE_CHECKING:
    from ahbm.ranks.ticket import Ticket

EXACT = 1000
"""Steps after which two strided arrays that cross count as sharing memory."""


@dataclass(eq=False, slots=True)
class Touches:
    """The tensors of one call."""

    reads: tuple[Flat, ...]
    """Empty once it is issued, where it has taken a copy."""
    writes: tuple[Flat, ...]
    paired: bool = False
    """Whether the call is a send or a receive."""


class Claims:
    """One rank's calls that may not have ended."""

    def __init__(self, settle: Callable[[Ticket], object], detach: Callable[[Ticket], object]) -> None:
        """`settle` and `detach`: see `Seat`."""
        self._settle = settle
        self._detach = detach
        self.open: dict[Ticket, None] = {}
        """Those that were under way when they had been issued, and that nobody has waited for since."""

    def add(self, ticket: Ticket) -> None:
        """A call was issued; what it touches is in its ticket."""
        if not ticket.done:
            self.open[ticket] = None

    def drop(self, ticket: Ticket) -> None:
        """The rank has waited for a call."""
        self.open.pop(ticket, None)

    def make_way(self, mine: Touches) -> None:
        """Waits for the calls that the next one, which touches `mine`, has to come after. Raises what stopped the
        world."""
        for ticket in list(self.open):
            theirs = ticket.touches
            if theirs is None:
                self.open.pop(ticket, None)
            elif not (theirs.paired and mine.paired) and (
                _meet(mine.reads, theirs.writes) or _meet(mine.writes, theirs.writes)
            ):
                self._come_after(ticket)
            elif _meet(mine.writes, theirs.reads):
                (self._detach if theirs.paired else self._come_after)(ticket)
        for x in mine.reads:  # one that ends may end just now
            x.refresh()

    def _come_after(self, ticket: Ticket) -> None:
        ticket.ahead = True
        self._settle(ticket)
        ticket.ahead = False


def _meet(some: Iterable[Flat], others: Iterable[Flat]) -> bool:
    return any(_share(x, y) for x in some for y in others)


def _share(x: Flat, y: Flat) -> bool:
    a, b = x.memory, y.memory
    if isinstance(a, Hollow) or isinstance(b, Hollow):
        return False
    try:
        return np.shares_memory(a, b, max_work=EXACT)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
