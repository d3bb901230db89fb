"""A rank, its buffers and its semaphores."""

from __future__ import annotations

from typing import Any, ClassVar

from ahbm import _core
from ahbm._core import MscclppBuffer as BaseBuffer
from ahbm._core import MscclppChunk as Chunk
from ahbm._core import MscclppSemaphore as Semaphore
from ahbm.dsl.mscclpp.internal.faults import fault
from ahbm.dsl.mscclpp.internal.globals import get_program
from ahbm.dsl.mscclpp.internal.types import BufferType
from ahbm.dsl.mscclpp.thread_block_group import ThreadBlockGroup

__all__ = ["BaseBuffer", "Buffer", "BufferType", "Rank", "Semaphore", "ThreadBlockGroup"]


class Rank(_core.MscclppRank):
    """A rank of the current program, and what it does alone."""

    __slots__ = ()

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
        return Semaphore(rank, value)


class Buffer(BaseBuffer):
    """`size` chunks of a rank's scratch, behind those that it has already."""

    __slots__ = ()

    input: ClassVar = BufferType.input
    output: ClassVar = BufferType.output
    scratch: ClassVar = BufferType.scratch
    """Older names of the types of buffers."""

    def __new__(cls, rank: int, size: int) -> Buffer:
        rank, first, end = get_program().recorder.scratch(rank, size)
        return super().__new__(cls, rank, BufferType.scratch, first, end - first)
