"""torch's process-group calls as operations of the emulator.

Method names and arguments are those that torch calls, old spellings beside new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch._C._distributed_c10d import Backend as TorchBackend

from ahbm.errors import DistributedError, UnsupportedError
from ahbm.exchange import Exchange
from ahbm.groups import ProcessGroup as Members
from ahbm.operation import Operation
from ahbm.session import Call
from ahbm.torch.place import Place
from ahbm.torch.profile import recorded
from ahbm.torch.tensors import Flat, flat, join, reduction, same, scaled, sized
from ahbm.torch.work import Work

NAME = "ahbm"
NOTHING = slice(0, 0)
Finish = Callable[[Operation], object]


def _kept(_: Operation) -> None:
    """Leaves the user's tensors as they are."""


@dataclass
class State:
    """What the forms of one group have in common."""

    sequence: int = 0
    """Operations issued so far."""
    batch: Work | None = None
    """Between start and end of coalescing: the handle of all operations."""
    estimate: list[float] | None = None
    """While times are estimated: microseconds of each operation."""


class Collectives:
    """The calls of one rank on one group."""

    _place: Place
    members: Members
    _timeout: timedelta | None
    _options: Any
    _state: State

    def bind(self, place: Place, members: Members, timeout: timedelta | None, state: State) -> None:
        """Says whose calls these are: `place`'s, on `members`."""
        self._place, self.members, self._timeout, self._state = place, members, timeout, state
        self._options = TorchBackend.Options(NAME, timeout or timedelta(minutes=30))

    # Issuing

    def _issue(
        self,
        work: Work,
        name: str,
        dtype: str,
        buffer: Any,
        finish: Finish,
        *,
        kind: str = "collective",
        op: str = "",
        root: int | None = None,
        give: slice | None = None,
        take: slice | None = None,
        peer: int | None = None,
        tag: int = 0,
        agreed: str = "",
    ) -> None:
        """Adds one operation to `work`. `root` and `peer` are group ranks."""
        self._state.sequence += 1
        terms: dict[str, object] = {"collective": name, "group": self.members, "dtype": dtype}
        if op:
            terms["op"] = op
        if root is not None:
            terms["root"] = self.members.ranks[root]
        if kind in ("send", "recv"):
            terms["tag"] = tag
        if kind != "exchange":
            terms["elements"] = int(buffer.size)
        if agreed:
            terms["agreed"] = agreed
        other = None if peer is None else self.members.ranks[peer]
        call = Call(kind, self.members, terms, buffer, finish, other, tag, give, take)
        if self._state.estimate is not None:
            self._state.estimate.append(self._place.estimate(call))
            return
        work.parts.append(self._place.submit(call))

    def _work(self, tensors: Sequence[Tensor]) -> Work:
        batch = self._state.batch
        if batch is None:
            return Work(self._place, self.members, tensors, self._timeout)
        batch.tensors += tensors
        return batch

    def _me(self) -> int:
        return self.members.rank_of(self._place.rank)

    def _chunks(self, one: int, like: Flat) -> tuple[NDArray[Any], slice]:
        """Room for a chunk of `one` elements per rank, and which of them are this rank's."""
        me = self._me()
        return like.room(one * self.members.size()), slice(me * one, (me + 1) * one)

    # Reductions

    @recorded
    def allreduce(self, tensors: Sequence[Tensor], opts: Any = None) -> Work:
        """Every tensor becomes the reduction over all ranks."""
        opts = opts or dist.AllreduceOptions()
        work = self._work(tensors)
        for tensor in tensors:
            if tensor.is_sparse:
                raise UnsupportedError("AHBM-U150", "all_reduce of a sparse tensor", hint="call to_dense() first")
            (op, factor), x = reduction(opts.reduceOp, tensor), flat(tensor)
            buffer = x.array if factor is None else scaled(x, factor)
            self._issue(work, "all_reduce", x.dtype, buffer, _back(x, buffer), op=op)
        return work

    @recorded
    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Any = None) -> Work:
        """`allreduce` of each."""
        return self.allreduce(tensors, opts)

    @recorded
    def reduce(self, tensors: Sequence[Tensor], opts: Any = None) -> Work:
        """The root's tensor becomes the reduction over all ranks."""
        opts = opts or dist.ReduceOptions()
        work, mine = self._work(tensors), self._me() == opts.rootRank
        for tensor in tensors:
            (op, factor), x = reduction(opts.reduceOp, tensor), flat(tensor)
            buffer = x.copy() if factor is None else scaled(x, factor)
            finish: Finish = _back(x, buffer) if mine else _kept
            take = None if mine else NOTHING
            self._issue(work, "reduce", x.dtype, buffer, finish, op=op, root=opts.rootRank, take=take)
        return work

    @recorded
    def reduce_scatter(
        self, output_tensors: Sequence[Tensor], input_tensors: Sequence[Sequence[Tensor]], opts: Any = None
    ) -> Work:
        """Each output becomes the reduction of what all ranks have in their input list at this rank's position."""
        work = self._work(output_tensors)
        for out, ins in zip(output_tensors, input_tensors, strict=True):
            self._reduce_scatter(work, out, [flat(t) for t in ins], opts)
        return work

    @recorded
    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        """`output` becomes the reduction over all ranks of this rank's chunk of `input`."""
        work = self._work([output])
        self._reduce_scatter(work, output, [flat(input)], opts)
        return work

    _reduce_scatter_base = reduce_scatter_single

    @recorded
    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """`reduce_scatter_single` of each pair."""
        work = self._work(outputs)
        for out, x in zip(outputs, inputs, strict=True):
            self._reduce_scatter(work, out, [flat(x)], opts)
        return work

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _reduce_scatter(self, work: Work, output: Tensor, ins: Sequence[Flat], opts: Any) -> None:
        opts = opts or dist.ReduceScatterOptions()
        (op, factor), out, n = reduction(opts.reduceOp, output), flat(output), self.members.size()
        same([out, *ins], "reduce_scatter")
        if len(ins) == 1 and n >= 1 and ins[0].array.size == out.array.size * n:
            longest = out.array.size
            buffer = ins[0].copy() if factor is None else scaled(ins[0], factor)
            mine = slice(self._me() * longest, (self._me() + 1) * longest)
        else:
            if len(ins) != n:
                raise DistributedError("AHBM-X131", f"reduce_scatter: {len(ins)} input tensors for {n} ranks")
            sized(ins[self._me()], out.array.size, "reduce_scatter: the input of this rank's position")
            longest = max(x.array.size for x in ins)
            buffer, mine = self._chunks(longest, out)
            for at, x in enumerate(ins):
                (x if factor is None else replace(x, array=scaled(x, factor))).into(buffer, at * longest)
        result = buffer[mine][: out.array.size]
        finish = _assign([out], lambda: [result])
        self._issue(work, "reduce_scatter", out.dtype, buffer, finish, op=op, take=mine)

    # Movements

    @recorded
    def broadcast(self, tensors: Sequence[Tensor], opts: Any = None) -> Work:
        """Every tensor becomes the root's."""
        opts = opts or dist.BroadcastOptions()
        work, mine = self._work(tensors), self._me() == opts.rootRank
        for tensor in tensors:
            x = flat(tensor)
            give, take = (None, NOTHING) if mine else (NOTHING, None)
            finish: Finish = _kept if mine else _back(x, x.array)
            self._issue(work, "broadcast", x.dtype, x.array, finish, root=opts.rootRank, give=give, take=take)
        return work

    @recorded
    def allgather(
        self, output_tensors: Sequence[Sequence[Tensor]], input_tensors: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """`output_tensors[i][r]` becomes rank r's `input_tensors[i]`, of whatever size."""
        work = self._work([t for outs in output_tensors for t in outs])
        for outs, tensor in zip(output_tensors, input_tensors, strict=True):
            self._gather(work, "all_gather", [flat(t) for t in outs], flat(tensor))
        return work

    @recorded
    def allgather_coalesced(
        self, output_lists: Sequence[Sequence[Tensor]], input_list: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """`output_lists[r][i]` becomes rank r's `input_list[i]`."""
        work = self._work([t for outs in output_lists for t in outs])
        for at, tensor in enumerate(input_list):
            self._gather(work, "all_gather", [flat(outs[at]) for outs in output_lists], flat(tensor))
        return work

    @recorded
    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        """`output` becomes all ranks' `input`, one after the other."""
        work = self._work([output])
        self._all_gather_single(work, output, input)
        return work

    _allgather_base = all_gather_single

    @recorded
    def all_gather_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """`all_gather_single` of each pair."""
        work = self._work(outputs)
        for out, x in zip(outputs, inputs, strict=True):
            self._all_gather_single(work, out, x)
        return work

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _all_gather_single(self, work: Work, output: Tensor, input: Tensor) -> None:
        out, x = flat(output), flat(input)
        same([out, x], "all_gather")
        sized(out, x.array.size * self.members.size(), "all_gather: the output")
        mine = slice(self._me() * x.array.size, (self._me() + 1) * x.array.size)
        x.into(out.array, mine.start)
        self._issue(work, "all_gather", x.dtype, out.array, _back(out, out.array), give=mine)

    def _gather(self, work: Work, name: str, outs: list[Flat], x: Flat, root: int | None = None) -> None:
        n = self.members.size()
        if len(outs) not in (0, n):
            raise DistributedError("AHBM-X131", f"{name}: {len(outs)} output tensors for {n} ranks")
        same([x, *outs], name)
        if outs:
            sized(outs[self._me()], x.array.size, f"{name}: the output of this rank's position")
        longest = max([x.array.size, *(out.array.size for out in outs)])
        buffer, mine = self._chunks(longest, x)
        x.into(buffer, mine.start)

        def chunks() -> list[NDArray[Any]]:
            return [buffer[at * longest : at * longest + out.array.size] for at, out in enumerate(outs)]

        finish = _assign(outs, chunks)
        self._issue(work, name, x.dtype, buffer, finish, root=root, give=mine, take=None if outs else NOTHING)

    @recorded
    def gather(
        self, output_tensors: Sequence[Sequence[Tensor]], input_tensors: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """The root's `output_tensors[0][r]` becomes rank r's `input_tensors[0]`."""
        opts = opts or dist.GatherOptions()
        mine = self._me() == opts.rootRank
        outs = list(output_tensors[0]) if mine and output_tensors else []
        work = self._work(outs)
        self._gather(work, "gather", [flat(t) for t in outs], flat(input_tensors[0]), opts.rootRank)
        return work

    @recorded
    def gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        """The root's `output` becomes all ranks' `input`, one after the other."""
        opts = opts or dist.GatherOptions()
        mine = self._me() == opts.rootRank
        work, x = self._work([output] if mine else []), flat(input)
        buffer, given = self._chunks(x.array.size, x)
        x.into(buffer, given.start)
        finish: Finish = _kept
        if mine:
            out = flat(output)
            sized(out, buffer.size, "gather: the output")
            finish = _back(out, buffer)
        take = None if mine else NOTHING
        self._issue(work, "gather", x.dtype, buffer, finish, root=opts.rootRank, give=given, take=take)
        return work

    gather_into_tensor = gather_single

    @recorded
    def scatter(
        self, output_tensors: Sequence[Tensor], input_tensors: Sequence[Sequence[Tensor]], opts: Any = None
    ) -> Work:
        """Rank r's `output_tensors[0]` becomes the root's `input_tensors[0][r]`."""
        opts = opts or dist.ScatterOptions()
        root, n, out = self._me() == opts.rootRank, self.members.size(), flat(output_tensors[0])
        work, size = self._work(output_tensors), out.array.size
        buffer, mine = self._chunks(size, out)
        if root:
            ins = [flat(t) for t in input_tensors[0]]
            same([out, *ins], "scatter")
            if len(ins) != n:
                raise DistributedError("AHBM-X131", f"scatter: {len(ins)} input tensors for {n} ranks")
            for at, x in enumerate(ins):
                sized(x, size, f"scatter: input {at}")
                x.into(buffer, at * size)
        give = None if root else NOTHING
        finish = _assign([out], lambda: [buffer[mine]])
        self._issue(work, "scatter", out.dtype, buffer, finish, root=opts.rootRank, give=give, take=mine)
        return work

    @recorded
    def alltoall(self, output_tensors: Sequence[Tensor], input_tensors: Sequence[Tensor], opts: Any = None) -> Work:
        """`output_tensors[j]` becomes what rank j has at this rank's position of `input_tensors`, of whatever size."""
        work = self._work(output_tensors)
        outs, ins = [flat(t) for t in output_tensors], [flat(t) for t in input_tensors]
        same([*outs, *ins], "all_to_all")
        source = join(ins)
        sends, receives = tuple(x.array.size for x in ins), tuple(x.array.size for x in outs)
        target = outs[0].room(sum(receives))
        ends = np.cumsum(receives)

        def chunks() -> list[NDArray[Any]]:
            return np.split(target, ends[:-1])

        exchange = Exchange(source, target, sends, receives)
        self._issue(work, "all_to_all", ins[0].dtype, exchange, _assign(outs, chunks), kind="exchange")
        return work

    @recorded
    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: Sequence[int] = (),
        input_split_sizes: Sequence[int] = (),
        opts: Any = None,
    ) -> Work:
        """Rank j's chunk of `output` becomes this rank's chunk of rank j's `input`; sizes are first-axis rows."""
        work, out, x = self._work([output]), flat(output), flat(input)
        same([out, x], "all_to_all")
        sends, receives = self._splits(x, input_split_sizes), self._splits(out, output_split_sizes)
        target = out.room(out.array.size)
        exchange = Exchange(x.copy(), target, sends, receives)
        self._issue(work, "all_to_all", x.dtype, exchange, _back(out, target), kind="exchange")
        return work

    alltoall_base = all_to_all_single

    def _splits(self, x: Flat, sizes: Sequence[int]) -> tuple[int, ...]:
        n, rows = self.members.size(), x.tensor.shape[0] if x.tensor.dim() else 1
        row = x.array.size // rows if rows else 0
        chosen = tuple(sizes) or ((rows // n,) * n if rows % n == 0 else ())
        if len(chosen) != n or sum(chosen) != rows or min(chosen) < 0:
            told = f"all_to_all_single: {rows} rows do not split into {list(sizes) or f'{n} equal chunks'}"
            raise DistributedError("AHBM-X130", told)
        return tuple(size * row for size in chosen)

    # Point to point and the rest

    @recorded
    def send(self, tensors: Sequence[Tensor], dst: int, tag: int = 0) -> Work:
        """Sends to group rank `dst`."""
        self._not_me(dst, "dst")
        work, x = self._work(tensors), flat(tensors[0])
        self._issue(work, "send_recv", x.dtype, x.array, _kept, kind="send", peer=dst, tag=tag, take=NOTHING)
        return work

    @recorded
    def recv(self, tensors: Sequence[Tensor], src: int, tag: int = 0) -> Work:
        """Receives from group rank `src`."""
        self._not_me(src, "src")
        return self._recv(tensors, src, tag)

    @recorded
    def recv_anysource(self, tensors: Sequence[Tensor], tag: int = 0) -> Work:
        """Receives from whoever sends; `Work.source_rank` tells who did."""
        return self._recv(tensors, None, tag)

    def _recv(self, tensors: Sequence[Tensor], src: int | None, tag: int) -> Work:
        work, x = self._work(tensors), flat(tensors[0])
        finish = _back(x, x.array)
        self._issue(work, "send_recv", x.dtype, x.array, finish, kind="recv", peer=src, tag=tag, give=NOTHING)
        return work

    def _not_me(self, peer: int, what: str) -> None:
        if peer == self._me():
            raise DistributedError("AHBM-X131", f"{what}={peer} is this rank itself", hint="copy the tensor instead")

    @recorded
    def barrier(self, opts: Any = None) -> Work:
        """Ends when all ranks have called."""
        work = self._work([])
        self._issue(work, "barrier", "f16", np.zeros(1, np.float16), _kept, give=NOTHING, take=NOTHING)
        return work

    def agree(self, what: str) -> None:
        """A barrier that fails on all ranks (AHBM-X110) unless all agree on `what` at this point."""
        work = self._work([])
        self._issue(work, "barrier", "f16", np.zeros(1, np.float16), _kept, give=NOTHING, take=NOTHING, agreed=what)
        work.wait()

    def monitored_barrier(self, opts: Any = None, wait_all_ranks: bool = False) -> None:
        """A barrier that names the missing ranks when the timeout passes."""
        timeout = getattr(opts, "timeout", None) or self._timeout
        self.barrier().wait(timeout)

    def start_coalescing(self, device: Any = None) -> None:
        """Calls up to `end_coalescing` end together."""
        self._state.batch = Work(self._place, self.members, [], self._timeout)

    def end_coalescing(self, device: Any = None) -> Work:
        """One handle for all calls since `start_coalescing`."""
        batch, self._state.batch = self._state.batch, None
        return Work(self._place, self.members, [], self._timeout) if batch is None else batch

    _start_coalescing = start_coalescing
    _end_coalescing = end_coalescing

    # Time estimation: calls between start and end do not run, their simulated times are added up.

    @property
    def _supports_time_estimate(self) -> bool:
        return True

    def _start_time_estimate(self) -> None:
        self._state.estimate = []

    def _end_time_estimate(self) -> float:
        """Microseconds."""
        estimate, self._state.estimate = self._state.estimate or [], None
        return sum(estimate)


def _back(x: Flat, buffer: NDArray[Any]) -> Finish:
    def finish(_: Operation) -> None:
        x.assign(buffer)

    return finish


def _assign(outs: Sequence[Flat], chunks: Callable[[], list[NDArray[Any]]]) -> Finish:
    def finish(_: Operation) -> None:
        for out, chunk in zip(outs, chunks(), strict=True) if outs else ():
            out.assign(chunk)

    return finish
