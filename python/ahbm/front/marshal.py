"""Between the tensors of a call and the flat buffer of a collective's in-place layout, for every front.

A member of a group turns flat tensors, which fit one another, into calls: which chunk is whose, what is copied before
and taken back after. Nothing is read yet, for a call may come after others. `give` and `take` say which elements of the
buffer matter, for ranks whose world is elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from ahbm.base.arrays import Flat, flat_host
from ahbm.base.placement import DeviceTensor
from ahbm.base.request import Request, Shares
from ahbm.ranks.claims import Touches
from ahbm.ranks.exchange import Exchange
from ahbm.ranks.groups import ProcessGroup
from ahbm.ranks.operation import Finish
from ahbm.ranks.seat import Call
from ahbm.ranks.terms import NEW_GROUP, Terms, terms
from ahbm.ranks.ticket import Ticket

NOTHING = slice(0, 0)


class Member(NamedTuple):
    """The rank `me` of `group`: each method is the call that it issues. Roots are group ranks, peers global ones.

    The result of a call is the tensor or the tensors written to, the sender's global rank for a send and receive.
    """

    group: ProcessGroup
    me: int

    def all_reduce(self, x: Flat, op: str, to: Flat | None = None) -> Call:
        """`to`, or else `x`, becomes the reduction of all ranks' `x`. With `to`, `x` may be overwritten."""
        touches = _touching((x,), (to or x,))
        return self._call("all_reduce", x, x.size, x.array, _back(to or x, x.array), touches, op)

    def all_reduce_tiles(self, tensor: DeviceTensor, op: str) -> Call:
        """Every tile of `tensor` becomes the reduction of all ranks' tiles."""
        x, (tiles, size) = flat_host(tensor.tiles, writable=True), tensor.tiles.shape
        agreed = terms(
            self.group, "all_reduce", size, x.dtype, op, 0, tensor.tiles.shape, placement=tensor.dp, tiles=tiles
        )
        touches = _touching((x,), (x,))
        buffer: Any = x.array

        def finish(_: Ticket) -> object:
            x.assign(buffer)
            return tensor

        return Call("collective", self.group, agreed, buffer.reshape(tiles, size), finish, touches=touches)

    def reduce(self, x: Flat, op: str, root: int, to: Flat | None = None) -> Call:
        """The root's `to`, or else `x`, becomes the reduction of all ranks' `x`. With `to`, `x` may be overwritten."""
        (to or x).writable()
        touches = _touching((x,), (to or x,) if self.me == root else ())
        if self.me == root:
            return self._call("reduce", x, x.size, x.array, _back(to or x, x.array), touches, op, root)
        if to is not None:
            return self._call("reduce", x, x.size, x.array, _kept(to), touches, op, root, take=NOTHING)
        buffer = x.room(x.size)
        call = self._call("reduce", x, x.size, buffer, _kept(x), touches, op, root, take=NOTHING)
        return call.copies((x,), buffer, (0,))

    def broadcast(self, x: Flat, root: int) -> Call:
        """`x` becomes the root's."""
        x.writable()
        if self.me == root:
            touches = _touching((x,), ())
            return self._call("broadcast", x, x.size, x.array, _kept(x), touches, root=root, take=NOTHING)
        touches = _touching((), (x,))
        return self._call("broadcast", x, x.size, x.array, _back(x, x.array), touches, root=root, give=NOTHING)

    def all_gather(self, outs: Sequence[Flat], x: Flat) -> Call:
        """`outs[r]` becomes rank r's `x`; ranks may differ in size."""
        return self._gather("all_gather", outs, x, 0)

    def all_gather_single(self, out: Flat, x: Flat) -> Call:
        """`out` becomes all ranks' `x`, one after the other."""
        touches, mine = _touching((x,), (out,)), self._chunk(x.size)
        call = self._call("all_gather", x, x.size, out.array, _back(out, out.array), touches, give=mine)
        call.sides = (x.array, out.array)
        return call.copies((x,), out.array, (mine.start,))

    def gather(self, outs: Sequence[Flat], x: Flat, root: int) -> Call:
        """The root's `outs[r]` becomes rank r's `x`; all others have no `outs`."""
        return self._gather("gather", outs, x, root)

    def gather_single(self, out: Flat | None, x: Flat, root: int) -> Call:
        """The root's `out` becomes all ranks' `x`, one after the other; all others have none."""
        touches = _touching((x,), () if out is None else (out,))
        buffer, mine = self._room(x.size, x)
        finish, take = (_kept(x), NOTHING) if out is None else (_back(out, buffer), None)
        call = self._call("gather", x, x.size, buffer, finish, touches, root=root, give=mine, take=take)
        return call.copies((x,), buffer, (mine.start,))

    def _gather(self, collective: str, outs: Sequence[Flat], x: Flat, root: int) -> Call:
        touches = _touching((x,), tuple(outs))
        longest = max([x.size, *(out.size for out in outs)])
        buffer, mine = self._room(longest, x)
        finish, take = _deal(outs, buffer, range(0, buffer.size, longest or 1)), None if outs else NOTHING
        shares = _shares(outs) if collective == "all_gather" else None
        call = self._call(
            collective, x, longest, buffer, finish, touches, root=root, give=mine, take=take, shares=shares
        )
        return call.copies((x,), buffer, (mine.start,))

    def scatter(self, out: Flat, ins: Sequence[Flat], root: int) -> Call:
        """`out` becomes the root's `ins[me]`; all others have no `ins`."""
        touches = _touching(tuple(ins), (out,))
        buffer, mine = self._room(out.size, out)
        give, finish = None if self.me == root else NOTHING, _back(out, buffer[mine])
        call = self._call("scatter", out, out.size, buffer, finish, touches, root=root, give=give, take=mine)
        return call.copies(ins, buffer, range(0, buffer.size, out.size or 1))

    def reduce_scatter(self, out: Flat, ins: Sequence[Flat], op: str) -> Call:
        """`out` becomes the reduction of all ranks' `ins[me]`; the positions may differ in size."""
        touches = _touching(tuple(ins), (out,))
        longest = max(x.size for x in ins)
        buffer, mine = self._room(longest, out)
        call = self._reduce_scatter(out, buffer, mine, longest, op, touches, _shares(ins))
        return call.copies(ins, buffer, range(0, buffer.size, longest or 1))

    def reduce_scatter_single(self, out: Flat, whole: Flat, op: str) -> Call:
        """`out` becomes the reduction of all ranks' chunk `me` of `whole`."""
        touches, buffer = _touching((whole,), (out,)), whole.room(whole.size)
        call = self._reduce_scatter(out, buffer, self._chunk(out.size), out.size, op, touches)
        call.sides = (whole.array, out.array)
        return call.copies((whole,), buffer, (0,))

    def _reduce_scatter(
        self,
        out: Flat,
        buffer: Any,
        mine: slice,
        count: int,
        op: str,
        touches: Touches,
        shares: Shares | None = None,
    ) -> Call:
        finish = _back(out, buffer[mine][: out.size])
        return self._call("reduce_scatter", out, count, buffer, finish, touches, op, take=mine, shares=shares)

    def all_to_all(self, outs: Sequence[Flat], ins: Sequence[Flat]) -> Call:
        """`outs[j]` becomes what rank j has as `ins[me]`, of whatever size."""
        touches = _touching(tuple(ins), tuple(outs))
        sends, receives = tuple(x.size for x in ins), tuple(out.size for out in outs)
        source, target = ins[0].room(sum(sends)), ins[0].room(sum(receives))
        finish = _deal(outs, target, accumulate(receives, initial=0))
        call = self._exchange(ins[0], Exchange(source, target, sends, receives), finish, touches)
        return call.copies(ins, source, accumulate(sends, initial=0))

    def all_to_all_single(self, out: Flat, x: Flat, receives: tuple[int, ...], sends: tuple[int, ...]) -> Call:
        """Rank j's chunk of `out` becomes this rank's chunk of rank j's `x`; sizes are elements."""
        touches, target = _touching((x,), (out,)), out.room(out.size)
        return self._exchange(x, Exchange(x.array, target, sends, receives), _back(out, target), touches)

    def _exchange(self, x: Flat, exchange: Exchange, finish: Finish, touches: Touches) -> Call:
        agreed = terms(self.group, "all_to_all", 0, x.dtype)
        return Call("exchange", self.group, agreed, exchange, finish, touches=touches)

    def barrier(self, note: str = "") -> Call:
        """Ends when all ranks have called, with the same note."""
        agreed = terms(self.group, "barrier", 1, "f16", note=note)
        buffer = np.zeros(1, np.float16)
        return Call("collective", self.group, agreed, buffer, _nothing, give=NOTHING, take=NOTHING)

    def send(self, x: Flat, peer: int, tag: int) -> Call:
        """`x` goes to `peer`."""
        touches = _touching((x,), (), paired=True)
        agreed = terms(self.group, "send_recv", x.size, x.dtype, tag=tag)
        return Call("send", self.group, agreed, x.array, _sender, peer, take=NOTHING, touches=touches)

    def recv(self, x: Flat, peer: int | None, tag: int) -> Call:
        """`x` comes from `peer`; None: from any rank."""
        touches = _touching((), (x,), paired=True)
        agreed = terms(self.group, "send_recv", x.size, x.dtype, tag=tag)

        def finish(ticket: Ticket) -> int:
            x.assign(x.array)
            return _sender(ticket)

        return Call("recv", self.group, agreed, x.array, finish, peer, give=NOTHING, touches=touches)

    def new_group(self, ranks: tuple[int, ...], made: list[ProcessGroup]) -> Call:
        """Appends the group of `ranks` to `made`."""
        return Call("new_group", self.group, Terms(Request(NEW_GROUP, ranks, 0)), made, _nothing)

    def agreement(self, ranks: tuple[int, ...]) -> Call:
        """Ends when all ranks of this group have called for a group of the same `ranks`, which is made elsewhere."""
        agreed = terms(self.group, NEW_GROUP, 0, "f16", note=f"{list(ranks)}")
        return Call("agreement", self.group, agreed, np.zeros(0, np.float16), _nothing, give=NOTHING, take=NOTHING)

    def _call(
        self,
        collective: str,
        like: Flat,
        count: int,
        buffer: Any,
        finish: Finish,
        touches: Touches,
        op: str = "sum",
        root: int = 0,
        give: slice | None = None,
        take: slice | None = None,
        shares: Shares | None = None,
    ) -> Call:
        """A collective of chunks of `count` elements; all ranks' tensors are `like` this one, or differ as `shares`."""
        shape = like.shape if shares is None else None
        agreed = terms(self.group, collective, count, like.dtype, op, root, shape, shares=shares)
        return Call("collective", self.group, agreed, buffer, finish, None, give, take, touches=touches)

    def _chunk(self, count: int) -> slice:
        return slice(self.me * count, (self.me + 1) * count)

    def _room(self, count: int, like: Flat) -> tuple[Any, slice]:
        """Room for a chunk of `count` elements per rank, and which of them are this rank's."""
        return like.room(count * self.group.size()), self._chunk(count)


