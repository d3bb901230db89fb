"""Where the language's own compiler makes something else than a program says: meant and as is."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable

import pytest

from ahbm.dsl.mscclpp import (
    AllGather,
    Buffer,
    BufferType,
    LoopIterationContext,
    MemoryChannel,
    PortChannel,
    Rank,
    Semaphore,
    SwitchChannel,
    SyncType,
)
from support.programs import canonical, lower

NONE, AFTER = SyncType.none, SyncType.after


def two_sums() -> None:
    rank = Rank(0)
    i, o = rank.get_input_buffer(), rank.get_output_buffer()
    rank.reduce(i[0:1], [i[1:2]], tb=0, dst_chunk=o[0:1])
    rank.reduce(i[0:1], [i[2:3]], tb=0, dst_chunk=o[0:1])  # repaired


def forgotten_read() -> None:
    rank = Rank(0)
    i, o = rank.get_input_buffer(), rank.get_output_buffer()
    rank.copy(o[0:1], i[0:1], tb=0)
    rank.copy(o[0:1], i[1:2], tb=0)
    rank.copy(i[1:2], i[2:3], tb=0)  # repaired


def earlier_reader() -> None:
    rank = Rank(0)
    i, o = rank.get_input_buffer(), rank.get_output_buffer()
    rank.copy(o[0:1], i[0:1], tb=0)
    rank.reduce(i[0:1], [i[1:2]], tb=0)  # repaired


def plain_operand_of_packets() -> None:
    rank, s = Rank(0), Buffer(0, 1)
    i, o = rank.get_input_buffer(), rank.get_output_buffer()
    rank.copy(i[0:1], i[1:2], tb=0)
    rank.reduce(i[0:1], [s[0:1]], tb=0, dst_chunk=o[0:1], packet=True)  # repaired


def switch_after_copy() -> None:
    rank = Rank(0)
    i, o = rank.get_input_buffer(), rank.get_output_buffer()
    switch = SwitchChannel([0, 1], BufferType.output).at_rank(0)
    rank.copy(o[0:1], i[0:1], tb=0)
    switch.broadcast(o[0:1], 0, 1, tb=0)  # repaired


def loop_that_ends_with_a_barrier() -> None:
    rank, sem = Rank(0), Semaphore(0, 1)
    i, o = rank.get_input_buffer(), rank.get_output_buffer()
    sem.acquire(tb=0, data_sync=AFTER)
    with LoopIterationContext(unit=64, num_chunks=1):  # repaired
        rank.copy(o[0:1], i[0:1], tb=0)
        rank.barrier([0, 1])


def barriers_in_another_order() -> None:
    Rank(0).barrier([0, 1])
    Rank(0).barrier([1, 0])  # repaired


def signals_through_one_channel() -> None:
    out, back = PortChannel(1, 0), PortChannel(0, 1)
    i, far = Rank(0).get_input_buffer(), Rank(1).get_input_buffer()
    for k in range(2):
        out.put_with_signal(far[k : k + 1], i[k : k + 1], tb=0)  # repaired
        back.wait(tb=0, data_sync=NONE)


def one_semaphore_twice() -> None:
    sem = Semaphore(0, 2)
    for _ in range(2):
        sem.acquire(tb=0, data_sync=NONE)  # repaired


def switch_stores_elsewhere() -> None:
    switch = SwitchChannel([0, 1], BufferType.input).at_rank(0)
    piece = Rank(0).get_output_buffer()[0:1]
    switch.reduce(0, 1, piece, tb=0)
    switch.broadcast(piece, 3, 1, tb=0)  # repaired


def copy_as_packets() -> None:
    rank, s = Rank(0), Buffer(0, 2)
    i = rank.get_input_buffer()
    rank.reduce(i[0:1], [s[0:1]], tb=0, packet=True)  # repaired
    rank.copy_packets(s[1:2], i[0:1], tb=0)


def shared_chunk_of_switches() -> None:
    switch = SwitchChannel([0, 1], BufferType.output).at_rank(0)
    piece = Rank(0).get_input_buffer()[1:2]
    switch.broadcast(piece, 0, 1, tb=0)
    switch.broadcast(piece, 1, 1, tb=0)  # repaired


Names = list[str]
DEFECTS: dict[Callable[[], None], tuple[int, Names | None, Names | None]] = {
    two_sums: (1, ["re", "nop", "re"], ["re"]),
    forgotten_read: (1, ["copy", "nop", "copy", "nop", "copy"], ["copy", "nop", "copy", "copy"]),
    earlier_reader: (1, ["copy", "nop", "re"], ["copy", "re"]),
    plain_operand_of_packets: (1, ["copy", "nop", "repkt"], ["copy", "repkt"]),
    switch_after_copy: (1, ["copy", "nop", "gstore"], ["copy", "gstore"]),
    loop_that_ends_with_a_barrier: (1, ["sem_acquire", "nop", "pipeline"], ["sem_acquire", "pipeline"]),
    barriers_in_another_order: (1, None, None),
    signals_through_one_channel: (1, ["pws", "pws"], ["pws"]),
    one_semaphore_twice: (1, ["sem_acquire", "sem_acquire"], ["sem_acquire"]),
    switch_stores_elsewhere: (1, None, None),
    copy_as_packets: (2, None, None),
    shared_chunk_of_switches: (2, None, None),
}


@pytest.mark.parametrize("write", DEFECTS, ids=lambda write: write.__name__)
def test_a_defect_is_repaired_and_told_with_its_statement(write: Callable[[], None]) -> None:
    instances, meant_names, as_is_names = DEFECTS[write]
    meant, as_is = lower(write, instances=instances), lower(write, instances=instances, quirks=True)
    assert canonical(meant.written.text) != canonical(as_is.written.text)
    if meant_names is not None:
        assert (meant.names(), as_is.names()) == (meant_names, as_is_names)
    assert as_is.codes() == []
    lines, first = inspect.getsourcelines(write)
    repaired = next(first + at for at, line in enumerate(lines) if line.endswith("# repaired\n"))
    (note,) = meant.written.notes
    assert (note.code, note.sites[0].origin.partition(" (")[0]) == ("AHBM-A121", f"test_mscclpp_repairs.py:{repaired}")


@pytest.mark.parametrize(
    "write", [write for write, (instances, *_) in DEFECTS.items() if instances > 1], ids=lambda write: write.__name__
)
def test_what_goes_wrong_with_instances_is_right_with_one(write: Callable[[], None]) -> None:
    meant, as_is = lower(write), lower(write, quirks=True)
    assert (meant.written.text, meant.codes()) == (as_is.written.text, [])


def test_what_differs_in_order_is_one_barrier() -> None:
    def ids(quirks: bool) -> list[int]:
        plan = lower(barriers_in_another_order, quirks=quirks)
        return [op["barrier_id"] for op in plan.ops()]

    assert (ids(False), ids(True)) == ([0, 0], [0, 1])


def test_a_store_by_a_switch_goes_where_it_says() -> None:
    def index(quirks: bool) -> int:
        found: int = lower(switch_stores_elsewhere, quirks=quirks).ops()[0]["dst_buff"][0]["index"]
        return found

    assert (index(False), index(True)) == (3, 0)


def test_instances_shift_what_they_own_once() -> None:
    def places(quirks: bool) -> list[list[int]]:
        packets = lower(copy_as_packets, instances=2, quirks=quirks)
        shared = lower(shared_chunk_of_switches, instances=2, quirks=quirks)
        return [
            [packets.ops(0, tb)[0]["dst_buff"][1]["index"] for tb in (0, 1)],
            [op["src_buff"][0]["index"] for op in shared.ops(0, 1)],
        ]

    assert places(False) == [[2, 3], [3, 3]]
    assert places(True) == [[1, 1], [7, 7]]


def doubling(ranks: int, loops: bool = False) -> Callable[[], None]:
    """An all-gather whose moves double."""

    def write() -> None:
        step = 1
        while step < ranks:
            channels = [MemoryChannel(rank ^ step, rank) for rank in range(ranks)]
            for rank, channel in enumerate(channels):
                channel.signal(tb=0, relaxed=True)
                channel.wait(tb=0, relaxed=True)
                first = rank // step * step
                far, near = Rank(rank ^ step).get_output_buffer(), Rank(rank).get_output_buffer()
                with LoopIterationContext(unit=16, num_chunks=step) if loops else contextlib.nullcontext():
                    channel.put(far[first : first + step], near[first : first + step], tb=0)
                channel.signal(tb=0)
                channel.wait(tb=0)
            step *= 2

    return write


@pytest.mark.parametrize(("ranks", "instances"), [(4, 2), (4, 4), (8, 2)])
def test_instances_of_moves_that_double_stay_apart(ranks: int, instances: int) -> None:
    write, collective = doubling(ranks), AllGather(ranks, 1, True)
    meant, as_is = (
        lower(write, ranks=ranks, instances=instances, collective=collective, quirks=quirks) for quirks in (False, True)
    )
    assert (meant.written.plan.check()[0], as_is.written.plan.check()[0]) == ("correct", "wrong")
    assert (meant.codes(), as_is.codes()) == (["AHBM-A123"], [])
    assert len(meant.written.notes[0].sites) == 2


def test_instances_are_cut_no_finer_than_they_have_to_be() -> None:
    def write() -> None:
        channel, back = PortChannel(1, 0), PortChannel(0, 1)
        near, far = Rank(0).get_output_buffer(), Rank(1).get_output_buffer()
        for first in (0, 2):
            channel.put_with_signal(far[first:4], near[first:4], tb=0)
            back.wait(tb=0)

    plan = lower(write, instances=2)
    assert plan.codes() == ["AHBM-A123"]
    # The signal of a put follows its last piece.
    puts = [(op["name"], op["src_buff"][0]["index"], op["src_buff"][0]["size"]) for op in plan.ops(0, 1)]
    assert puts == [("put", 2, 2), ("pws", 6, 2), ("pws", 6, 2)]


def test_memory_that_is_only_read_may_be_cut_differently() -> None:
    def write() -> None:
        rank = Rank(0)
        i, o = rank.get_input_buffer(), rank.get_output_buffer()
        rank.copy(o[0:2], i[0:2], tb=0)
        rank.copy(o[2:3], i[1:2], tb=0)

    meant, as_is = (lower(write, instances=2, quirks=quirks) for quirks in (False, True))
    assert (meant.written.text, meant.codes()) == (as_is.written.text, [])


@pytest.mark.parametrize("in_place", [True, False])
def test_input_and_output_that_are_one_memory_are_cut_together(in_place: bool) -> None:
    def write() -> None:
        rank = Rank(1)
        i, o, s = rank.get_input_buffer(), rank.get_output_buffer(), Buffer(1, 3)
        rank.copy(s[0:2], i[0:2], tb=0)
        rank.copy(o[3:4], s[2:3], tb=0)

    plan = lower(write, instances=2, collective=AllGather(2, 2, in_place))
    assert plan.codes() == (["AHBM-A123"] if in_place else [])


def test_what_a_switch_writes_counts_at_all_its_ranks() -> None:
    def write() -> None:
        switch = SwitchChannel([0, 1], BufferType.output)
        switch.at_rank(0).broadcast(Rank(0).get_input_buffer()[0:2], 0, 2, tb=0)
        far = Rank(1)
        far.copy(far.get_input_buffer()[0:1], far.get_output_buffer()[0:1], tb=0)

    assert lower(write, instances=2).codes() == ["AHBM-A123"]


def test_loops_of_one_extent_are_cut_and_others_share_elements() -> None:
    def one_extent() -> None:
        rank = Rank(0)
        i, o = rank.get_input_buffer(), rank.get_output_buffer()
        with LoopIterationContext(unit=16, num_chunks=2):
            rank.copy(o[0:2], i[0:2], tb=0)
        rank.copy(i[0:1], o[1:2], tb=0)

    plan = lower(one_extent, instances=2)
    assert plan.codes() == ["AHBM-A123"]
    (loop,) = [op for op in plan.ops() if op["name"] == "pipeline"]
    assert loop["iter_context"]["num_chunks"] == 1
    assert [op["src_buff"][0]["index"] for op in loop["ops"] if op["name"] == "copy"] == [0, 2]
    other = lower(doubling(4, loops=True), ranks=4, instances=2, collective=AllGather(4, 1, True))
    assert other.codes() == ["AHBM-A122"]
    assert len(other.written.notes[0].sites) == 2


def test_a_repaired_program_computes_what_it_says() -> None:
    """Three copies, of which the own compiler lets the last overtake the second."""

    def write() -> None:
        for me in range(2):
            rank, peer = Rank(me), 1 - me
            i, o, far = rank.get_input_buffer(), rank.get_output_buffer(), Rank(peer).get_output_buffer()
            channel = MemoryChannel(peer, me)
            rank.copy(o[me : me + 1], i[0:1], tb=0)
            channel.signal(tb=0, relaxed=True)
            channel.wait(tb=0, relaxed=True)
            channel.put(far[me : me + 1], i[0:1], tb=0)
            channel.signal(tb=0)
            channel.wait(tb=0)

    for quirks in (False, True):
        plan = lower(write, quirks=quirks, collective=AllGather(2, 1, False))
        assert plan.written.plan.check()[0] == "correct"
