"""Channels between ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, List  # noqa: UP035 (programs take `List` from here)

from ahbm._core import MscclppProgram
from ahbm.dsl.mscclpp.internal.actor import Actor
from ahbm.dsl.mscclpp.internal.faults import fault
from ahbm.dsl.mscclpp.internal.globals import get_program, get_recorder
from ahbm.dsl.mscclpp.internal.numbers import exact, function, member, space, whole
from ahbm.dsl.mscclpp.internal.operands import older, piece, workers
from ahbm.dsl.mscclpp.internal.types import BufferType, ChannelType, Chunk, ReduceOperationType, SyncType
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


class _Between(Actor):
    """A channel from `src_rank` to `dst_rank`. Each one is new. Raises `ProgramError` (AHBM-A101, AHBM-A102)."""

    __slots__ = ("channel_id", "dst_rank", "src_rank")

    channel_type: ClassVar[ChannelType]

    def __init__(self, dst_rank: int, src_rank: int) -> None:
        self._recorder = get_recorder()
        made = self._recorder.make(self.channel_type.name, (whole(dst_rank), whole(src_rank)))
        self.channel_id, self.src_rank, self.dst_rank = made
        self._at = (int(self.channel_type is ChannelType.port), *made)

    def put_packets(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        **rest: Any,
    ) -> None:
        """Writes chunks at the peer as packets, in its scratch. Raises `ProgramError` (AHBM-A102, AHBM-A103)."""
        packets = older(self._recorder, "put_packets", rest, from_packet=bool) if rest else {}
        kind = "read_put_packets" if packets.get("from_packet") else "put_packets"
        self._move(kind, dst_chunk, src_chunk, tb, tb_group)

    def read_put_packets(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        **rest: Any,
    ) -> None:
        """Waits for packets in scratch and writes them at the peer. Raises as `put_packets`."""
        older(self._recorder, "read_put_packets", rest)
        self._move("read_put_packets", dst_chunk, src_chunk, tb, tb_group)

    def put_packet(self, dst_chunk: Chunk, src_chunk: Chunk, *where: Any, **rest: Any) -> None:
        """The older name of `put_packets`, or of `read_put_packets` with `from_packet`."""
        get_program().older("put_packet", "put_packets")
        self.put_packets(dst_chunk, src_chunk, *where, **rest)

    def read_put_packet(self, dst_chunk: Chunk, src_chunk: Chunk, *where: Any, **rest: Any) -> None:
        """The older name of `read_put_packets`."""
        get_program().older("read_put_packet", "read_put_packets")
        self.read_put_packets(dst_chunk, src_chunk, *where, **rest)


class MemoryChannel(_Between):
    """A way from `src_rank` to the memory of `dst_rank`."""

    __slots__ = ()

    channel_type = ChannelType.memory

    def signal(self, tb: int, data_sync: SyncType = SyncType.both, relaxed: bool = False, **rest: Any) -> None:
        """Signals the peer; relaxed signals order no memory. Raises as `put_packets`."""
        self._meet("signal", tb, data_sync, rest, relaxed)

    def wait(self, tb: int, data_sync: SyncType = SyncType.both, relaxed: bool = False, **rest: Any) -> None:
        """Waits for a signal of the peer. Raises as `put_packets`."""
        self._meet("wait", tb, data_sync, rest, relaxed)

    def put(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        **rest: Any,
    ) -> None:
        """Writes chunks at the peer. Raises as `put_packets`."""
        older(self._recorder, "put", rest)
        self._move("put", dst_chunk, src_chunk, tb, tb_group)

    def get(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        **rest: Any,
    ) -> None:
        """Reads chunks of the peer. Raises as `put_packets`."""
        older(self._recorder, "get", rest)
        self._move("get", dst_chunk, src_chunk, tb, tb_group)

    def reduce(
        self,
        local_src_chunk: Chunk,
        remote_src_chunks: list[Chunk] | Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        local_dst_chunk: Chunk | None = None,
        reduce_op: ReduceOperationType = ReduceOperationType.sum,
        **rest: Any,
    ) -> None:
        """Reduces own chunks and chunks of the peer into `local_dst_chunk`, by default into `local_src_chunk`.

        Raises as `put_packets`."""
        where = workers(tb, tb_group)
        self._reduce("read_reduce", local_src_chunk, remote_src_chunks, local_dst_chunk, reduce_op, where, rest)

    def relaxedSignal(self, tb: int, data_sync: SyncType = SyncType.both, **rest: Any) -> None:
        """The older name of a relaxed `signal`."""
        get_program().older("relaxedSignal", "signal(relaxed=True)")
        self.signal(tb, data_sync, True, **rest)

    def relaxedWait(self, tb: int, data_sync: SyncType = SyncType.both, **rest: Any) -> None:
        """The older name of a relaxed `wait`."""
        get_program().older("relaxedWait", "wait(relaxed=True)")
        self.wait(tb, data_sync, True, **rest)


class PortChannel(_Between):
    """A way from `src_rank` to `dst_rank` through a proxy."""

    __slots__ = ()

    channel_type = ChannelType.port

    def signal(self, tb: int, data_sync: SyncType = SyncType.both, **rest: Any) -> None:
        """Signals the peer. Raises as `put_packets`."""
        self._meet("signal", tb, data_sync, rest)

    def wait(self, tb: int, data_sync: SyncType = SyncType.both, **rest: Any) -> None:
        """Waits for a signal of the peer. Raises as `put_packets`."""
        self._meet("wait", tb, data_sync, rest)

    def flush(self, tb: int, data_sync: SyncType = SyncType.both, **rest: Any) -> None:
        """Waits until everything has been sent. Raises as `put_packets`."""
        self._meet("flush", tb, data_sync, rest)

    def put(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int, **rest: Any) -> None:
        """Writes chunks at the peer. Raises as `put_packets`."""
        older(self._recorder, "put", rest)
        self._move("put", dst_chunk, src_chunk, whole(tb), None)

    def put_with_signal(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int, **rest: Any) -> None:
        """Writes chunks at the peer, then signals it. Raises as `put_packets`."""
        older(self._recorder, "put_with_signal", rest)
        self._move("put_with_signal", dst_chunk, src_chunk, whole(tb), None)

    def put_with_signal_and_flush(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int, **rest: Any) -> None:
        """Writes chunks at the peer, signals it, and waits until both have been sent. Raises as `put_packets`."""
        older(self._recorder, "put_with_signal_and_flush", rest)
        self._move("put_with_signal_and_flush", dst_chunk, src_chunk, whole(tb), None)


class SwitchChannel:
    """A switch over one buffer of all ranks of `rank_list`. Raises `ProgramError` (AHBM-A101 to A103)."""

    __slots__ = ("_at", "_recorder", "buffer_type", "rank_list")

    channel_type: ClassVar = ChannelType.switch

    def __init__(
        self, rank_list: Sequence[int], buffer_type: BufferType | None = None, *, buffer: BufferType | None = None
    ) -> None:
        if buffer is not None:
            get_program().older("SwitchChannel(buffer=)", "buffer_type=BufferType.…")
        kind = buffer if buffer_type is None else buffer_type
        if kind is None:
            raise fault("TypeError", "AHBM-A103", "SwitchChannel needs a buffer_type")
        self.buffer_type = member(BufferType, kind)
        self._recorder = get_recorder()
        made = self._recorder.make("switch", (space(kind), *map(whole, rank_list)))
        self._at = dict(zip(made[::2], made[1::2], strict=True))
        self.rank_list = list(self._at)

    def at_rank(self, rank: int) -> SwitchRank:
        """The switch as one of its ranks uses it. Raises `ProgramError` (AHBM-A103, a RuntimeError)."""
        if (own := exact(rank)) not in self._at:
            message = f"rank {own} is not in the group of the switch channel: {self.rank_list}"
            raise fault("RuntimeError", "AHBM-A103", message)
        return SwitchRank(self._recorder, own, self._at[own])

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


class SwitchRank:
    """A switch as one of its ranks uses it; what `SwitchChannel.at_rank` returns."""

    __slots__ = ("_id", "_recorder", "rank")

    def __init__(self, recorder: MscclppProgram, rank: int, number: int) -> None:
        self._recorder, self.rank, self._id = recorder, rank, number

    def reduce(
        self,
        buffer_offset: int,
        size: int,
        dst_chunk: Chunk,
        tb: int | None = None,
        reduce_op: ReduceOperationType = ReduceOperationType.sum,
        tb_group: ThreadBlockGroup | None = None,
        **rest: Any,
    ) -> None:
        """Reduces the same chunks of all ranks into `dst_chunk`. Raises `ProgramError` (AHBM-A102, AHBM-A103)."""
        at, operation = (self.rank, self._id, whole(buffer_offset), whole(size)), function(reduce_op)
        operation = older(self._recorder, "reduce", rest, op=function).get("op", operation)
        self._recorder.statement("switch_reduce", at, workers(tb, tb_group), (piece(dst_chunk),), 0, operation)

    def broadcast(
        self,
        src_chunk: Chunk,
        buffer_offset: int,
        size: int,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        **rest: Any,
    ) -> None:
        """Stores `src_chunk` at the same chunks of all ranks. Raises as `reduce`."""
        older(self._recorder, "broadcast", rest)
        self._store("switch_broadcast", src_chunk, buffer_offset, size, tb, tb_group)

    def broadcast_packets(
        self,
        src_chunk: Chunk,
        buffer_offset: int,
        size: int,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        **rest: Any,
    ) -> None:
        """Waits for packets in scratch and stores them at the same chunks of all ranks' scratch. Raises as `reduce`."""
        older(self._recorder, "broadcast_packets", rest)
        self._store("switch_broadcast_packets", src_chunk, buffer_offset, size, tb, tb_group)

    def _store(self, kind: str, src: Chunk, offset: int, size: int, tb: object, group: object) -> None:
        at = self.rank, self._id, whole(offset), whole(size)
        self._recorder.statement(kind, at, workers(tb, group), (piece(src),), 0, 0)

    def group_load_reduce(
        self,
        buffer_offset: int,
        size: int,
        dst_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        **rest: Any,
    ) -> None:
        """The older name of `reduce`."""
        self._recorder.older("group_load_reduce", "reduce")
        self.reduce(buffer_offset, size, dst_chunk, tb, tb_group=tb_group, **rest)

    def group_store(
        self,
        src_chunk: Chunk,
        buffer_offset: int,
        size: int,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        **rest: Any,
    ) -> None:
        """The older name of `broadcast`."""
        self._recorder.older("group_store", "broadcast")
        older(self._recorder, "group_store", rest)
        self._store("switch_broadcast", src_chunk, buffer_offset, size, tb, tb_group)


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
