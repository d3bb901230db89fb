"""The handle of a collective that was started with `async_op=True`, or of `isend` and `irecv`."""

from __future__ import annotations

import threading
from datetime import timedelta

from ahbm.base.arguments import checked
from ahbm.errors import DistributedError
from ahbm.ranks.lobby import Context
from ahbm.ranks.ticket import Ticket


class Work:
    """One rank's side of an operation under way.

    Until `wait` has returned, the tensors belong to the operation: a script neither reads nor writes them. A later
    collective may: it comes after the operation, whatever their groups. Simulated time runs on for the rank meanwhile;
    `wait` moves its clock to the operation's end. Operations of
    different groups overlap in simulated time and contend for links and engines; those of one group run one after the
    other.
    """

    @checked
    def __init__(self, context: Context, ticket: Ticket) -> None:
        assert context.session is not None
        self._session = context.session
        self._ticket = ticket
        self._claims = context.claims

    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Blocks until the operation has ended; returns True.

        `timeout` is in wall seconds; without it a wait lasts as long as any rank makes progress. Raises what the
        operation raised, RankError when a sibling failed, and DistributedError AHBM-X121 (nobody can go on) or
        AHBM-X122 (timeout).
        """
        if threading.get_ident() != self._session.world.ranks[self._ticket.rank].thread:
            raise DistributedError(
                "AHBM-X105",
                f"a thread that is not rank {self._ticket.rank} waits for its work",
                hint="wait where the collective was issued",
            )
        self._session.wait(self._ticket, timeout.total_seconds() if isinstance(timeout, timedelta) else timeout)
        self._ticket.waited = True
        if self._claims is not None:
            self._claims.drop(self._ticket)
        return True

    def is_completed(self) -> bool:
        """Whether the operation has ended, well or not. Does not advance the rank's clock."""
        return self._ticket.done

    def is_success(self) -> bool:
        """Whether the operation has ended well."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """The error that the operation raised; None while it runs and after it ended well."""
        return self._ticket.error

    def result(self) -> object:
        """Waits, then gives the tensor or tensors that hold the result; the sender's rank for a receive."""
        self.wait()
        return self._ticket.result

    def source_rank(self) -> int:
        """Global rank of the sender of an ended send or receive."""
        return self._ticket.members[0]
