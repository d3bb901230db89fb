"""Collectives between the ranks of an emulated machine; names and meaning of torch.distributed.

    import ahbm, ahbm.distributed as dist

    def worker():
        dist.init_process_group(backend="ahbm")
        x = np.full(1024, dist.get_rank(), np.float16)
        dist.all_reduce(x)

    ahbm.spawn(worker)

A rank is a SIP. Tensors are NumPy arrays or torch CPU tensors of any strides, f16 bf16 f32 f64 f8e4m3 f8e5m2 and
integers; results are written in place. All ranks of a group make the same calls in the same order with equal
shapes and dtypes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ahbm.base.arguments import checked
from ahbm.base.placement import DeviceTensor
from ahbm.errors import DistributedError
from ahbm.front.arguments import each, expect, given, only_root, own, root_of, splits
from ahbm.front.marshal import Member
from ahbm.ranks.blame import call_origin
from ahbm.ranks.calls import CallRecord
from ahbm.ranks.claims import Claims
from ahbm.ranks.groups import NON_GROUP_MEMBER, ProcessGroup, ReduceOp
from ahbm.ranks.lobby import BACKEND, TIMEOUT_S, Context, Lobby, agree_with_world
from ahbm.ranks.rank import bind, current, issue, joined, member
from ahbm.ranks.seat import Call
from ahbm.ranks.setup import Setup, ambient
from ahbm.ranks.work import Work
from ahbm.ranks.world import World
from ahbm.source.function import AnyAlgorithm, as_algorithm

if TYPE_CHECKING:
    from ahbm._core import Machine
    from ahbm.selectors.protocol import AnySelector

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
    "set_selector",
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


@checked
def init_process_group(
    backend: str = BACKEND,
    *,
    topology: str | Path | Machine | None = None,
    ccl: str | Path | None = None,
    overrides: Mapping[str, object] | None = None,
    algorithm: AnyAlgorithm = None,
    timeout: float | timedelta | None = None,
    check: str | None = None,
    selector: AnySelector = None,
    init_method: str | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    device_id: Any = None,
) -> None:
    """Joins this rank to the default process group.

    `topology` (name, path or Machine), `ccl` (path), `overrides` (dotted keys of both files) and `algorithm` (name,
    path or kernel function, for all_reduce) default to what `ahbm.spawn` or the command line was given, then to the
    environment and the files of the current directory. `timeout`: wall seconds without progress on any rank, default
    600. `check`: what is checked of every call that is the first of its shape, as `check` of `ahbm.run`, or "none";
    default AHBM_CHECK, else "result": a contribution that is lost or doubled raises DataError (AHBM-V401), and so do
    wrong results of test numbers where contributions cannot be followed (AHBM-V301); what stays undecided warns once
    with the kernel's line (ProgramWarning, AHBM-U290).

    `selector` chooses the algorithm of every collective: an object (`ahbm.selectors.protocol.Selector`), a function of
    algorithms and request, the name of one that comes with AHBM ("nccl", "shortlist") or a file; None: as ccl.yaml
    says. What ranks choose must agree (AHBM-X111); what is no algorithm of the collective raises ConfigError
    (AHBM-C180). A selector that fails warns (AHBM-X112), and ccl.yaml chooses on all ranks.

    The rest are torch's. The ranks of a world are there before it is called, so `world_size` and `rank` (-1: whatever
    they are) must be what they are, and `init_method`, `store`, `group_name` and `device_id` find nobody and change
    nothing.

    Raises BackendError (a ValueError, AHBM-X101), DistributedError AHBM-X103 when already initialised, AHBM-X104 when
    the world has another size, AHBM-X131 when this is another rank, AHBM-X110 when ranks disagree; TopologyError and
    ConfigError for bad files.
    """
    context = current()
    if context is None:
        context = Context(World(1), 0, Lobby())
    elif context.session is not None:
        raise DistributedError(
            "AHBM-X103", "the default process group is already initialised", hint="call destroy_process_group() first"
        )
    agree_with_world(context.world.size, context.rank, world_size, rank)
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if seconds is not None and not seconds > 0:
        raise DistributedError("AHBM-X131", f"timeout must be positive, not {seconds}")
    context.session = context.lobby.session(
        context, Setup(topology, ccl, overrides, as_algorithm(algorithm), seconds, check=check), backend, call_origin()
    )
    context.selection = None
    context.claims = Claims(context.session.detach)
    chosen = selector or context.lobby.first.selector or ambient().selector
    context.choose()
    if chosen is not None:
        context.select(None, chosen)
    context.world.be_patient(context.session.setup.timeout_s or TIMEOUT_S)
    context.world.ranks[context.rank].clock_ps = 0
    bind(context)


def destroy_process_group() -> None:
    """Leaves the default process group; `init_process_group` may be called again."""
    context, _ = joined()
    if context.selection is not None:
        context.selection.close()
        context.selection = None
    context.session = context.claims = None
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


@checked
def get_backend(group: ProcessGroup | None = None) -> str:
    """`"ahbm"`."""
    member(group, need=False)
    return BACKEND


@checked
def get_rank(group: ProcessGroup | None = None) -> int:
    """This rank's number in `group` (default: all ranks); -1 when it is no member."""
    context, _, members = member(group, need=False)
    return members.rank_of(context.rank)


