"""Enumerations of the language, and chunks."""

from __future__ import annotations

from ahbm.dsl.mscclpp.internal.chunk import Chunk
from ahbm.dsl.mscclpp.internal.enums import (
    BufferType,
    ChannelType,
    ReduceOperationType,
    ReplicationPolicy,
    SyncType,
)

__all__ = ["BufferType", "ChannelType", "Chunk", "ReduceOperationType", "ReplicationPolicy", "SyncType"]
