"""What authors pass to statements, read: chunks, thread blocks, keywords of older versions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ahbm._core import MscclppProgram
from ahbm.dsl.mscclpp.internal.chunk import Chunk
from ahbm.dsl.mscclpp.internal.faults import fault
from ahbm.dsl.mscclpp.internal.numbers import unusable, whole
from ahbm.dsl.mscclpp.thread_block_group import ThreadBlockGroup

OLDER = {
    "iter_context": "a loop repeats everything inside of it, without the argument",
    "sync": "data_sync=SyncType.…",
    "op": "reduce_op=ReduceOperationType.…",
    "from_packet": "read_put_packets and unpack_packets take packets",
    "to_packet": "copy_packets makes packets",
}
"""Keywords of older versions of the language, and what they are called now."""


def piece(value: object) -> Chunk:
    """A chunk."""
    if isinstance(value, Chunk):
        return value
    raise unusable(value, "a chunk, which is a slice of a buffer,")


def pieces(recorder: MscclppProgram, value: object) -> list[Chunk]:
    """One chunk, or several; the older language takes a chunk alone."""
    if isinstance(value, Chunk):
        recorder.older("a chunk for a list of chunks", "[chunk]")
        return [value]
    if not isinstance(value, Iterable):
        raise unusable(value, "a list of chunks")
    found = list(value)
    for one in found:
        if not isinstance(one, Chunk):
            raise unusable(one, "a chunk")
    return found


def workers(tb: object, group: object) -> int | Sequence[int] | None:
    """The thread blocks that a statement names: `tb` before `tb_group`."""
    if tb is not None:
        return whole(tb)
    if group is None or isinstance(group, ThreadBlockGroup):
        return None if group is None else group.tb_list
    raise unusable(group, "a ThreadBlockGroup")


def older(
    recorder: MscclppProgram, statement: str, given: Mapping[str, object], **known: Callable[[object], Any]
) -> dict[str, Any]:
    """Keywords that the statement does not have, by name; `known` reads those that it had in older versions.

    Raises `ProgramError` (AHBM-A103, a TypeError) for one that no version has."""
    found = {}
    for key, value in given.items():
        if key != "iter_context" and key not in known:
            message = f"{statement}() got an unexpected keyword argument '{key}'"
            raise fault("TypeError", "AHBM-A103", message)
        found[key] = known[key](value) if key in known else value
        recorder.older(f"{key}=", OLDER[key])
    return found