@checked
def get_world_size(group: ProcessGroup | None = None) -> int:
    """Number of ranks in `group` (default: all ranks); -1 when this rank is no member."""
    context, _, members = member(group, need=False)
    return members.size() if members.rank_of(context.rank) >= 0 else -1


@checked
def set_selector(selector: AnySelector, group: ProcessGroup | None = None, *, at: int | None = None) -> None:
    """`selector` chooses the algorithms of `group`'s collectives from now on, or from its call number `at` on, counted
    from 0 (default: the next one). Every rank must set it before the same call.

    group: None is for all groups that have no selector of their own. A selector that is None leaves them to ccl.yaml.
    Raises ConfigError: AHBM-C129 for a call that has been made already, AHBM-C181 for a bad file; DistributedError
    AHBM-X106 for a group that this rank is no member of.
    """
    context, _, _ = member(group)
    context.select(group, selector, at)


@checked
def new_group(ranks: Sequence[int] | None = None, *, selector: AnySelector = None) -> ProcessGroup:
    """A group of `ranks` (default: all), in ascending order. Every rank of the world must call it.

    `selector` chooses the algorithms of its collectives, instead of the one of `init_process_group`.
    Returns `GroupMember.NON_GROUP_MEMBER` to ranks that are not in it. Raises DistributedError AHBM-X131 for ranks
    outside of the world or given twice, AHBM-X110 when the callers disagree.
    """
    context, session = joined()
    world = session.world_group
    members = world.ranks if ranks is None else tuple(sorted(ranks))
    if not members or len(set(members)) != len(members) or not set(members) <= set(world.ranks):
        raise DistributedError("AHBM-X131", f"new_group: {list(members)} are not distinct ranks below {world.size()}")
    made: list[ProcessGroup] = []
    issue(context, Member(world, context.rank).new_group(members, made)).wait()
    if selector is not None and context.rank in members:
        context.select(made[0], selector)
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
    """The calls that this rank has taken part in so far, in their order; operations under way are left out.

    Remembers the last 65,536 calls since `init_process_group`. Blocks as `simulated_time` does.
    """
    context, session = joined()
    return [record for _, record in session.ledger.records(context.rank, session.times_for(context.rank))]


# Collectives


