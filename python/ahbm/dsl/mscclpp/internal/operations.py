"""Operations have no classes of their own here: a program is recorded natively."""

from __future__ import annotations

from ahbm.dsl.mscclpp.internal.types import BufferType, ChannelType, Chunk, ReduceOperationType, SyncType

__all__ = ["BufferType", "ChannelType", "Chunk", "ReduceOperationType", "SyncType"]
