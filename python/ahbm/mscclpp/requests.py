"""What selectors are asked: one call of one rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ahbm.mscclpp.types import CollectiveBufferMode, DataType


@dataclass(frozen=True)
class ExecutionRequest:
    """A call as registries see it. Buffers are addresses, the size is in bytes as in `CollectiveRequest`."""

    collective: str
    world_size: int
    n_ranks_per_node: int
    send_buffer: int
    recv_buffer: int
    message_size: int
    hints: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CollectiveRequest:
    """A call as selectors of algorithms see it."""

    world_size: int
    n_ranks_per_node: int
    rank: int
    input_buffer: int
    """Address of the operand."""
    output_buffer: int
    """Address of the result."""
    message_size: int
    """Bytes: of the array; of one rank's operand of an allgather; of all ranks' chunks of a reducescatter."""
    stream: int
    collective: str
    dtype: DataType | None
    """None: a type that MSCCL++ does not have."""
    hints: Mapping[str, list[int]] = field(default_factory=dict)
    """`root` of a broadcast."""

    def buffer_mode(self) -> CollectiveBufferMode:
        """Whether the operand lies in the result, where the collective puts it."""
        operand, result = self.input_buffer, self.output_buffer
        if self.collective == "allgather":
            result += self.rank * self.message_size
        elif self.collective == "reducescatter":
            operand += self.rank * (self.message_size // self.world_size)
        return CollectiveBufferMode.InPlace if operand == result else CollectiveBufferMode.OutOfPlace
