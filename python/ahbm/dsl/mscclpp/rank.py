"""A rank, its buffers and its semaphores."""

from __future__ import annotations

from typing import Any, ClassVar

from ahbm.dsl.mscclpp.internal.actor import Actor
from ahbm.dsl.mscclpp.internal.faults import fault
from ahbm.dsl.mscclpp.internal.globals import get_program, get_recorder
from ahbm.dsl.mscclpp.internal.numbers import SPACES, exact, natural, space, unusable, whole
from ahbm.dsl.mscclpp.internal.operands import older, workers
from ahbm.dsl.mscclpp.internal.types import BufferType, Chunk, ReduceOperationType, SyncType
from ahbm.dsl.mscclpp.thread_block_group import ThreadBlockGroup

__all__ = ["BaseBuffer", "Buffer", "BufferType", "Rank", "Semaphore", "ThreadBlockGroup"]


class BaseBuffer:
    """A rank's buffer, or a part of it: chunks from `offset` on, `size` in all with those before them.

    A slice of it is a chunk. Raises `ProgramError` (AHBM-A105): a TypeError for an index, a ValueError for a step or no
    chunks, a RuntimeError outside of the buffer.
    """

    __slots__ = ("_space", "buffer_type", "offset", "rank", "size")

    def __init__(self, rank: int, buffer_type: BufferType, offset: int, size: int) -> None:
        self._space = space(buffer_type)
        self.offset = natural("the offset", offset)
        self.size = self.offset + natural("the size", size)
        if self.size >= 2**32:
            raise fault("ValueError", "AHBM-A105", f"a buffer of {size} chunks from {offset} on")
        self.rank = natural("the rank", rank)
        self.buffer_type = SPACES[self._space]

    @staticmethod
    def of_rank(rank: int, space: int, size: int) -> BaseBuffer:
        """All of a rank's buffer, by numbers that are known to be right."""
        made = object.__new__(BaseBuffer)
        made.rank, made.buffer_type, made.offset, made.size, made._space = rank, SPACES[space], 0, size, space
        return made

    def __getitem__(self, key: slice) -> Chunk:
        if not isinstance(key, slice):
            message = "a buffer is cut by slices, buffer[first:last + 1], not by an index"
            raise fault("TypeError", "AHBM-A105", message)
        length = self.size - self.offset
        start = 0 if key.start is None else whole(key.start)
        stop = length if key.stop is None else whole(key.stop)
        if key.step is not None and whole(key.step) != 1:
            raise fault("ValueError", "AHBM-A105", "a slice of a buffer has no step")
        if start == stop:
            raise fault("ValueError", "AHBM-A105", f"no chunks: the slice from {start} to {stop} is empty")
        if not 0 <= start < stop <= length:
            whose = f"the {length} chunks of rank {self.rank}'s {self.buffer_type.name}"
            message = f"Index range from {start} to {stop} is out of bounds for {whose}"
            raise fault("ValueError" if 0 <= stop < start else "RuntimeError", "AHBM-A105", message)
        return Chunk.of(self.rank, self._space, self.offset + start, stop - start)

    def __repr__(self) -> str:
        return f"<{self.buffer_type.name} of rank {self.rank}, chunks {self.offset} to {self.size}>"


class Buffer(BaseBuffer):
    """`size` chunks of a rank's scratch, behind those that it has already."""

    __slots__ = ()

    input: ClassVar = BufferType.input
    output: ClassVar = BufferType.output
    scratch: ClassVar = BufferType.scratch
    """Older names of the types of buffers."""

    def __init__(self, rank: int, size: int) -> None:
        own, first, end = get_recorder().make("scratch", (whole(rank), whole(size)))
        super().__init__(own, BufferType.scratch, first, end - first)


class Semaphore(Actor):
    """A counter with which thread blocks of a rank wait for each other. Raises `ProgramError` (AHBM-A101, A102)."""

    __slots__ = ("id", "initial_value", "rank")

    def __init__(self, rank: int, initial_value: int) -> None:
        self._recorder, self.initial_value = get_recorder(), whole(initial_value)
        self._at = self._recorder.make("semaphore", (whole(rank), self.initial_value))
        self.rank, self.id = self._at

    def acquire(self, tb: int, data_sync: SyncType = SyncType.both, **rest: Any) -> None:
        """A thread block takes one, and waits for it. Raises `ProgramError` (AHBM-A102, AHBM-A103)."""
        self._meet("acquire", tb, data_sync, rest)

    def release(self, tb: int, data_sync: SyncType = SyncType.both, **rest: Any) -> None:
        """A thread block gives one. Raises as `acquire`."""
        self._meet("release", tb, data_sync, rest)


