"""Collectives: how many chunks each rank's input and output have."""

from __future__ import annotations

from ahbm.dsl.mscclpp.internal.faults import fault
from ahbm.dsl.mscclpp.internal.types import BufferType
from ahbm.dsl.mscclpp.rank import BaseBuffer

__all__ = [
    "AllGather",
    "AllReduce",
    "AllToAll",
    "Collective",
    "ReduceScatter",
    "SendRecv",
    "TestCollective",
]

Buffers = list[dict[BufferType, BaseBuffer]]


class Collective:
    """A collective of `num_ranks` ranks; `chunk_factor` multiplies its chunks. Authors derive their own from it."""

    name = "custom"

    def __init__(self, num_ranks: int, chunk_factor: int, inplace: bool) -> None:
        self.num_ranks = num_ranks
        self.chunk_factor = chunk_factor
        self.inplace = inplace

    def chunks(self) -> tuple[int, int]:
        """Chunks of every rank's input and output."""
        raise fault(
            "RuntimeError", "AHBM-A103", f"{type(self).__name__} does not say its buffers: it has no init_buffers()"
        )

    def init_buffers(self) -> Buffers:
        """Input and output of every rank."""
        given, made = self.chunks()
        return [
            {
                BufferType.input: BaseBuffer(rank, BufferType.input, 0, given),
                BufferType.output: BaseBuffer(rank, BufferType.output, 0, made),
            }
            for rank in range(self.num_ranks)
        ]


class TestCollective(Collective):
    """Any computation, with so many chunks of input and output."""

    __test__ = False
    name = "test"

    def __init__(self, num_ranks: int, input_size: int, output_size: int) -> None:
        super().__init__(num_ranks, 1, False)
        self.input_size = input_size
        self.output_size = output_size

    def chunks(self) -> tuple[int, int]:
        """Chunks of every rank's input and output."""
        return self.input_size, self.output_size


class AllGather(Collective):
    """Every rank gets the inputs of all ranks."""

    name = "allgather"

    def chunks(self) -> tuple[int, int]:
        """Chunks of every rank's input and output."""
        return self.chunk_factor, self.num_ranks * self.chunk_factor


class AllReduce(Collective):
    """Every rank gets the sum of all inputs."""

    name = "allreduce"

    def chunks(self) -> tuple[int, int]:
        """Chunks of every rank's input and output."""
        return self.num_ranks * self.chunk_factor, self.num_ranks * self.chunk_factor


class ReduceScatter(Collective):
    """Every rank gets its part of the sum of all inputs."""

    name = "reducescatter"

    def chunks(self) -> tuple[int, int]:
        """Chunks of every rank's input and output."""
        return self.num_ranks * self.chunk_factor, self.chunk_factor


class AllToAll(Collective):
    """Every rank gets its part of every input."""

    name = "alltoall"

    def chunks(self) -> tuple[int, int]:
        """Chunks of every rank's input and output."""
        return self.num_ranks * self.chunk_factor, self.num_ranks * self.chunk_factor


class SendRecv(Collective):
    """Every rank sends its input to another."""

    name = "sendrecv"

    def chunks(self) -> tuple[int, int]:
        """Chunks of every rank's input and output."""
        return self.chunk_factor, self.chunk_factor
