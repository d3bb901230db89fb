"""Channels between ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, List  # noqa: UP035 (programs take `List` from here)

from ahbm import _core
from ahbm._core import MscclppChunk as Chunk
from ahbm.dsl.mscclpp.internal.faults import fault
from ahbm.dsl.mscclpp.internal.globals import get_program
from ahbm.dsl.mscclpp.internal.types import BufferType, ChannelType, ReduceOperationType, SyncType
from ahbm.dsl.mscclpp.thread_block_group import ThreadBlockGroup

__all__ = [
    "BufferType",
    "Channel",
    "ChannelType",
    "Chunk",
    "List",
    "MemoryChannel",
    "PortChannel",
    "ReduceOperationType",
    "SwitchChannel",
    "SyncType",
    "ThreadBlockGroup",
    "dataclass",
    "defaultdict",
    "get_program",
]


class MemoryChannel(_core.MscclppMemoryChannel):
    """A way from `src_rank` to the memory of `dst_rank`."""

    __slots__ = ()

    channel_type: ClassVar = ChannelType.memory

    def relaxedSignal(self, tb: int, data_sync: SyncType = SyncType.both, **rest: Any) -> None:
        """The older name of a relaxed `signal`."""
        get_program().older("relaxedSignal", "signal(relaxed=True)")
        self.signal(tb, data_sync, True, **rest)

    def relaxedWait(self, tb: int, data_sync: SyncType = SyncType.both, **rest: Any) -> None:
        """The older name of a relaxed `wait`."""
        get_program().older("relaxedWait", "wait(relaxed=True)")
        self.wait(tb, data_sync, True, **rest)

    def put_packet(self, dst_chunk: Chunk, src_chunk: Chunk, *where: Any, **rest: Any) -> None:
        """The older name of `put_packets`, or of `read_put_packets` with `from_packet`."""
        get_program().older("put_packet", "put_packets")
        self.put_packets(dst_chunk, src_chunk, *where, **rest)

    def read_put_packet(self, dst_chunk: Chunk, src_chunk: Chunk, *where: Any, **rest: Any) -> None:
        """The older name of `read_put_packets`."""
        get_program().older("read_put_packet", "read_put_packets")
        self.read_put_packets(dst_chunk, src_chunk, *where, **rest)


class PortChannel(_core.MscclppPortChannel):
    """A way from `src_rank` to `dst_rank` through a proxy."""

    __slots__ = ()

    channel_type: ClassVar = ChannelType.port

    def put_packet(self, dst_chunk: Chunk, src_chunk: Chunk, *where: Any, **rest: Any) -> None:
        """The older name of `put_packets`, or of `read_put_packets` with `from_packet`."""
        get_program().older("put_packet", "put_packets")
        self.put_packets(dst_chunk, src_chunk, *where, **rest)

    def read_put_packet(self, dst_chunk: Chunk, src_chunk: Chunk, *where: Any, **rest: Any) -> None:
        """The older name of `read_put_packets`."""
        get_program().older("read_put_packet", "read_put_packets")
        self.read_put_packets(dst_chunk, src_chunk, *where, **rest)


class SwitchChannel(_core.MscclppSwitchChannel):
    """A switch over one buffer of all ranks of `rank_list`."""

    __slots__ = ()

    channel_type: ClassVar = ChannelType.switch

    def __new__(
        cls, rank_list: Sequence[int], buffer_type: BufferType | None = None, *, buffer: BufferType | None = None
    ) -> SwitchChannel:
        if buffer is not None:
            get_program().older("SwitchChannel(buffer=)", "buffer_type=BufferType.…")
        space = buffer if buffer_type is None else buffer_type
        if space is None:
            raise fault("TypeError", "AHBM-A103", "SwitchChannel needs a buffer_type")
        return super().__new__(cls, list(rank_list), space)

    def group_load_reduce(self, *_given: Any, **_rest: Any) -> None:
        """Not without a rank. Raises `ProgramError` (AHBM-A102, a RuntimeError)."""
        raise self._nobody("group_load_reduce", "reduce")

    def group_store(self, *_given: Any, **_rest: Any) -> None:
        """Not without a rank. Raises `ProgramError` (AHBM-A102, a RuntimeError)."""
        raise self._nobody("group_store", "broadcast")

    @staticmethod
    def _nobody(name: str, now: str) -> Exception:
        message = f"{name} on a switch channel names no rank: nobody would execute it"
        return fault("RuntimeError", "AHBM-A102", message, f"channel.at_rank(rank).{now}(…)")


class Channel:
    """The older name of `MemoryChannel` and `PortChannel`."""

    memory: ClassVar = ChannelType.memory
    port: ClassVar = ChannelType.port

    def __new__(  # type: ignore[misc]  # makes a channel of the kind that is asked for
        cls, dst_rank: int, src_rank: int, channel_type: ChannelType = ChannelType.memory
    ) -> MemoryChannel | PortChannel:
        if channel_type is ChannelType.memory:
            get_program().older("Channel", "MemoryChannel")
            return MemoryChannel(dst_rank, src_rank)
        if channel_type is ChannelType.port:
            get_program().older("Channel", "PortChannel")
            return PortChannel(dst_rank, src_rank)
        raise fault("ValueError", "AHBM-A103", f"a channel between two ranks is memory or port, not {channel_type}")
