"""Collectives between the ranks of an emulated machine; names and meaning of torch.distributed.

    import ahbm, ahbm.distributed as dist

    def worker():
        dist.init_process_group(backend="ahbm")
        x = np.full(1024, dist.get_rank(), np.float16)
        dist.all_reduce(x)

    ahbm.spawn(worker)

A rank is a SIP. Tensors are NumPy arrays or torch CPU tensors of any strides, f16 bf16 f32 f64 and integers; results
are written in place. All ranks of a group make the same calls in the same order with equal shapes and dtypes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ahbm.arrays import HostTensor, host_tensor
from ahbm.blame import call_origin
from ahbm.calls import CallRecord
from ahbm.errors import DistributedError
from ahbm.exchange import Exchange
from ahbm.groups import NON_GROUP_MEMBER, ProcessGroup, ReduceOp
from ahbm.marshal import (
    back,
    check_root,
    chunks_like,
    deal,
    expect,
    fill,
    host_list,
    only_root,
    own,
    splits,
    terms_of,
)
from ahbm.operation import Operation
from ahbm.placement import DeviceTensor
from ahbm.rank import bind, collective, current, issue, joined, member
from ahbm.session import BACKEND, TIMEOUT_S, Call, Context, Lobby, Setup
from ahbm.work import Work
from ahbm.world import World

if TYPE_CHECKING:
    from ahbm._core import Machine

__all__ = [
    "CallRecord",
    "GroupMember",
    "ProcessGroup",
    "ReduceOp",
    "Work",
    "all_gather",
    "all_gather_into_tensor",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "cubes_per_rank",
    "destroy_process_group",
    "gather",
    "get_backend",
    "get_rank",
    "get_world_size",
    "group",
    "init_process_group",
    "irecv",
    "is_available",
    "is_initialized",
    "isend",
    "new_group",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "send",
    "simulated_time",
    "stats",
]


class GroupMember:
    """`GroupMember.WORLD`, `GroupMember.NON_GROUP_MEMBER`; also reachable as `group.WORLD`."""

    NON_GROUP_MEMBER = NON_GROUP_MEMBER

    @property
    def WORLD(self) -> ProcessGroup:
        """The group of all ranks."""
        return joined()[1].world_group


group = GroupMember()


# Life of a process group


def init_process_group(
    backend: str = BACKEND,
    *,
    topology: str | Path | Machine | None = None,
    ccl: str | Path | None = None,
    overrides: Mapping[str, object] | None = None,
    algorithm: str | None = None,
    timeout: float | timedelta | None = None,
) -> None:
    """Joins this rank to the default process group.

    `topology` (name, path or Machine), `ccl` (path), `overrides` (dotted keys of both files) and `algorithm` (name or
    path, for all_reduce) default to what `ahbm.spawn` or the command line was given, then to the environment and the
    files of the current directory. `timeout`: wall seconds without progress on any rank, default 600.

    Raises BackendError (a ValueError, AHBM-X101), DistributedError AHBM-X103 when already initialised, AHBM-X104 when
    the world has another size, AHBM-X110 when ranks disagree; TopologyError and ConfigError for bad files.
    """
    context = current()
    if context is None:
        context = Context(World(1), 0, Lobby())
    elif context.session is not None:
        raise DistributedError(
            "AHBM-X103", "the default process group is already initialised", hint="call destroy_process_group() first"
        )
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if seconds is not None and not seconds > 0:
        raise DistributedError("AHBM-X131", f"timeout must be positive, not {seconds}")
    context.session = context.lobby.session(
        context, Setup(topology, ccl, overrides, algorithm, seconds), backend, call_origin()
    )
    context.world.be_patient(context.session.setup.timeout_s or TIMEOUT_S)
    context.world.ranks[context.rank].clock_ps = 0
    bind(context)


def destroy_process_group() -> None:
    """Leaves the default process group; `init_process_group` may be called again."""
    context, _ = joined()
    context.session = None
    context.generation += 1
    if context.world.size == 1:
        bind(None)


def is_available() -> bool:
    """Whether this package can be used: always True."""
    return True


def is_initialized() -> bool:
    """Whether the calling thread is a rank of an initialised process group."""
    context = current()
    return context is not None and context.session is not None


def get_backend(group: ProcessGroup | None = None) -> str:
    """`"ahbm"`."""
    member(group, need=False)
    return BACKEND


def get_rank(group: ProcessGroup | None = None) -> int:
    """This rank's number in `group` (default: all ranks); -1 when it is no member."""
    context, _, members = member(group, need=False)
    return members.rank_of(context.rank)


