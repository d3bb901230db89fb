"""The collectives of the language. Programs subclass `Collective` to define their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ahbm.dsl.msccl.chunks import Buffer, BufferSlice, Chunk, ReduceChunk
from ahbm.dsl.msccl.refusals import here, refuse

if TYPE_CHECKING:
    from ahbm.dsl.msccl.program import MSCCLProgram

Buffers: TypeAlias = list[dict[Any, Any]]


class Collective:
    """What a program computes: the chunks that every rank begins with, and those that it has to end with.

    `num_ranks` ranks; `chunk_factor` chunks per block of the collective (of the whole buffer, for an all-reduce);
    `inplace`: input and output are one memory.
    """

    goal = "custom"
    """The name of the collective elsewhere in `ahbm`; `custom`: only `check` knows what is promised."""
    root = 0
    mapping = "same"
    """Where a buffer is a part of another; `MscclRecorder._begin` has the words."""

    def __init__(self, num_ranks: int, chunk_factor: int, inplace: bool, num_chunk_groups: int | None = 1) -> None:
        for name, value in (("num_ranks", num_ranks), ("chunk_factor", chunk_factor)):
            if not isinstance(value, int) or not 0 < value < 1 << 24:
                message = f"{name}={value!r}: a number from 1 to {(1 << 24) - 1} is needed"
                refuse("ValueError", "AHBM-A210", message, origin=here())
        self.num_ranks = num_ranks
        self.chunk_factor = chunk_factor
        self.inplace = inplace
        self.num_chunk_groups = num_chunk_groups
        self.name = "custom"

    @property
    def slots(self) -> int:
        """Slots of the larger buffer of a rank."""
        return self.chunk_factor

    def init_buffers(self) -> Buffers | None:
        """Per rank, a dict of lists of chunks (None: nothing there yet) by buffer."""
        return None

    def check(self, prog: MSCCLProgram) -> bool | None:
        """Whether `prog.buffers` holds what the collective promises; prints what is wrong."""
        return None

    def get_buffer_index(self, rank: int, buffer: Any, index: int) -> tuple[Any, int]:
        """Where the slot is, if the buffer is a part of another."""
        return buffer, index


class _Known(Collective, ABC):
    """A collective whose promise is checked natively."""

    kind = ""
    blocks = False
    """The larger buffer has a block of `chunk_factor` chunks per rank."""

    @property
    def slots(self) -> int:
        return self.chunk_factor * (self.num_ranks if self.blocks else 1)

    def check(self, prog: MSCCLProgram) -> bool:
        wrong = prog._wrong(self.kind, self.chunk_factor, bool(self.inplace), self.root)
        reads = Buffer.input if self.inplace and self.mapping == "output in input" else Buffer.output
        if self.inplace and self.kind in ("allreduce", "sendrecv", "broadcast"):
            reads = Buffer.input
        for rank, index in wrong:
            print(self._complaint(rank, index, prog.buffers[rank][reads][index]))
        return not wrong

    @abstractmethod
    def _complaint(self, rank: int, index: int, chunk: Chunk | ReduceChunk | None) -> str:
        """What is said of a slot that does not hold what is promised."""

    def get_buffer_index(self, rank: int, buffer: Any, index: int) -> tuple[Any, int]:
        block = rank * self.chunk_factor
        match self._mapping(), buffer:
            case "output is input", Buffer.output:
                return Buffer.input, index
            case "input in output", Buffer.input:
                return Buffer.output, index + block
            case "output in input", Buffer.output:
                return Buffer.input, index + block
            case _:
                return buffer, index

    def _mapping(self) -> str:
        return self.mapping if self.inplace else "same"


class AllToAll(_Known):
    """Chunk c of block d of rank r ends at rank d, as chunk c of block r."""

    goal, kind, blocks = "all_to_all", "alltoall", True

    def __init__(self, num_ranks: int, chunk_factor: int, inplace: bool) -> None:
        super().__init__(num_ranks, chunk_factor, inplace)
        self.name = "alltoall"

    def init_buffers(self) -> Buffers:
        ranks: Buffers = []
        for rank in range(self.num_ranks):
            cf = self.chunk_factor
            chunks = [Chunk(rank, i, i // cf, i % cf + rank * cf) for i in range(self.num_ranks * cf)]
            ranks.append({Buffer.input: chunks, Buffer.output: chunks if self.inplace else [None] * len(chunks)})
        return ranks

    def _complaint(self, rank: int, index: int, chunk: Chunk | ReduceChunk | None) -> str:
        whose, within = divmod(index, self.chunk_factor)
        wanted = within + rank * self.chunk_factor
        return f"Rank {rank} chunk {index} is incorrect should be chunk({whose},{wanted}) given {chunk}"


class AllGather(_Known):
    """Every rank ends with every rank's chunks."""

    goal, kind, mapping, blocks = "all_gather", "allgather", "input in output", True

    def __init__(self, num_ranks: int, chunk_factor: int, inplace: bool) -> None:
        super().__init__(num_ranks, chunk_factor, inplace)
        self.name = "allgather"

    def init_buffers(self) -> Buffers:
        ranks: Buffers = []
        for rank in range(self.num_ranks):
            cf = self.chunk_factor
            chunks = [Chunk(rank, i, -1, rank * cf + i) for i in range(cf)]
            output: list[Chunk | None] = [None] * (self.num_ranks * cf)
            if self.inplace:
                output[rank * cf : (rank + 1) * cf] = chunks
            ranks.append({Buffer.input: chunks, Buffer.output: output})
        return ranks

    def _complaint(self, rank: int, index: int, chunk: Chunk | ReduceChunk | None) -> str:
        wanted = divmod(index, self.chunk_factor)
        given = f"({chunk.origin_rank}, {chunk.origin_index})" if isinstance(chunk, Chunk) else f"{chunk}"
        return f"Rank {rank} chunk {index} is incorrect should be {wanted} given {given}"


