"""The operations that a call comes to, without making the call."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from ahbm.errors import UnsupportedError
from ahbm.ranks.groups import ProcessGroup as Members
from ahbm.ranks.seat import Call
from ahbm.ranks.setup import Setup
from ahbm.ranks.ticket import Notify, Ticket
from ahbm.torch import sparse
from ahbm.torch.calls import CALLS, Collectives, State
from ahbm.torch.place import Place
from ahbm.torch.work import Work


class _Paper:
    """A `Seat` whose operations are only written down, and have ended by that."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def clock_ps(self, rank: int) -> int:
        """See `Seat`."""
        return 0

    def advance(self, rank: int, ps: int) -> None:
        """See `Seat`."""

    def submit(self, rank: int, call: Call) -> Ticket:
        """See `Seat`."""
        self.calls.append(call)
        return Ticket(rank)

    def group(self, name: str, ranks: tuple[int, ...]) -> Members:
        """See `Seat`."""
        return Members(name, ranks)

    def estimate(self, call: Call) -> int:
        """See `Seat`."""
        return 0

    def wait(self, ticket: Ticket, timeout_s: float | None = None) -> None:
        """See `Seat`."""

    def settle(self, ticket: Ticket) -> None:
        """See `Seat`."""

    def detach(self, ticket: Ticket) -> None:
        """See `Seat`."""

    def absent(self, ticket: Ticket) -> tuple[int, ...]:
        """See `Seat`."""
        return ()

    def notify(self, ticket: Ticket, callback: Notify) -> bool:
        """See `Seat`."""
        return False


class _Sketched(Collectives):
    """Of one rank that nobody answers."""

    def _allreduce_sparse(self, work: Work, tensor: torch.Tensor, op: Any) -> None:
        sparse.own(tensor, op)
        raise UnsupportedError(
            "AHBM-U154",
            "all_reduce of a sparse tensor under a recorder: its size depends on other ranks",
            hint="call to_dense() first",
        )


METHODS = {name: getattr(Collectives, name) for name in ("monitored_barrier", *CALLS)}
"""The calls that make operations, by name."""


def calls(group: Any, name: str, args: tuple[Any, ...], kw: dict[str, Any]) -> list[Call]:
    """The calls that backend "ahbm" would issue for the call `name` of torch's `group`, in global ranks.

    Raises UnsupportedError (AHBM-U150, U151) for what it does not do, AHBM-U154 for what depends on other ranks.
    """
    paper, ranks = _Paper(), dist.get_process_group_ranks(group)
    one = _Sketched()
    place = Place(paper, dist.get_rank(), ranks, Setup().emulator, moves_data=False)
    one.bind(place, Members(group.group_name, tuple(ranks)), State())
    getattr(METHODS[name], "__wrapped__", METHODS[name])(
        one, *map(_hollow, args), **{k: _hollow(v) for k, v in kw.items()}
    )
    return paper.calls


def _hollow(arg: Any) -> Any:
    """Tensors without their data."""
    if isinstance(arg, torch.Tensor) and not arg.is_sparse:
        return torch.empty_like(arg, device="meta")
    return [_hollow(part) for part in arg] if isinstance(arg, (list, tuple)) else arg
