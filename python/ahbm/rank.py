"""The calling thread's rank, and how it takes part in an operation."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ahbm.errors import DistributedError
from ahbm.groups import ProcessGroup
from ahbm.session import Context, Session
from ahbm.work import Work
from ahbm.world import Operation, Part, call_origin

_local = threading.local()


def bind(context: Context | None) -> None:
    """Makes the calling thread a rank (or no rank); `ahbm.spawn` does it for its workers."""
    _local.context = context
    if context is not None:
        context.world.enter(context.rank)


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


def make_part(context: Context, terms: dict[str, object], buffer: Any, finish: Callable[[], object]) -> Part:
    """The calling rank's side of an operation that starts now."""
    clock_ps = context.world.ranks[context.rank].clock_ps
    return Part(context.rank, terms, buffer, finish, clock_ps, call_origin())


def issue(
    context: Context,
    members: ProcessGroup,
    name: str,
    terms: dict[str, object],
    buffer: Any,
    finish: Callable[[], object],
    perform: Callable[[Operation], int],
) -> Work:
    """Deposits the calling rank's side of the group's next collective."""
    part = make_part(context, terms, buffer, finish)
    assert context.session is not None
    context.session.calls[context.rank].append(part)
    context.world.meet(members, part, name, perform)
    return Work(context.world, part)


def collective(
    name: str,
    group: ProcessGroup | None,
    terms: dict[str, object],
    buffer: Any,
    finish: Callable[[], object],
    async_op: bool,
) -> Work | None:
    """Issues a collective on the emulator; waits for it unless `async_op`."""
    context, session, members = member(group)
    work = issue(
        context, members, name, {"collective": name, "group": members, **terms}, buffer, finish, session.perform
    )
    if async_op:
        return work
    work.wait()
    return None
