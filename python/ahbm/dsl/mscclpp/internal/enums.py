"""Enumerations of the language."""

from __future__ import annotations

from enum import Enum, Flag

__all__ = ["BufferType", "ChannelType", "ReduceOperationType", "ReplicationPolicy", "SyncType"]


class BufferType(Enum):
    """A buffer of a rank. The values are those of a plan."""

    input = "i"
    output = "o"
    scratch = "s"


class ChannelType(Enum):
    """How two ranks are joined."""

    port = "port"
    memory = "memory"
    switch = "switch"
    none = "none"


class ReduceOperationType(Enum):
    """A reduction."""

    sum = "sum"
    min = "min"
    max = "max"


class SyncType(Flag):
    """When the threads of a thread block meet around a statement."""

    none = 0
    before = 1
    after = 2
    both = 3


class ReplicationPolicy(Enum):
    """Where the instances of a program lie in memory."""

    interleaved = "interleaved"
    none = "none"