class AllReduce(_Known):
    """Every rank ends with the sum over all ranks of each of `chunk_factor` chunks."""

    goal, kind, mapping = "all_reduce", "allreduce", "output is input"

    def __init__(self, num_ranks: int, chunk_factor: int, inplace: bool, num_chunk_groups: int | None = None) -> None:
        super().__init__(num_ranks, chunk_factor, inplace, num_chunk_groups or num_ranks)
        self.name = "allreduce"

    def init_buffers(self) -> Buffers:
        ranks: Buffers = []
        for rank in range(self.num_ranks):
            chunks = [Chunk(rank, i, -1, i) for i in range(self.chunk_factor)]
            ranks.append({Buffer.input: chunks, Buffer.output: chunks if self.inplace else [None] * len(chunks)})
        return ranks

    def _complaint(self, rank: int, index: int, chunk: Chunk | ReduceChunk | None) -> str:
        _sort(chunk)
        return (
            f"Rank {rank} chunk {index} is incorrect should be ReduceChunk index {index} from all ranks, given {chunk}"
        )


class ReduceScatter(_Known):
    """Rank r ends with the sum over all ranks of block r."""

    goal, kind, mapping, blocks = "reduce_scatter", "reducescatter", "output in input", True

    def __init__(self, num_ranks: int, chunk_factor: int, inplace: bool) -> None:
        super().__init__(num_ranks, chunk_factor, inplace)
        self.name = "reducescatter"

    def init_buffers(self) -> Buffers:
        ranks: Buffers = []
        for rank in range(self.num_ranks):
            cf = self.chunk_factor
            buffers: dict[Any, Any] = {
                Buffer.input: [Chunk(rank, i, i // cf, i % cf) for i in range(self.num_ranks * cf)]
            }
            if not self.inplace:
                buffers[Buffer.output] = [None] * cf
            ranks.append(buffers)
        return ranks

    def _complaint(self, rank: int, index: int, chunk: Chunk | ReduceChunk | None) -> str:
        _sort(chunk)
        wanted = index if self.inplace else rank * self.chunk_factor + index
        return f"Rank {rank} chunk {index} is incorrect should be index {wanted} from all ranks given {chunk}"


class SendRecv(_Known):
    """Each of two ranks ends with the other's chunks."""

    goal, kind, mapping = "send_recv", "sendrecv", "output is input"

    def __init__(self, num_ranks: int, chunk_factor: int, inplace: bool) -> None:
        if num_ranks != 2:
            refuse("AssertionError", "AHBM-A210", "SendRecv only supports 2 ranks", origin=here())
        super().__init__(num_ranks, chunk_factor, inplace)
        self.name = "sendrecv"

    def init_buffers(self) -> Buffers:
        ranks: Buffers = []
        for rank in range(self.num_ranks):
            chunks = [Chunk(rank, i, -1, i) for i in range(self.chunk_factor)]
            ranks.append({Buffer.input: chunks, Buffer.output: [None] * self.chunk_factor})
        return ranks

    def _complaint(self, rank: int, index: int, chunk: Chunk | ReduceChunk | None) -> str:
        return f"Rank {rank} chunk {index} is incorrect should be ({1 - rank}, {index}) given {chunk}"


class Broadcast(_Known):
    """Every rank ends with the chunks of the root."""

    goal, kind, mapping = "broadcast", "broadcast", "output is input"

    def __init__(self, num_ranks: int, chunk_factor: int, inplace: bool, root: int) -> None:
        super().__init__(num_ranks, chunk_factor, inplace, root)
        if not isinstance(root, int) or not 0 <= root < num_ranks:
            refuse("ValueError", "AHBM-A210", f"root {root!r} of {num_ranks} ranks", origin=here())
        self.name = "broadcast"
        self.root = root

    def init_buffers(self) -> Buffers:
        ranks: Buffers = []
        for rank in range(self.num_ranks):
            chunks = [Chunk(rank, i, -1, i) if rank == self.root else None for i in range(self.chunk_factor)]
            ranks.append({Buffer.input: chunks, Buffer.output: chunks if self.inplace else [None] * len(chunks)})
        return ranks

    def _complaint(self, rank: int, index: int, chunk: Chunk | ReduceChunk | None) -> str:
        return f"Rank {rank} chunk {index} is incorrect should be ({self.root}, {index}) given {chunk}"


def _sort(chunk: Chunk | ReduceChunk | None) -> None:
    if isinstance(chunk, ReduceChunk):
        chunk.sort()


def contents(buffers: Any, origin: str) -> list[list[tuple[Any, str, list[Any], Any]]]:
    """What `init_buffers` gave, per rank: key, kind (`list`, `slice` or `same`), chunks as tuples, and the other key.

    Two keys of a rank with one list are one memory. Raises `ProgramError` (AHBM-A210) for what is no such thing.
    """
    if not isinstance(buffers, Sequence) or not all(isinstance(rank, Mapping) for rank in buffers):
        message = f"init_buffers() gave {type(buffers).__name__}, no list with a dict of buffers per rank"
        refuse("TypeError", "AHBM-A210", message, origin=origin)
    ranks = []
    for rank in buffers:
        if Buffer.input not in rank:
            refuse("KeyError", "AHBM-A210", "init_buffers() gave a rank no Buffer.input", origin=origin)
        rows: list[tuple[Any, str, list[Any], Any]] = []
        seen: dict[int, Any] = {}
        for key, slots in rank.items():
            if id(slots) in seen:
                rows.append((key, "same", [], seen[id(slots)]))
                continue
            seen[id(slots)] = key
            scratch = isinstance(slots, BufferSlice) or key not in (Buffer.input, Buffer.output)
            chunks = slots.chunks if isinstance(slots, BufferSlice) else slots
            rows.append((key, "slice" if scratch else "list", [_four(chunk, origin) for chunk in chunks], None))
        ranks.append(rows)
    return ranks


def _four(chunk: Any, origin: str) -> tuple[int, int, int, int] | None:
    if chunk is None:
        return None
    if not isinstance(chunk, Chunk):
        message = f"init_buffers() gave {type(chunk).__name__} for a chunk"
        refuse("TypeError", "AHBM-A210", message, origin=origin)
    return chunk.origin_rank, chunk.origin_index, chunk.dst_rank, chunk.dst_index
