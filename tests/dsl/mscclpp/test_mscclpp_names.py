"""Names of the language, older ones too: what each module exports, and what an older name says."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from ahbm.dsl import mscclpp
from ahbm.dsl.mscclpp import (
    Buffer,
    BufferType,
    Channel,
    Loop,
    MemoryChannel,
    MSCCLPPProgram,
    PortChannel,
    Rank,
    Semaphore,
    SwitchChannel,
    SyncType,
    TestCollective,
)
from ahbm.dsl.written import collected
from support.programs import canonical, lower

EXPORTS = {
    "channel": "MemoryChannel PortChannel SwitchChannel SyncType BufferType ReduceOperationType ChannelType Chunk "
    "ThreadBlockGroup get_program List defaultdict dataclass",
    "rank": "Rank Buffer BaseBuffer Semaphore ThreadBlockGroup BufferType",
    "general": "JSON get_program",
    "program": "CollectiveProgram AlgoSpec ReplicationPolicy MemoryChannel Semaphore AllReduce Collective",
    "collectives": "Collective TestCollective AllGather AllReduce ReduceScatter AllToAll SendRecv",
    "loop": "LoopIterationContext",
    "pipeline": "LoopIterationContext",
    "thread_block_group": "ThreadBlockGroup",
    "utils": "AlgoSpec ReplicationPolicy",
    "internal.types": "SyncType BufferType ReduceOperationType ChannelType ReplicationPolicy",
    "internal.operations": "SyncType",
    "internal.globals": "get_program",
}


@pytest.mark.parametrize("module", EXPORTS)
def test_a_module_exports_what_programs_take_from_it(module: str) -> None:
    exported = importlib.import_module(f"ahbm.dsl.mscclpp.{module}").__all__
    assert set(EXPORTS[module].split()) <= set(exported)


def test_the_package_exports_everything() -> None:
    for module in ("channel", "rank", "general", "program", "collectives", "loop"):
        assert set(importlib.import_module(f"ahbm.dsl.mscclpp.{module}").__all__) <= set(mscclpp.__all__)
    assert (SyncType.before | SyncType.after) is SyncType.both


def packets(use: Callable[[Any, Any, Any, Any], object]) -> Callable[[], None]:
    def write() -> None:
        i, s = Rank(0).get_input_buffer(), Buffer(0, 2)
        use(Rank(0), i, s, (Buffer(1, 2), MemoryChannel(1, 0), PortChannel(1, 0)))

    return write


def relaxed(old: bool) -> Callable[[], None]:
    def write() -> None:
        a, b = MemoryChannel(1, 0), MemoryChannel(0, 1)
        if old:
            a.relaxedSignal(tb=0, data_sync=SyncType.none)
            b.relaxedWait(tb=0, data_sync=SyncType.after)
        else:
            a.signal(tb=0, data_sync=SyncType.none, relaxed=True)
            b.wait(tb=0, data_sync=SyncType.after, relaxed=True)

    return write


def channels(old: bool) -> Callable[[], None]:
    def write() -> None:
        near, far = Rank(0).get_input_buffer(), Rank(1).get_output_buffer()
        a = Channel(1, 0, Channel.port) if old else PortChannel(1, 0)
        b = Channel(0, 1, channel_type=Channel.memory) if old else MemoryChannel(0, 1)
        a.put(far[0:1], near[0:1], tb=0)
        b.put(near[0:1], far[0:1], tb=0)

    return write


def switches(old: bool) -> Callable[[], None]:
    def write() -> None:
        i = Rank(0).get_input_buffer()
        if old:
            at = SwitchChannel(rank_list=[0, 1], buffer=Buffer.input).at_rank(0)
            at.group_load_reduce(0, size=1, dst_chunk=i[0:1], tb=0)
            at.group_store(i[0:1], 0, size=1, tb=0)
        else:
            at = SwitchChannel([0, 1], BufferType.input).at_rank(0)
            at.reduce(0, size=1, dst_chunk=i[0:1], tb=0)
            at.broadcast(i[0:1], 0, size=1, tb=0)

    return write


def loops(old: bool) -> Callable[[], None]:
    def write() -> None:
        i, o = Rank(0).get_input_buffer(), Rank(0).get_output_buffer()
        if old:
            sem = Rank.Semaphore(rank=0, size=1)
            with Loop.iteration(unit=64, num_chunks=1) as iteration:
                sem.acquire(tb=0, sync="after")
                Rank(0).copy(o[0:1], i[0:1], tb=0, iter_context=iteration)
        else:
            sem = Semaphore(0, 1)
            with mscclpp.LoopIterationContext(64, 1):
                sem.acquire(tb=0, data_sync=SyncType.after)
                Rank(0).copy(o[0:1], i[0:1], tb=0)

    return write


def reductions(old: bool) -> Callable[[], None]:
    def write() -> None:
        i = Rank(0).get_input_buffer()
        if old:
            Rank(0).reduce(i[0:1], i[1:2], op="max", tb=0)
        else:
            Rank(0).reduce(i[0:1], [i[1:2]], tb=0, reduce_op=mscclpp.ReduceOperationType.max)

    return write


OLDER: dict[str, tuple[Callable[[], None], Callable[[], None], list[str]]] = {
    "relaxed signals": (relaxed(True), relaxed(False), ["relaxedSignal", "relaxedWait"]),
    "channels": (channels(True), channels(False), ["Channel"]),
    "switches": (switches(True), switches(False), ["SwitchChannel(buffer=)", "group_load_reduce", "group_store"]),
    "loops": (loops(True), loops(False), ["Rank.Semaphore", "Loop.iteration", "sync=", "iter_context="]),
    "reductions": (reductions(True), reductions(False), ["op=", "a chunk for a list of chunks"]),
    "copy_packet": (
        packets(lambda r, i, s, _: r.copy_packet(s[0:1], i[0:1], 0)),
        packets(lambda r, i, s, _: r.copy_packets(s[0:1], i[0:1], tb=0)),
        ["copy_packet"],
    ),
    "copy to packets": (
        packets(lambda r, i, s, _: r.copy(s[0:1], i[0:1], tb=0, to_packet=True)),
        packets(lambda r, i, s, _: r.copy_packets(s[0:1], i[0:1], tb=0)),
        ["to_packet="],
    ),
    "copy from packets": (
        packets(lambda r, i, s, _: r.copy(i[0:1], s[0:1], tb=0, from_packet=True)),
        packets(lambda r, i, s, _: r.unpack_packets(i[0:1], s[0:1], tb=0)),
        ["from_packet="],
    ),
    "unpack_packet": (
        packets(lambda r, i, s, _: r.unpack_packet(i[0:1], s[0:1], tb=0)),
        packets(lambda r, i, s, _: r.unpack_packets(i[0:1], s[0:1], tb=0)),
        ["unpack_packet"],
    ),
    "put_packet": (
        packets(lambda r, i, s, far: [far[k].put_packet(far[0][0:1], s[0:1], tb=k) for k in (1, 2)]),
        packets(lambda r, i, s, far: [far[k].put_packets(far[0][0:1], s[0:1], tb=k) for k in (1, 2)]),
        ["put_packet"],
    ),
    "put_packet of packets": (
        packets(lambda r, i, s, far: [far[k].put_packet(far[0][0:1], s[0:1], tb=k, from_packet=True) for k in (1, 2)]),
        packets(lambda r, i, s, far: [far[k].read_put_packets(far[0][0:1], s[0:1], tb=k) for k in (1, 2)]),
        ["put_packet", "from_packet="],
    ),
    "read_put_packet": (
        packets(lambda r, i, s, far: [far[k].read_put_packet(far[0][0:1], s[0:1], tb=k) for k in (1, 2)]),
        packets(lambda r, i, s, far: [far[k].read_put_packets(far[0][0:1], s[0:1], tb=k) for k in (1, 2)]),
        ["read_put_packet"],
    ),
}


@pytest.mark.parametrize("case", OLDER)
def test_an_older_name_means_the_newer_one_and_is_told_once(case: str) -> None:
    old, new, names = OLDER[case]
    was, now = lower(old), lower(new)
    assert canonical(was.written.text) == canonical(now.written.text)
    assert now.written.notes == ()
    assert {note.code for note in was.written.notes} == {"AHBM-A120"}
    told = [note.message for note in was.written.notes]
    assert sorted(text.partition(" is an older name")[0] for text in told) == sorted(names)
    assert all(note.sites[0].origin.startswith("test_mscclpp_names.py:") for note in was.written.notes)


def test_the_older_name_of_a_program() -> None:
    with collected() as written, MSCCLPPProgram("old", TestCollective(1, 1, 1), 1):
        mscclpp.JSON()
    line = inspect.currentframe().f_lineno - 2  # type: ignore[union-attr]
    (note,) = written[0].notes
    assert (note.code, note.sites[0].origin) == ("AHBM-A120", f"test_mscclpp_names.py:{line}")