@checked
def all_reduce(
    tensor: Any, op: object = ReduceOp.SUM, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Every rank's `tensor` becomes the element-wise reduction over all ranks.

    A DeviceTensor follows the algorithm contract instead: every cube's tile is one contribution.
    """
    parsed, side = ReduceOp.parse(op).value, _side(group)
    if isinstance(tensor, DeviceTensor):
        return _start(side.all_reduce_tiles(tensor, parsed), async_op)
    return _start(side.all_reduce(own(tensor, "tensor"), parsed), async_op)


@checked
def broadcast(tensor: Any, src: int, group: ProcessGroup | None = None, async_op: bool = False) -> Work | None:
    """Every rank's `tensor` becomes that of (global) rank `src`."""
    side, x = _side(group), own(tensor, "tensor")
    return _start(side.broadcast(x, root_of(side.group, src, "src")), async_op)


@checked
def reduce(
    tensor: Any, dst: int, op: object = ReduceOp.SUM, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """`tensor` of (global) rank `dst` becomes the reduction over all ranks; the others keep theirs."""
    side, x = _side(group), own(tensor, "tensor")
    return _start(side.reduce(x, ReduceOp.parse(op).value, root_of(side.group, dst, "dst")), async_op)


@checked
def all_gather(
    tensor_list: Sequence[Any], tensor: Any, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """`tensor_list[r]` becomes rank r's `tensor`."""
    side, x = _side(group), given(tensor, "tensor")
    outs = each(side.group, "tensor_list", tensor_list, x, writable=True)
    return _start(side.all_gather(outs, x), async_op)


@checked
def all_gather_into_tensor(
    output_tensor: Any, input_tensor: Any, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """`output_tensor` becomes all ranks' `input_tensor`, one after the other in C order."""
    side, x, out = _side(group), given(input_tensor, "input_tensor"), own(output_tensor, "output_tensor")
    expect(out, x, side.group.size(), "output_tensor", "input_tensor")
    return _start(side.all_gather_single(out, x), async_op)


@checked
def reduce_scatter(
    output: Any,
    input_list: Sequence[Any],
    op: object = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """`output` of rank r becomes the reduction over all ranks of `input_list[r]`."""
    side, out = _side(group), own(output, "output")
    ins = each(side.group, "input_list", input_list, out, writable=False)
    return _start(side.reduce_scatter(out, ins, ReduceOp.parse(op).value), async_op)


@checked
def reduce_scatter_tensor(
    output: Any,
    input: Any,
    op: object = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """`output` of rank r becomes the reduction over all ranks of the r-th of `input`'s equal chunks."""
    side, out, whole = _side(group), own(output, "output"), given(input, "input")
    expect(whole, out, side.group.size(), "input", "output")
    return _start(side.reduce_scatter_single(out, whole, ReduceOp.parse(op).value), async_op)


@checked
def gather(
    tensor: Any,
    gather_list: Sequence[Any] | None = None,
    dst: int = 0,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """`gather_list[r]` of (global) rank `dst` becomes rank r's `tensor`; only `dst` passes a list."""
    side, x = _side(group), given(tensor, "tensor")
    root = root_of(side.group, dst, "dst")
    lists = only_root(side.me == root, "gather_list", gather_list)
    outs = each(side.group, "gather_list", lists, x, writable=True) if lists else []
    return _start(side.gather(outs, x, root), async_op)


@checked
def scatter(
    tensor: Any,
    scatter_list: Sequence[Any] | None = None,
    src: int = 0,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Rank r's `tensor` becomes `scatter_list[r]` of (global) rank `src`; only `src` passes a list."""
    side, x = _side(group), own(tensor, "tensor")
    root = root_of(side.group, src, "src")
    lists = only_root(side.me == root, "scatter_list", scatter_list)
    ins = each(side.group, "scatter_list", lists, x, writable=False) if lists else []
    return _start(side.scatter(x, ins, root), async_op)


@checked
def all_to_all(
    output_tensor_list: Sequence[Any],
    input_tensor_list: Sequence[Any],
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """`output_tensor_list[j]` becomes what rank j has in `input_tensor_list[<this rank>]`; all of one size."""
    if not input_tensor_list:
        raise DistributedError("AHBM-X131", "all_to_all: input_tensor_list is empty")
    side, first = _side(group), given(input_tensor_list[0], "input_tensor_list[0]")
    ins = each(side.group, "input_tensor_list", input_tensor_list, first, writable=False)
    outs = each(side.group, "output_tensor_list", output_tensor_list, first, writable=True)
    return _start(side.all_to_all(outs, ins), async_op)


@checked
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
    side, x, out = _side(group), given(input, "input"), own(output, "output")
    if x.dtype != out.dtype:
        raise DistributedError("AHBM-X130", f"all_to_all_single: input has {x.dtype}, output {out.dtype}")
    ranks = side.group.size()
    sends, receives = splits(x, input_split_sizes, ranks, "input"), splits(out, output_split_sizes, ranks, "output")
    if not input_split_sizes and not output_split_sizes and out.size != x.size:
        message = f"output has {out.size} elements; without split sizes, input asks for {x.size}"
        raise DistributedError("AHBM-X130", f"all_to_all_single: {message}")
    return _start(side.all_to_all_single(out, x, receives, sends), async_op)


@checked
def barrier(group: ProcessGroup | None = None, async_op: bool = False) -> Work | None:
    """No rank returns before all have called; costs the simulated time of the barrier algorithm."""
    return _start(_side(group).barrier(), async_op)


# Point to point


@checked
def send(tensor: Any, dst: int, group: ProcessGroup | None = None, tag: int = 0) -> None:
    """Sends `tensor` to (global) rank `dst`; returns when it has been received."""
    isend(tensor, dst, group, tag).wait()


@checked
def recv(tensor: Any, src: int | None = None, group: ProcessGroup | None = None, tag: int = 0) -> int:
    """Receives into `tensor` from (global) rank `src`, or from any; returns the sender's rank.

    Any: when no rank can go on otherwise, the sender with the earliest simulated time, then the lowest rank, is taken.
    """
    work = irecv(tensor, src, group, tag)
    sender = work.result()
    assert isinstance(sender, int)
    return sender


@checked
def isend(tensor: Any, dst: int, group: ProcessGroup | None = None, tag: int = 0) -> Work:
    """Starts to send `tensor` to (global) rank `dst`."""
    side, x = _side(group), given(tensor, "tensor")
    return _begin(side.send(x, _another(side, dst, "dst"), tag))


@checked
def irecv(tensor: Any, src: int | None = None, group: ProcessGroup | None = None, tag: int = 0) -> Work:
    """Starts to receive into `tensor` from (global) rank `src`, or from any."""
    side, x = _side(group), own(tensor, "tensor")
    return _begin(side.recv(x, None if src is None else _another(side, src, "src"), tag))


def _side(group: ProcessGroup | None) -> Member:
    """The calling rank as a member of `group`."""
    context, _, members = member(group)
    return Member(members, members.rank_of(context.rank))


def _another(side: Member, peer: int, name: str) -> int:
    """`peer` if it is another rank of the group. Raises DistributedError (AHBM-X131)."""
    if root_of(side.group, peer, name) == side.me:
        raise DistributedError("AHBM-X131", f"{name}={peer} is this rank itself", hint="copy the tensor instead")
    return peer


def _begin(call: Call) -> Work:
    context = current()
    assert context is not None
    return issue(context, call)


def _start(call: Call, async_op: bool) -> Work | None:
    """Issues a collective of the calling rank; waits for it unless `async_op`."""
    work = _begin(call)
    if async_op:
        return work
    work.wait()
    return None