def get_world_size(group: ProcessGroup | None = None) -> int:
    """Number of ranks in `group` (default: all ranks); -1 when this rank is no member."""
    context, _, members = member(group, need=False)
    return members.size() if members.rank_of(context.rank) >= 0 else -1


def new_group(ranks: Sequence[int] | None = None) -> ProcessGroup:
    """A group of `ranks` (default: all), in ascending order. Every rank of the world must call it.

    Returns `GroupMember.NON_GROUP_MEMBER` to ranks that are not in it. Raises DistributedError AHBM-X131 for ranks
    outside of the world or given twice, AHBM-X110 when the callers disagree.
    """
    context, session = joined()
    world = session.world_group
    members = world.ranks if ranks is None else tuple(sorted(ranks))
    if not members or len(set(members)) != len(members) or not set(members) <= set(world.ranks):
        raise DistributedError("AHBM-X131", f"new_group: {list(members)} are not distinct ranks below {world.size()}")
    made: list[ProcessGroup] = []
    issue(context, Call("new_group", world, {"collective": "new_group", "ranks": members}, made, lambda _: None)).wait()
    return made[0] if context.rank in members else NON_GROUP_MEMBER


def cubes_per_rank() -> int:
    """Number of cubes of this rank's SIP."""
    return joined()[1].emulator.machine.cubes


def simulated_time() -> float:
    """This rank's simulated clock in ns: the end of the latest operation it has waited for.

    Operations of other groups that overlapped it count, so this blocks until nothing can come any more that would
    change the answer: until every other rank waits, has returned, or asks at a later simulated time.
    """
    context, session = joined()
    return session.times_for(context.rank).clocks[context.rank] / 1000


def stats() -> list[CallRecord]:
    """What this rank has taken part in so far, in the order of its calls; operations under way are left out.

    Remembers the last 65,536 calls since `init_process_group`. Blocks as `simulated_time` does.
    """
    context, session = joined()
    return [record for _, record in session.records(context.rank, session.times_for(context.rank))]


# Collectives


