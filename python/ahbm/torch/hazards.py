"""What passes here and is undefined, or never ends, on a cluster; it is said once, with both sides.

A tensor that is written while an operation may still use it, two ranks on one device, groups in different orders, and
sends that only one side has put into a batch.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ahbm.base.words import span
from ahbm.ranks.blame import call_origin
from ahbm.ranks.groups import ProcessGroup as Members
from ahbm.ranks.operation import Part
from ahbm.torch.failures import refused

if TYPE_CHECKING:
    from ahbm.ranks.seat import Call
    from ahbm.ranks.ticket import Ticket
    from ahbm.torch.place import Place
    from ahbm.torch.work import Work

CODE = "AHBM-X135"
_said: set[str] = set()
_saying = threading.Lock()


def say(place: Place | None, what: str, about: str | None = None) -> None:
    """Says `what` on standard error, once for all ranks of a job; of all that is `about` the same, the first."""
    about = about or what
    with _saying:
        if about in _said:
            return
        _said.add(about)
    store = None if place is None else place.store
    try:
        if store is not None and store.add(f"ahbm said/{about}", 1) > 1:
            return  # by another rank
    except RuntimeError:  # the store has ended with its job
        pass
    print(f"ahbm: {CODE} {what}", file=sys.stderr, flush=True)


def attach(place: Place, store: Any) -> None:
    """Looks at a place from its first group on."""
    if place.apart:
        place.store = store
    ledger = getattr(place.seat, "ledger", None) if place.watches and place.agrees else None
    if ledger is not None:
        ledger.watch = ledger.watch or Watch()


# A tensor that is written before its operation has been waited for


def versions(call: Call) -> list[tuple[Any, int]]:
    """The tensors of a call that is about to be issued, and how often they have been written."""
    touches = call.touches
    if touches is None:
        return []
    strided = {id(x.tensor) for x in touches.writes if x.view is not None}  # whose result is copied to them
    found = {id(x.tensor): x.tensor for x in (*touches.reads, *touches.writes)}
    return [(x, x._version) for at, x in found.items() if at not in strided and not x.is_inference()]


def watch(work: Work, call: Call, ticket: Ticket, seen: list[tuple[Any, int]]) -> None:
    """Notes what a call that was issued has `seen`, until its rank waits for it."""
    place = work.place
    work.watched += [(weakref.ref(x), version, call.collective, ticket) for x, version in seen]
    if work.serial < 0:
        place.issued += 1
        work.serial = place.issued
        work.is_paired = call.peer is not None or call.kind in ("send", "recv")
        place.open[work.serial] = weakref.ref(work)


def settled(work: Work) -> None:
    """The rank has waited for `work`, and so for what its group was given before. Says which tensors were written."""
    place = work.place
    for serial, ref in list(place.open.items()):
        other = ref()
        if other is None:
            del place.open[serial]
        elif other is work or (serial < work.serial and other.members is work.members and not other.is_paired):
            _look(place, other)


def settled_all(place: Place) -> None:
    """The rank has waited for everything."""
    for ref in list(place.open.values()):
        other = ref()
        if other is not None:
            _look(place, other)
    place.open.clear()


def dropped(work: Work) -> None:
    """Nobody can tell from now on when the rank has waited."""
    work.watched.clear()
    work.place.open.pop(work.serial, None)


def _look(place: Place, work: Work) -> None:
    watched, work.watched = work.watched, []
    place.open.pop(work.serial, None)
    for ref, version, collective, ticket in watched:
        x = ref()
        if x is not None and x._version != version:
            say(
                place,
                f"{collective} [{ticket.origin}]: its tensor is written before its wait [{call_origin()}], so the "
                "result is undefined under nccl and gloo: write after work.wait()",
            )


# Devices


def claim(group: Any, at: int) -> None:
    """This rank's communicator of `group` is on device `at`. Raises torch's DistBackendError, on all ranks, where
    another rank's is."""
    state, place = group._state, group._place
    if at in state.devices or state.store is None:
        return
    state.devices.add(at)
    name, me = _card(at), f"{place.rank}"
    first = state.store.compare_set(f"ahbm device/{name}", "", me).decode()
    if first == me:
        return
    error = refused(
        torch.distributed.DistBackendError,
        "AHBM-X134",
        "NCCL error in ProcessGroupNCCL: invalid usage. ncclInvalidUsage: This usually reflects invalid usage of NCCL "
        f"library. Last error: Duplicate GPU detected : rank {me} and rank {first} both on CUDA device {name}",
        f"one device per rank: torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before the first tensor "
        f"[{call_origin()}]",
    )
    place.fail(error)
    raise error


def _card(at: int) -> str:
    """The device of the host that a process calls number `at`."""
    visible = [name for name in (os.environ.get("CUDA_VISIBLE_DEVICES") or "").split(",") if name]
    return visible[at] if at < len(visible) else f"{at}"


# Orders

RECENT = 8
"""Operations of a group with which those of others are compared."""


class Watch:
    """Sees the operations of a job in the order of their performance: those of nccl's groups, whose ranks want one
    order, and sends and receives that only one side has put into a batch."""

    def __init__(self) -> None:
        self._recent: dict[Members, deque[dict[int, tuple[int, str]]]] = {}

    def __call__(self, parts: Sequence[Part], group: Members) -> None:
        """`parts` have met."""
        styles = {part.style for part in parts}
        if "" in styles or len(parts) < 2:
            return
        if styles == {"collective"}:
            self._order({part.rank: (part.ticket.call, part.origin) for part in parts}, group)
        elif len(styles) > 1:
            sides = " and ".join(
                f"rank {part.rank} {'in batch_isend_irecv' if part.style == 'batch' else 'alone'} [{part.origin}]"
                for part in parts
            )
            say(None, f"nccl: a send and its receive are issued by {sides}: batch both or neither, else nccl may hang")

    def _order(self, made: dict[int, tuple[int, str]], group: Members) -> None:
        for other, recent in self._recent.items():
            common = [rank for rank in group.ranks if other.rank_of(rank) >= 0] if other is not group else ()
            if len(common) > 1:
                for earlier in recent:
                    after = [rank for rank in common if made[rank][0] > earlier[rank][0]]
                    if 0 < len(after) < len(common):
                        first = next(rank for rank in common if rank not in after)
                        _crossed((group, made), (other, earlier), after[0], first)
                        break
        self._recent.setdefault(group, deque(maxlen=RECENT)).append(made)


def _crossed(mine: tuple[Members, Any], other: tuple[Members, Any], after: int, before: int) -> None:
    (group, made), (earlier, known) = mine, other
    say(
        None,
        f"nccl: group {group.name} ({span(list(group.ranks))}) and group {earlier.name} ({span(list(earlier.ranks))}) "
        f"are called in different orders: rank {after} calls group {earlier.name} [{known[after][1]}] and then "
        f"{group.name} [{made[after][1]}], rank {before} calls group {group.name} [{made[before][1]}] and then "
        f"{earlier.name} [{known[before][1]}]; nccl wants one order on all ranks, else it may hang",
    )
