"""The calling thread's rank, and how it takes part in an operation."""

from __future__ import annotations

import threading

from ahbm.errors import DistributedError
from ahbm.ranks.groups import ProcessGroup
from ahbm.ranks.lobby import Context
from ahbm.ranks.seat import Call
from ahbm.ranks.session import Session
from ahbm.ranks.work import Work

_local = threading.local()


def bind(context: Context | None) -> None:
    """Makes the calling thread a rank (or no rank); `ahbm.spawn` does it for its workers."""
    act_for(context)
    if context is not None:
        context.world.enter(context.rank)


def act_for(context: Context | None) -> None:
    """Lets the calling thread, which may be another than the rank's own, make calls for a rank (or for none)."""
    _local.context = context


def current() -> Context | None:
    """The calling thread's rank, None where it is none."""
    found: Context | None = getattr(_local, "context", None)
    return found


def joined() -> tuple[Context, Session]:
    """The calling thread's rank and session. Raises DistributedError (AHBM-X102) without one."""
    context = current()
    if context is None or context.session is None:
        raise DistributedError(
            "AHBM-X102",
            "the default process group is not initialised in this thread",
            hint='call init_process_group(backend="ahbm") in every worker',
        )
    return context, context.session


def member(group: ProcessGroup | None, *, need: bool = True) -> tuple[Context, Session, ProcessGroup]:
    """The calling rank, its session and `group` (None: all ranks). With `need`, it must be a member (AHBM-X106)."""
    context, session = joined()
    members = session.world_group if group is None else group
    if need and members.rank_of(context.rank) < 0:
        raise DistributedError(
            "AHBM-X106",
            f"rank {context.rank} is no member of {members.name}",
            hint="only the ranks of a group may call its collectives",
        )
    return context, session, members


def issue(context: Context, call: Call) -> Work:
    """Issues one call of the calling rank."""
    assert context.session is not None and context.claims is not None
    selection = context.selection
    if selection is not None:
        selection.apply(call)
    context.claims.order(call)
    ticket = context.session.submit(context.rank, call)
    if selection is not None:
        selection.issued(ticket)
    context.claims.add(ticket)
    return Work(context, ticket)