def all_reduce(
    tensor: Any, op: object = ReduceOp.SUM, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Every rank's `tensor` becomes the element-wise reduction over all ranks.

    A DeviceTensor follows the algorithm contract instead: every cube's tile is one contribution.
    """
    parsed = ReduceOp.parse(op).value
    if isinstance(tensor, DeviceTensor):
        tiles = own(tensor.tiles, "tensor")
        terms = terms_of(tiles, op=parsed, placement=tensor.dp)
        return collective("all_reduce", group, terms, tiles.array, lambda _: tensor, async_op)
    x = own(tensor, "tensor")
    flat = x.flat()
    return collective("all_reduce", group, terms_of(x, op=parsed), flat, back(tensor, x, flat), async_op)


def broadcast(tensor: Any, src: int, group: ProcessGroup | None = None, async_op: bool = False) -> Work | None:
    """Every rank's `tensor` becomes that of (global) rank `src`."""
    x = own(tensor, "tensor")
    flat = x.flat()
    terms = terms_of(x, root=check_root(group, src, "src"))
    return collective("broadcast", group, terms, flat, back(tensor, x, flat), async_op)


def reduce(
    tensor: Any, dst: int, op: object = ReduceOp.SUM, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """`tensor` of (global) rank `dst` becomes the reduction over all ranks; the others keep theirs."""
    context, _, _ = member(group)
    x = own(tensor, "tensor")
    flat = x.flat() if context.rank == dst else x.flat().copy()
    terms = terms_of(x, op=ReduceOp.parse(op).value, root=check_root(group, dst, "dst"))
    finish = back(tensor, x, flat) if context.rank == dst else lambda _: tensor
    return collective("reduce", group, terms, flat, finish, async_op)


def all_gather(
    tensor_list: Sequence[Any], tensor: Any, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """`tensor_list[r]` becomes rank r's `tensor`."""
    x = host_tensor(tensor, writable=False, what="tensor")
    outs = host_list(group, "tensor_list", tensor_list, x, writable=True)
    flat, mine = chunks_like(group, x)
    mine[:] = x.flat()
    return collective("all_gather", group, terms_of(x), flat, deal(tensor_list, outs, flat), async_op)


def all_gather_into_tensor(
    output_tensor: Any, input_tensor: Any, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """`output_tensor` becomes all ranks' `input_tensor`, one after the other in C order."""
    x = host_tensor(input_tensor, writable=False, what="input_tensor")
    out = own(output_tensor, "output_tensor")
    expect(out, x, get_world_size(group), "output_tensor", "input_tensor")
    flat, mine = chunks_like(group, x)
    mine[:] = x.flat()
    return collective("all_gather", group, terms_of(x), flat, back(output_tensor, out, flat), async_op)


def reduce_scatter(
    output: Any,
    input_list: Sequence[Any],
    op: object = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """`output` of rank r becomes the reduction over all ranks of `input_list[r]`."""
    out = own(output, "output")
    ins = host_list(group, "input_list", input_list, out, writable=False)
    flat, mine = chunks_like(group, out)
    fill(flat, ins)
    terms = terms_of(out, op=ReduceOp.parse(op).value)
    return collective("reduce_scatter", group, terms, flat, back(output, out, mine), async_op)


def reduce_scatter_tensor(
    output: Any,
    input: Any,
    op: object = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """`output` of rank r becomes the reduction over all ranks of the r-th of `input`'s equal chunks."""
    out, whole = own(output, "output"), host_tensor(input, writable=False, what="input")
    expect(whole, out, get_world_size(group), "input", "output")
    flat, mine = chunks_like(group, out)
    flat[:] = whole.flat()
    terms = terms_of(out, op=ReduceOp.parse(op).value)
    return collective("reduce_scatter", group, terms, flat, back(output, out, mine), async_op)


def gather(
    tensor: Any,
    gather_list: Sequence[Any] | None = None,
    dst: int = 0,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """`gather_list[r]` of (global) rank `dst` becomes rank r's `tensor`; only `dst` passes a list."""
    context, _, _ = member(group)
    x = host_tensor(tensor, writable=False, what="tensor")
    terms = terms_of(x, root=check_root(group, dst, "dst"))
    lists = only_root(context.rank == dst, "gather_list", gather_list)
    outs = host_list(group, "gather_list", lists, x, writable=True) if context.rank == dst else []
    flat, mine = chunks_like(group, x)
    mine[:] = x.flat()
    return collective("gather", group, terms, flat, deal(lists, outs, flat), async_op)


def scatter(
    tensor: Any,
    scatter_list: Sequence[Any] | None = None,
    src: int = 0,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Rank r's `tensor` becomes `scatter_list[r]` of (global) rank `src`; only `src` passes a list."""
    context, _, _ = member(group)
    x = own(tensor, "tensor")
    terms = terms_of(x, root=check_root(group, src, "src"))
    lists = only_root(context.rank == src, "scatter_list", scatter_list)
    flat, mine = chunks_like(group, x)
    if context.rank == src:
        fill(flat, host_list(group, "scatter_list", lists, x, writable=False))
    return collective("scatter", group, terms, flat, back(tensor, x, mine), async_op)


def all_to_all(
    output_tensor_list: Sequence[Any],
    input_tensor_list: Sequence[Any],
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """`output_tensor_list[j]` becomes what rank j has in `input_tensor_list[<this rank>]`; all of one size."""
    if not input_tensor_list:
        raise DistributedError("AHBM-X131", "all_to_all: input_tensor_list is empty")
    first = host_tensor(input_tensor_list[0], writable=False, what="input_tensor_list[0]")
    ins = host_list(group, "input_tensor_list", input_tensor_list, first, writable=False)
    outs = host_list(group, "output_tensor_list", output_tensor_list, first, writable=True)
    (flat, _), (source, _) = chunks_like(group, first), chunks_like(group, first)
    fill(source, ins)
    sizes = (first.size,) * len(ins)
    exchange = Exchange(source, flat, sizes, sizes)
    finish = deal(output_tensor_list, outs, flat)
    return collective("all_to_all", group, {"dtype": first.dtype}, exchange, finish, async_op, "exchange")


def all_to_all_single(
    output: Any,
    input: Any,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Rank j's chunk of `output` becomes this rank's chunk of rank j's `input`.

    The chunks lie one after the other along the first axis: `input_split_sizes[j]` rows go to rank j,
    `output_split_sizes[j]` rows come from it; without sizes all chunks are equal. Simulated time is that of equal
    chunks as long as the longest.

    Raises DistributedError AHBM-X130 for sizes that do not add up, AHBM-X110 when the ranks disagree on them.
    """
    ranks = get_world_size(group)
    x, out = host_tensor(input, writable=False, what="input"), own(output, "output")
    if x.dtype != out.dtype:
        raise DistributedError("AHBM-X130", f"all_to_all_single: input has {x.dtype}, output {out.dtype}")
    flat = np.zeros(out.size, out.array.dtype)
    exchange = Exchange(
        x.flat(), flat, splits(x, input_split_sizes, ranks, "input"), splits(out, output_split_sizes, ranks, "output")
    )
    return collective("all_to_all", group, {"dtype": x.dtype}, exchange, back(output, out, flat), async_op, "exchange")


def barrier(group: ProcessGroup | None = None, async_op: bool = False) -> Work | None:
    """No rank returns before all have called; costs the simulated time of the barrier algorithm."""
    terms: dict[str, object] = {"dtype": "f16"}
    return collective("barrier", group, terms, np.zeros(1, np.float16), lambda _: None, async_op)


# Point to point


def send(tensor: Any, dst: int, group: ProcessGroup | None = None, tag: int = 0) -> None:
    """Sends `tensor` to (global) rank `dst`; returns when it has been received."""
    isend(tensor, dst, group, tag).wait()


def recv(tensor: Any, src: int | None = None, group: ProcessGroup | None = None, tag: int = 0) -> int:
    """Receives into `tensor` from (global) rank `src`, or from any; returns the sender's rank.

    Any: when no rank can go on otherwise, the sender with the earliest simulated time, then the lowest rank, is taken.
    """
    work = irecv(tensor, src, group, tag)
    sender = work.result()
    assert isinstance(sender, int)
    return sender


def isend(tensor: Any, dst: int, group: ProcessGroup | None = None, tag: int = 0) -> Work:
    """Starts to send `tensor` to (global) rank `dst`."""
    x = host_tensor(tensor, writable=False, what="tensor")
    return _post(group, x, dst, tag, sends=True)


def irecv(tensor: Any, src: int | None = None, group: ProcessGroup | None = None, tag: int = 0) -> Work:
    """Starts to receive into `tensor` from (global) rank `src`, or from any."""
    return _post(group, own(tensor, "tensor"), src, tag, sends=False)


def _post(group: ProcessGroup | None, x: HostTensor, peer: int | None, tag: int, *, sends: bool) -> Work:
    context, _, members = member(group)
    name = "dst" if sends else "src"
    if peer is not None and (check_root(group, peer, name) == context.rank):
        raise DistributedError("AHBM-X131", f"{name}={peer} is this rank itself", hint="copy the tensor instead")
    flat = x.flat()

    def finish(operation: Operation) -> object:
        if not sends:
            x.assign(flat)
        return operation.members[0]

    terms: dict[str, object] = {
        "collective": "send_recv",
        "group": members,
        "tag": tag,
        "dtype": x.dtype,
        "elements": x.size,
    }
    call = Call("send" if sends else "recv", members, terms, flat, finish, peer, tag)
    return issue(context, call)
