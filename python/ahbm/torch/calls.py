"""torch's process-group calls as operations of the emulator.

Method names and arguments are those that torch calls, old spellings beside new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Backend as TorchBackend

from ahbm.base.arrays import Flat
from ahbm.errors import DistributedError, Site
from ahbm.front.marshal import Member
from ahbm.ranks.blame import call_origin
from ahbm.ranks.groups import ProcessGroup as Members
from ahbm.ranks.seat import Call
from ahbm.ranks.ticket import Ticket
from ahbm.torch import hazards, sparse
from ahbm.torch.failures import as_torchs
from ahbm.torch.place import Place
from ahbm.torch.profile import recorded
from ahbm.torch.rules import Rules, ruled
from ahbm.torch.tensors import flat, reduction, same, scaled, sized
from ahbm.torch.work import Work

NAME = "ahbm"


@dataclass
class State:
    """The state that the forms of one group have in common."""

    timeout: timedelta | None = None
    """The longest time that a wait lasts."""
    sequence: int = 0
    """Operations issued so far."""
    batch: Work | None = None
    """Between start and end of coalescing: the handle of all operations."""
    estimate: list[float] | None = None
    """While times are estimated: microseconds of each operation."""
    rules: Rules | None = None
    """The rules of the backend that the script has asked for."""
    backend: str = ""
    """By these rules, the backend of the latest call."""
    store: Any = None
    """torch's store, where the ranks are processes."""
    devices: set[int] = field(default_factory=set)
    """Those of this rank that the group's calls have used."""
    own: dict[str, list[Tensor]] = field(default_factory=dict)
    """Of the batch, what this rank sends to itself and receives from itself."""
    tags: dict[tuple[str, int], tuple[int, str]] = field(default_factory=dict)
    """By direction and peer, the latest tag that nccl ignores, and where."""