class Rank(Actor):
    """A rank of the current program, and what it does alone. Raises `ProgramError` (AHBM-A101, AHBM-A102)."""

    __slots__ = ("_chunks", "rank")

    def __init__(self, rank: int) -> None:
        self._recorder = get_recorder()
        self.rank, *self._chunks = self._recorder.rank(whole(rank))
        self._at = (self.rank,)

    def get_input_buffer(self) -> BaseBuffer:
        """Its operand."""
        return BaseBuffer.of_rank(self.rank, 0, self._chunks[0])

    def get_output_buffer(self) -> BaseBuffer:
        """Its result."""
        return BaseBuffer.of_rank(self.rank, 1, self._chunks[1])

    def copy(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        **rest: Any,
    ) -> None:
        """Copies chunks. Raises `ProgramError` (AHBM-A102, AHBM-A103)."""
        packets = older(self._recorder, "copy", rest, from_packet=bool, to_packet=bool) if rest else {}
        out, into = packets.get("from_packet", False), packets.get("to_packet", False)
        if out and into:
            message = "copy(from_packet=True, to_packet=True): a copy of packets as packets is no operation"
            raise fault("RuntimeError", "AHBM-A103", message)
        kind = "unpack_packets" if out else "copy_packets" if into else "copy"
        self._move(kind, dst_chunk, src_chunk, tb, tb_group)

    def copy_packets(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        **rest: Any,
    ) -> None:
        """Copies chunks into packets in scratch. Raises as `copy`."""
        older(self._recorder, "copy_packets", rest)
        self._move("copy_packets", dst_chunk, src_chunk, tb, tb_group)

    def unpack_packets(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        **rest: Any,
    ) -> None:
        """Waits for packets in scratch and copies what they carry. Raises as `copy`."""
        older(self._recorder, "unpack_packets", rest)
        self._move("unpack_packets", dst_chunk, src_chunk, tb, tb_group)

    def reduce(
        self,
        src_chunk: Chunk,
        other_chunks: list[Chunk] | Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        dst_chunk: Chunk | None = None,
        reduce_op: ReduceOperationType = ReduceOperationType.sum,
        packet: bool = False,
        **rest: Any,
    ) -> None:
        """Reduces `src_chunk` and `other_chunks` into `dst_chunk`, by default into `src_chunk`; `packet` says that the
        others are packets, which are awaited. Raises as `copy`."""
        if not isinstance(packet, bool):
            raise unusable(packet, "True or False")
        kind, where = "reduce_packets" if packet else "reduce", workers(tb, tb_group)
        self._reduce(kind, src_chunk, other_chunks, dst_chunk, reduce_op, where, rest)

    def barrier(self, tb_list: list[int]) -> None:
        """The thread blocks of a list meet. Raises as `copy`."""
        self._recorder.statement("barrier", (self.rank, *map(whole, tb_list)), None, (), 0, 0)

    def copy_packet(self, dst_chunk: Chunk, src_chunk: Chunk, *where: Any, **rest: Any) -> None:
        """The older name of `copy_packets`."""
        get_program().older("copy_packet", "copy_packets")
        self.copy_packets(dst_chunk, src_chunk, *where, **rest)

    def unpack_packet(self, dst_chunk: Chunk, src_chunk: Chunk, *where: Any, **rest: Any) -> None:
        """The older name of `unpack_packets`."""
        get_program().older("unpack_packet", "unpack_packets")
        self.unpack_packets(dst_chunk, src_chunk, *where, **rest)

    @staticmethod
    def Semaphore(rank: int, initial_value: int | None = None, *, size: int | None = None) -> Semaphore:
        """The older name of `Semaphore`; `size` was the initial value."""
        get_program().older("Rank.Semaphore", "Semaphore(rank, initial_value)")
        value = size if initial_value is None else initial_value
        if value is None or (size is not None and initial_value is not None):
            raise fault("TypeError", "AHBM-A103", "Rank.Semaphore needs an initial_value")
        return Semaphore(rank, exact(value))