def _touching(reads: tuple[Flat, ...], writes: tuple[Flat, ...], paired: bool = False) -> Touches:
    """Raises DistributedError (AHBM-X130) for a tensor that cannot hold a result."""
    for x in writes:
        if x.view is not None:
            x.writable()
    return Touches(reads, writes, paired)


def _shares(tensors: Sequence[Flat]) -> Shares | None:
    """The elements that belong to each rank; None where they are equally many."""
    sizes = tuple(x.size for x in tensors)
    return None if len(set(sizes)) == 1 else (sizes,)


def _nothing(_: Ticket) -> None:
    pass


def _sender(ticket: Ticket) -> int:
    return ticket.members[0]


def _kept(x: Flat) -> Finish:
    """The user's tensor stays as it is."""
    return lambda _: x.tensor


def _back(x: Flat, buffer: Any) -> Finish:
    def finish(_: Ticket) -> object:
        x.assign(buffer)
        return x.tensor

    return finish


def _deal(outs: Sequence[Flat], buffer: Any, starts: Iterable[int]) -> Finish:
    """Deals out `buffer` from the `starts` on."""

    def finish(_: Ticket) -> object:
        for out, start in zip(outs, starts, strict=False):
            out.assign(buffer[start : start + out.size])
        return [out.tensor for out in outs]

    return finish