class Collectives:
    """The calls of one rank on one group."""

    _place: Place
    members: Members
    _options: Any
    _state: State
    _calls: Member

    def bind(self, place: Place, members: Members, state: State) -> None:
        """Says whose calls these are: `place`'s, on `members`."""
        self._place, self.members, self._state = place, members, state
        self._calls = Member(members, members.rank_of(place.rank))
        self._options = TorchBackend.Options(NAME, state.timeout or timedelta(minutes=30))

    # Issuing

    def _issue(self, work: Work, call: Call) -> None:
        """Adds one operation to `work`."""
        request = call.terms.request
        if request.kind.rooted:
            self._in_group(request.root, f"{request.collective}: root")
        state, place = self._state, self._place
        state.sequence += 1
        if state.estimate is not None:
            state.estimate.append(place.estimate(call))
            return
        if state.backend == "nccl":
            paired = call.kind in ("send", "recv")
            call.style = ("alone" if state.batch is None else "batch") if paired else "collective"
        seen = hazards.versions(call) if place.watches else ()
        ticket = place.submit(call)
        work.tickets.append(ticket)
        if seen:
            hazards.watch(work, call, ticket, seen)

    def _work(self, tensors: Sequence[Tensor]) -> Work:
        batch = self._state.batch
        if batch is None:
            return Work(self._place, self.members, tensors, self._state.timeout)
        batch.tensors += tensors
        return batch

    def _me(self) -> int:
        return self._calls.me

    def _in_group(self, rank: int, what: str) -> None:
        """Raises DistributedError (AHBM-X131) unless `rank` is a group rank."""
        size = self.members.size()
        if rank not in range(size):
            raise DistributedError(
                "AHBM-X131",
                f"{what}={rank} is no rank of group {self.members.name}",
                hint=f"the ranks of a group of {size} are 0 to {size - 1}",
            )

    # Reductions

    @recorded
    @ruled
    def allreduce(self, tensors: Sequence[Tensor], opts: Any = None) -> Work:
        """Every tensor becomes the reduction over all ranks."""
        opts = opts or dist.AllreduceOptions()
        work = self._work(tensors)
        for tensor in tensors:
            if tensor.is_sparse:
                self._allreduce_sparse(work, tensor, opts.reduceOp)
                continue
            (op, factor), x = reduction(opts.reduceOp, tensor), flat(tensor)
            self._issue(work, self._calls.all_reduce(scaled(x, factor), op, None if factor is None else x))
        return work

    def _allreduce_sparse(self, work: Work, tensor: Tensor, op: Any) -> None:
        """Waits for earlier sums of the group, which may be of `tensor`, and for the sizes; the rest is `work`'s."""
        for earlier in list(self._place.unfinished):
            for ticket in earlier.tickets:
                self._place.settle(ticket)
        self._place.finish()
        mine = sparse.own(tensor, op)
        head = sparse.head(mine)
        heads = [head.clone() for _ in range(self.members.size())]
        gathering = Work(self._place, self.members, heads, self._state.timeout)
        self._issue(gathering, self._calls.all_gather([flat(t) for t in heads], flat(head)))
        gathering.wait()
        indices, values = sparse.rooms(mine, heads)
        for outs, x in ((indices, mine.indices()), (values, mine.values())):
            self._issue(work, self._calls.all_gather([flat(t) for t in outs], flat(x)))
        work.completions.append(partial(sparse.add_up, tensor, indices, values))
        self._place.unfinished[work] = None

    @recorded
    @ruled
    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Any = None) -> Work:
        """`allreduce` of each."""
        return Collectives.allreduce(self, tensors, opts)  # a group's own takes options of its own alone

    @recorded
    @ruled
    def reduce(self, tensors: Sequence[Tensor], opts: Any = None) -> Work:
        """The root's tensor becomes the reduction over all ranks."""
        opts = opts or dist.ReduceOptions()
        work, root = self._work(tensors), opts.rootRank
        for tensor in tensors:
            (op, factor), x = reduction(opts.reduceOp, tensor), flat(tensor)
            self._issue(work, self._calls.reduce(scaled(x, factor), op, root, None if factor is None else x))
        return work

    @recorded
    @ruled
    def reduce_scatter(
        self, output_tensors: Sequence[Tensor], input_tensors: Sequence[Sequence[Tensor]], opts: Any = None
    ) -> Work:
        """Each output becomes the reduction of what all ranks have in their input list at this rank's position."""
        work = self._work(output_tensors)
        for out, ins in zip(output_tensors, input_tensors, strict=True):
            self._reduce_scatter(work, out, [flat(t) for t in ins], opts)
        return work

    @recorded
    @ruled
    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        """`output` becomes the reduction over all ranks of this rank's chunk of `input`."""
        work = self._work([output])
        self._reduce_scatter_single(work, output, input, opts)
        return work

    _reduce_scatter_base = reduce_scatter_single

    @recorded
    @ruled
    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """`reduce_scatter_single` of each pair."""
        work = self._work(outputs)
        for out, x in zip(outputs, inputs, strict=True):
            self._reduce_scatter_single(work, out, x, opts)
        return work

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _reduce_scatter_single(self, work: Work, output: Tensor, input: Tensor, opts: Any) -> None:
        opts = opts or dist.ReduceScatterOptions()
        (op, factor), out, x = reduction(opts.reduceOp, output), flat(output), flat(input)
        same([out, x], "reduce_scatter")
        sized(x, out.size * self.members.size(), "reduce_scatter: the input")
        self._issue(work, self._calls.reduce_scatter_single(out, scaled(x, factor), op))

    def _reduce_scatter(self, work: Work, output: Tensor, ins: Sequence[Flat], opts: Any) -> None:
        opts = opts or dist.ReduceScatterOptions()
        (op, factor), out, n = reduction(opts.reduceOp, output), flat(output), self.members.size()
        same([out, *ins], "reduce_scatter")
        ins = [scaled(x, factor) for x in ins]
        if len(ins) == 1 and n >= 1 and ins[0].size == out.size * n:
            self._issue(work, self._calls.reduce_scatter_single(out, ins[0], op))
            return
        if len(ins) != n:
            raise DistributedError("AHBM-X131", f"reduce_scatter: {len(ins)} input tensors for {n} ranks")
        sized(ins[self._me()], out.size, "reduce_scatter: the input of this rank's position")
        self._issue(work, self._calls.reduce_scatter(out, ins, op))

    # Movements

    @recorded
    @ruled
    def broadcast(self, tensors: Sequence[Tensor], opts: Any = None) -> Work:
        """Every tensor becomes the root's."""
        opts = opts or dist.BroadcastOptions()
        work = self._work(tensors)
        for tensor in tensors:
            self._issue(work, self._calls.broadcast(flat(tensor), opts.rootRank))
        return work

    @recorded
    @ruled
    def allgather(
        self, output_tensors: Sequence[Sequence[Tensor]], input_tensors: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """`output_tensors[i][r]` becomes rank r's `input_tensors[i]`, of whatever size."""
        work = self._work([t for outs in output_tensors for t in outs])
        for outs, tensor in zip(output_tensors, input_tensors, strict=True):
            self._gather(work, [flat(t) for t in outs], flat(tensor))
        return work

    @recorded
    @ruled
    def allgather_coalesced(
        self, output_lists: Sequence[Sequence[Tensor]], input_list: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """`output_lists[r][i]` becomes rank r's `input_list[i]`."""
        work = self._work([t for outs in output_lists for t in outs])
        for at, tensor in enumerate(input_list):
            self._gather(work, [flat(outs[at]) for outs in output_lists], flat(tensor))
        return work

    @recorded
    @ruled
    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        """`output` becomes all ranks' `input`, one after the other."""
        work = self._work([output])
        self._all_gather_single(work, output, input)
        return work

    _allgather_base = all_gather_single

    @recorded
    @ruled
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
        sized(out, x.size * self.members.size(), "all_gather: the output")
        self._issue(work, self._calls.all_gather_single(out, x))

    def _gather(self, work: Work, outs: list[Flat], x: Flat, root: int | None = None) -> None:
        """`all_gather`, or `gather` where there is a root."""
        n, name = self.members.size(), "all_gather" if root is None else "gather"
        if len(outs) not in (0, n):
            raise DistributedError("AHBM-X131", f"{name}: {len(outs)} output tensors for {n} ranks")
        same([x, *outs], name)
        if outs:
            sized(outs[self._me()], x.size, f"{name}: the output of this rank's position")
        calls = self._calls
        self._issue(work, calls.all_gather(outs, x) if root is None else calls.gather(outs, x, root))

    @recorded
    @ruled
    def gather(
        self, output_tensors: Sequence[Sequence[Tensor]], input_tensors: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """The root's `output_tensors[0][r]` becomes rank r's `input_tensors[0]`."""
        opts = opts or dist.GatherOptions()
        mine = self._me() == opts.rootRank
        outs = list(output_tensors[0]) if mine and output_tensors else []
        work = self._work(outs)
        self._gather(work, [flat(t) for t in outs], flat(input_tensors[0]), opts.rootRank)
        return work

    @recorded
    @ruled
    def gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        """The root's `output` becomes all ranks' `input`, one after the other."""
        opts = opts or dist.GatherOptions()
        mine = self._me() == opts.rootRank
        work, x = self._work([output] if mine else []), flat(input)
        out = flat(output) if mine else None
        if out is not None:
            sized(out, x.size * self.members.size(), "gather: the output")
        self._issue(work, self._calls.gather_single(out, x, opts.rootRank))
        return work

    gather_into_tensor = gather_single

    @recorded
    @ruled
    def scatter(
        self, output_tensors: Sequence[Tensor], input_tensors: Sequence[Sequence[Tensor]], opts: Any = None
    ) -> Work:
        """Rank r's `output_tensors[0]` becomes the root's `input_tensors[0][r]`."""
        opts = opts or dist.ScatterOptions()
        n, out, ins = self.members.size(), flat(output_tensors[0]), list[Flat]()
        work = self._work(output_tensors)
        if self._me() == opts.rootRank:
            ins = [flat(t) for t in input_tensors[0]]
            same([out, *ins], "scatter")
            if len(ins) != n:
                raise DistributedError("AHBM-X131", f"scatter: {len(ins)} input tensors for {n} ranks")
            for at, x in enumerate(ins):
                sized(x, out.size, f"scatter: input {at}")
        self._issue(work, self._calls.scatter(out, ins, opts.rootRank))
        return work

    @recorded
    @ruled
    def alltoall(self, output_tensors: Sequence[Tensor], input_tensors: Sequence[Tensor], opts: Any = None) -> Work:
        """`output_tensors[j]` becomes what rank j has at this rank's position of `input_tensors`, of whatever size."""
        work = self._work(output_tensors)
        outs, ins = [flat(t) for t in output_tensors], [flat(t) for t in input_tensors]
        same([*outs, *ins], "all_to_all")
        self._issue(work, self._calls.all_to_all(outs, ins))
        return work

    @recorded
    @ruled
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
        if not output_split_sizes and not input_split_sizes:
            sized(out, x.size, "all_to_all_single: without split sizes, the output")
        self._issue(work, self._calls.all_to_all_single(out, x, receives, sends))
        return work

    alltoall_base = all_to_all_single

    def _splits(self, x: Flat, sizes: Sequence[int]) -> tuple[int, ...]:
        n, rows = self.members.size(), x.tensor.shape[0] if x.tensor.dim() else 1
        row = x.size // rows if rows else 0
        chosen = tuple(sizes) or ((rows // n,) * n if rows % n == 0 else ())
        if len(chosen) != n or sum(chosen) != rows or min(chosen) < 0:
            message = f"all_to_all_single: {rows} rows do not split into {list(sizes) or f'{n} equal chunks'}"
            raise DistributedError("AHBM-X130", message)
        return tuple(size * row for size in chosen)

    # Point to point and the rest

    @recorded
    @ruled
    def send(self, tensors: Sequence[Tensor], dst: int, tag: int = 0) -> Work:
        """Sends to group rank `dst`."""
        if self._to_itself(dst, "dst"):
            return self._own(tensors, "sends")
        work, x = self._work(tensors), flat(tensors[0])
        self._issue(work, self._calls.send(x, self.members.ranks[dst], self._tag("to", dst, tag)))
        return work

    @recorded
    @ruled
    def recv(self, tensors: Sequence[Tensor], src: int, tag: int = 0) -> Work:
        """Receives from group rank `src`."""
        if self._to_itself(src, "src"):
            return self._own(tensors, "receives")
        return self._recv(tensors, src, self._tag("from", src, tag))

    @recorded
    @ruled
    def recv_anysource(self, tensors: Sequence[Tensor], tag: int = 0) -> Work:
        """Receives from whoever sends; `Work.source_rank` tells who did."""
        return self._recv(tensors, None, tag)

    def _recv(self, tensors: Sequence[Tensor], src: int | None, tag: int) -> Work:
        work, x = self._work(tensors), flat(tensors[0])
        self._issue(work, self._calls.recv(x, None if src is None else self.members.ranks[src], tag))
        return work

    def _tag(self, way: str, peer: int, tag: int) -> int:
        """The tag by which a message finds its other side; nccl has none."""
        state = self._state
        if state.backend != "nccl":
            return tag
        if tag or state.tags:
            before = state.tags.get((way, peer))
            state.tags[way, peer] = (tag, call_origin())
            if before is not None and before[0] != tag:
                hazards.say(
                    self._place,
                    f"nccl ignores tags: tag {before[0]} [{before[1]}] and tag {tag} [{call_origin()}] {way} rank "
                    f"{self.members.ranks[peer]}; what is sent first is received first",
                    "tags",
                )
        return 0

    def _to_itself(self, peer: int, what: str) -> bool:
        """Whether `peer` is this rank, which a batch may send to, as nccl's groups of calls may."""
        self._in_group(peer, what)
        if peer != self._me():
            return False
        if self._state.batch is None:
            raise DistributedError(
                "AHBM-X131",
                f"{what}={peer} is this rank itself",
                hint="copy the tensor instead, or put the send and its receive into one dist.batch_isend_irecv",
            )
        return True

    def _own(self, tensors: Sequence[Tensor], side: str) -> Work:
        """A message of this rank to itself, of the batch that is open: it moves when the batch ends."""
        work = self._work(tensors if side == "receives" else [])
        self._state.own.setdefault(side, []).append(tensors[0])
        return work

    def _move_own(self) -> None:
        own, self._state.own = self._state.own, {}
        sends, receives = own.get("sends", []), own.get("receives", [])
        if len(sends) != len(receives):
            message = f"a batch with {len(sends)} sends of this rank to itself and {len(receives)} receives"
            raise DistributedError("AHBM-X131", message, hint="each send needs its receive in the same batch")
        for x, to in zip(sends, receives, strict=True):
            same([flat(x), flat(to)], "a send of this rank to itself")
            sized(flat(to), x.numel(), "a send of this rank to itself: the receive")
            self._place.settle_writes(flat(x))
        with torch.no_grad():
            for to, values in zip(receives, [x.detach().clone() for x in sends], strict=True):
                to.copy_(values.view(to.shape))

    @recorded
    @ruled
    def barrier(self, opts: Any = None) -> Work:
        """Ends when all ranks have called."""
        work = self._work([])
        self._issue(work, self._calls.barrier())
        return work

    def agree_on_group(self, ranks: tuple[int, ...]) -> None:
        """Ends when all ranks call with the same `ranks`, a group that is to be made; the simulated clock stands still.
        Raises DistributedError (AHBM-X110) on all of them where they differ."""
        place = self._place
        if self.members.size() > 1 and place.agrees:
            ticket = place.seat.submit(place.rank, self._calls.agreement(ranks))
            place.settle(ticket)
            if ticket.error is not None:
                raise as_torchs(ticket.error) if isinstance(ticket.error, DistributedError) else ticket.error

    def agree(self, what: str) -> None:
        """A barrier that fails on all ranks (AHBM-X110) unless all agree on `what` at this point."""
        work = self._work([])
        self._issue(work, self._calls.barrier(what))
        work.wait()

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """A barrier after whose timeout (a timedelta, seconds, or None: the group's) rank 0 names the missing ranks, in
        torch's words: all with `wait_all_ranks`, otherwise the first. Raises AHBM-X122 on every rank that has come."""
        if self._state.rules is not None:
            self._state.rules.enter(self, "monitored_barrier", ())
        limit = self._state.timeout if timeout is None else timeout
        seconds = limit.total_seconds() if isinstance(limit, timedelta) else limit
        work = self._work([])
        self._issue(work, self._calls.barrier())
        for ticket in work.tickets:
            try:
                self._place.wait(ticket, seconds)
            except DistributedError as error:
                if error.code != "AHBM-X122" or seconds is None:
                    raise
                raise as_torchs(self._missing(ticket, seconds, wait_all_ranks, error.sites)) from None

    def _missing(self, ticket: Ticket, seconds: float, all_of_them: bool, sites: tuple[Site, ...]) -> DistributedError:
        me, took = self._me(), f"{seconds * 1000:g} ms"
        absent = [] if me else [self.members.rank_of(rank) for rank in self._place.seat.absent(ticket)]
        if me:
            message = (
                f"Rank {me} successfully reached monitoredBarrier, but received errors while waiting for send/recv "
                "from rank 0. Please check rank 0 logs for faulty rank."
            )
        elif not seconds or not absent:
            message = f"Rank 0 timed out in monitoredBarrier after {took}"
        elif all_of_them:
            message = f"Ranks {', '.join(map(str, absent))} failed to pass monitoredBarrier in {took}"
        else:
            message = f"Rank {absent[0]} failed to pass monitoredBarrier in {took}"
        return DistributedError("AHBM-X122", message, sites=sites)

    def start_coalescing(self, device: Any = None) -> None:
        """Calls up to `end_coalescing` end together."""
        self._state.batch = Work(self._place, self.members, [], self._state.timeout)

    def end_coalescing(self, device: Any = None) -> Work:
        """One handle for all calls since `start_coalescing`."""
        batch, self._state.batch = self._state.batch, None
        if self._state.own:
            self._move_own()
        return Work(self._place, self.members, [], self._state.timeout) if batch is None else batch

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


CALLS = tuple(name for name, method in vars(Collectives).items() if hasattr(method, "__wrapped__"))
"""The names of the methods that make operations, old spellings too."""
