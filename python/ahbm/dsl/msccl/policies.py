"""The enumerations of the language."""

from __future__ import annotations

from enum import Enum


class _Named(Enum):
    def __str__(self) -> str:
        return str(self.value)


class ThreadblockPolicy(_Named):
    """Who chooses thread blocks and channels."""

    auto = "auto"
    manual = "manual"


class ReplicationPolicy(_Named):
    """How instances share the buffers."""

    duplicated = "duplicated"
    interleaved = "interleaved"
    packed = "packed"


class ChunkInstruction(_Named):
    """What happens to a chunk."""

    start = "start"
    reduce = "reduce"
    send = "send"


class Instruction(_Named):
    """The steps of a thread block."""

    delete = "d"
    start = "st"
    nop = "nop"
    send = "s"
    recv = "r"
    recv_copy_send = "rcs"
    recv_reduce_send = "rrs"
    recv_reduce_copy = "rrc"
    recv_reduce_copy_send = "rrcs"
    copy = "cpy"
    reduce = "re"
