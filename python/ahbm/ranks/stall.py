"""The words for ranks that cannot go on, or have not for too long: they say which rank waits for which.

Functions of what the world knows, without a world: states of ranks and parts of operations go in, an error comes out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ahbm.base.words import span
from ahbm.errors import DistributedError, Site
from ahbm.ranks.operation import Part

NAMED = 8
"""Waiting ranks that a message names; its sites name all."""
NAMED_ABSENT = 4
_MISMATCHED = (
    "a send and its receive name each other and have the same tag; else every rank of a group must make the same calls "
    "in the same order"
)
_ORDERED = (
    "calls that have a tensor in common run in the order in which their rank issues them: issue them in the same order "
    "on all ranks, or give them tensors of their own"
)


@dataclass(eq=False)
class RankState:
    """The state of one rank, as the world knows it."""

    rank: int
    thread: int = 0
    clock_ps: int = 0
    waiting: Part | None = None
    queued: bool = False
    """Whether it runs on as soon as it has a turn; of the moment at which words are asked for."""
    finished: bool = False
    error: BaseException | None = None
    value: object = None


def stalled(ranks: Sequence[RankState]) -> DistributedError:
    """AHBM-X121: every rank waits or has returned, and no operation is complete."""
    sites = [waits_in(state.waiting, ranks) for state in ranks if state.waiting is not None]
    more = f"; and {len(sites) - NAMED} more" if len(sites) > NAMED else ""
    return DistributedError(
        "AHBM-X121",
        f"no rank can go on: {'; '.join(site.label for site in sites[:NAMED])}{more}",
        sites=sites,
        hint=_hint(ranks),
    )


def silent(ranks: Sequence[RankState], waits: Sequence[Part], patience_s: float) -> DistributedError:
    """AHBM-X122: some ranks compute on while others have waited for `patience_s` wall seconds."""
    running = [state.rank for state in ranks if state.waiting is None and not state.finished and not state.queued]
    return DistributedError(
        "AHBM-X122",
        f"nothing happened for {patience_s:g} s while {span(running)} computed outside of any "
        f"call and {span([part.rank for part in waits])} waited",
        sites=[waits_in(part, ranks) for part in waits],
        hint="pass a longer timeout to init_process_group, or look for an endless loop in the worker",
    )


def late(part: Part, ranks: Sequence[RankState], timeout_s: float) -> DistributedError:
    """AHBM-X122: one wait has lasted `timeout_s` wall seconds; tells its ticket whom it has waited for.

    Those that had no turn are among them only where nobody else is."""
    absent = part.operation.absent()
    part.ticket.absent = tuple(rank for rank in absent if not ranks[rank].queued) or tuple(absent)
    whom = span(list(part.ticket.absent)) if absent else "its turn"
    return timed_out(part.operation.label, timeout_s, whom, waits_in(part, ranks))


def timed_out(label: str, timeout_s: float, whom: str, *sites: Site) -> DistributedError:
    """AHBM-X122, in the words by which launchers know a timeout; `whom` the wait was for."""
    return DistributedError("AHBM-X122", f"{label}: Timed out waiting {timeout_s * 1000:g}ms for {whom}", sites=sites)


def left_over(parts: Iterable[Part], ranks: Sequence[RankState]) -> DistributedError:
    """AHBM-X123: `parts`, one or more, wait for sides that have returned without a call."""
    sites = [waits_in(part, ranks) for part in sorted(parts, key=lambda part: part.rank)]
    return DistributedError(
        "AHBM-X123",
        f"all ranks have returned, but {sites[0].label}",
        sites=sites,
        hint="call wait() on every Work, and make the same calls on every rank",
    )


def waits_in(part: Part, ranks: Sequence[RankState]) -> Site:
    """The place where the rank of `part` waits, and the ranks it waits for."""
    tagged = bool(part.terms.tag) or _tags(ranks)
    origin = part.origin
    label = f"rank {part.rank} waits in {_named(part, tagged)}"
    late = _late(part)
    if late is not None and late.first is not None:
        whose = "its own part" if late is part else f"rank {late.rank}'s part"
        part = late.first
        label += f", where {whose} comes after {_named(part, tagged)}, which has the same tensors"
        if part.operation.absent():
            label += " and waits"
    absent = part.operation.absent()
    if absent:
        reasons = [f"rank {rank}, {_whereabouts(ranks[rank], tagged)}" for rank in absent[:NAMED_ABSENT]]
        if len(absent) > NAMED_ABSENT:
            reasons.append(f"{len(absent) - NAMED_ABSENT} more")
        label += f" for {' and '.join(reasons)}"
    return Site(label, origin)


def _late(part: Part) -> Part | None:
    """The part of an operation that keeps it from being performed though all sides have come."""
    operation = part.operation
    return None if operation.absent() else next((each for each in operation.ordered() if each.first), None)


def _hint(ranks: Sequence[RankState]) -> str:
    waiting = [state.waiting for state in ranks if state.waiting is not None]
    if any(not part.operation.absent() for part in waiting):
        return _ORDERED
    return _MISMATCHED if _tags(ranks) else "every rank of a group must make the same calls in the same order"


def _tags(ranks: Sequence[RankState]) -> bool:
    """Whether a send or receive that a rank waits in has a tag."""
    return any(state.waiting is not None and state.waiting.terms.tag for state in ranks)


def _named(part: Part, tagged: bool) -> str:
    """The operation, with its tag if `tagged` and it is a send or a receive."""
    paired = part.terms.request.collective == "send_recv"
    return f"{part.operation.label} with tag {part.terms.tag}" if tagged and paired else part.operation.label


def _whereabouts(state: RankState, tagged: bool) -> str:
    if state.finished:
        return "which has returned"
    if state.waiting is not None:
        return f"which waits in {_named(state.waiting, tagged)}"
    if state.queued:
        return "which has had no turn to call it"
    return "which has not called it"
