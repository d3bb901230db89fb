"""`mscclpp.Executor`: plans, performed on memory at addresses."""

from __future__ import annotations

from ahbm.base.arrays import Flat
from ahbm.base.elements import element
from ahbm.core.choice import PLAN, Choice
from ahbm.errors import DistributedError
from ahbm.front.marshal import Member
from ahbm.mscclpp.comm import Communicator
from ahbm.mscclpp.memory import at
from ahbm.mscclpp.plans import SPELLINGS, ExecutionPlan
from ahbm.mscclpp.refused import refuse
from ahbm.mscclpp.types import DataType, PacketType, ReduceOp
from ahbm.ranks.claims import Touches
from ahbm.ranks.seat import Call
from ahbm.ranks.terms import with_choice

Side = tuple[int, int]
"""Address and bytes."""


class Executor:
    """Performs plans among the ranks of a communicator."""

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm

    def reset(self) -> None:
        """Nothing is kept between calls."""

    def execute(
        self,
        rank: int,
        send_buff: int,
        recv_buff: int,
        send_buff_size: int,
        recv_buff_size: int,
        data_type: DataType,
        plan: ExecutionPlan,
        stream: int = 0,
        packet_type: PacketType = PacketType.LL16,
    ) -> None:
        """Performs `plan` on the memory at two addresses; returns when the data are there. Sizes are bytes.

        Raises as `Algorithm.execute`.
        """
        if rank != self._comm.rank:
            raise DistributedError("AHBM-X131", f"rank {rank} executes, but this communicator is of {self._comm.rank}")
        plan.expect(recv_buff_size if plan.collective == "allgather" else send_buff_size)
        perform(
            self._comm,
            Choice(PLAN, plan.algorithm),
            SPELLINGS.get(plan.collective, plan.collective),
            (send_buff, send_buff_size),
            (recv_buff, recv_buff_size),
            data_type,
            ReduceOp.NOP,
            stream,
        )


def perform(
    comm: Communicator,
    choice: Choice,
    collective: str,
    source: Side,
    target: Side,
    dtype: DataType,
    op: ReduceOp,
    stream: int,
) -> None:
    """Makes one call and waits for it. Raises as `Algorithm.execute`."""
    if stream != 0:
        raise DistributedError("AHBM-X131", f"stream {stream}: the emulator has the default stream, 0")
    name = "sum" if op is ReduceOp.NOP else op.value
    storage = element(dtype.value).storage
    flats, offsets = [], []
    for (address, nbytes), what in ((source, "input buffer"), (target, "output buffer")):
        if nbytes % storage.itemsize or address % storage.itemsize:
            message = f"{what}: {nbytes} bytes at {address:#x} are no elements of {dtype.name}"
            raise DistributedError("AHBM-X130", message)
        memory, offset = at(address, nbytes, what)
        flats.append(Flat(None, memory.view(storage), dtype.value))
        offsets.append(offset)
    member = Member(comm.group, comm.rank)
    call = _call(member, collective, flats[0], flats[1], name, source[0] == target[0])
    note = "" if isinstance(choice.algorithm, str) else _places(collective, comm.rank, source, target, offsets)
    call.terms = with_choice(comm.group, call.terms, choice, note)
    comm.place.wait(comm.place.submit(call), None)


def _places(collective: str, rank: int, source: Side, target: Side, offsets: list[int]) -> str:
    """The offsets of a plan's buffers in their memory: a rank finds its peers' buffers by its own offsets.

    In place, a rank's chunk lies where the collective puts it in the buffer of all chunks, whose offset counts.
    """
    operand, result = offsets
    if collective == "all_gather" and source[0] == target[0] + rank * source[1]:
        operand -= rank * source[1]
    elif collective == "reduce_scatter" and target[0] == source[0] + rank * target[1]:
        result -= rank * target[1]
    return f"its input {operand} and its output {result} bytes after the start of their memory"


def _call(member: Member, collective: str, x: Flat, out: Flat, op: str, in_place: bool) -> Call:
    ranks = member.group.size()
    wanted = {
        "all_reduce": (1, 1),
        "broadcast": (1, 1),
        "all_gather": (1, ranks),
        "reduce_scatter": (ranks, 1),
        "all_to_all": (1, 1),
    }
    if collective not in wanted:
        refuse(f"Executor.execute of a {collective} plan", "ahbm run FILE runs it for its time")
    operand, result = wanted[collective]
    if x.size * result != out.size * operand:
        message = f"{collective}: {x.size} elements in, {out.size} out, among {ranks} ranks"
        raise DistributedError("AHBM-X130", message)
    if collective == "all_gather":
        return member.all_gather_single(out, x)
    if collective == "reduce_scatter":
        return member.reduce_scatter_single(out, x, op)
    if collective == "all_to_all":
        if x.size % ranks:
            raise DistributedError("AHBM-X130", f"all_to_all: {x.size} elements are no {ranks} equal chunks")
        shares = (x.size // ranks,) * ranks
        return member.all_to_all_single(out, x, shares, shares)
    call = member.all_reduce(out, op) if collective == "all_reduce" else member.broadcast(out, 0)
    if in_place:
        return call
    call.touches = Touches((x,), (out,))
    return call.copies((x,), out.array, (0,))
