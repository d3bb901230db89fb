"""Every stage of the lowering: fusion, meetings of threads, replication, numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ahbm.dsl.mscclpp import (
    Buffer,
    BufferType,
    LoopIterationContext,
    MemoryChannel,
    PortChannel,
    Rank,
    ReduceOperationType,
    Semaphore,
    SwitchChannel,
    SyncType,
    ThreadBlockGroup,
)
from support.programs import lower

NONE, BEFORE, AFTER = SyncType.none, SyncType.before, SyncType.after


class Scene:
    """Rank 0 with its buffers, and channels to rank 1; what is signalled is awaited at once by the peer."""

    def __init__(self) -> None:
        self.rank = Rank(0)
        self.i = self.rank.get_input_buffer()
        self.o = self.rank.get_output_buffer()
        self.s = Buffer(0, 8)
        self.far = Rank(1).get_input_buffer()
        self.far_s = Buffer(1, 8)
        self.m = [MemoryChannel(1, 0) for _ in range(3)]
        self.p = [PortChannel(1, 0) for _ in range(3)]
        self.switch = SwitchChannel([0, 1], BufferType.input).at_rank(0)
        self.sem = [Semaphore(0, 1) for _ in range(2)]
        self.back = {"memory": MemoryChannel(0, 1), "port": PortChannel(0, 1)}

    def c(self, buffer: Any, index: int, size: int = 1) -> Any:
        return buffer[index : index + size]

    def answer(self, kind: str, signals: int = 0, waits: int = 0) -> None:
        for _ in range(signals):
            self.back[kind].wait(tb=7, data_sync=NONE)
        for _ in range(waits):
            self.back[kind].signal(tb=7, data_sync=NONE)


def signals(a: int, b: int, **second: Any) -> Callable[[Scene], None]:
    def write(x: Scene) -> None:
        x.m[a].signal(tb=0, data_sync=NONE)
        x.m[b].signal(tb=0, **({"data_sync": NONE} | second))
        x.answer("memory", signals=2)

    return write


def reduce_then(*after: Callable[[Scene], object], packet: bool = False) -> Callable[[Scene], None]:
    def write(x: Scene) -> None:
        others = [x.c(x.s, 0)] if packet else [x.c(x.i, 1)]
        x.rank.reduce(x.c(x.i, 0), others, tb=0, packet=packet)
        for statement in after:
            statement(x)

    return write


def both(*statements: Callable[[Scene], object]) -> Callable[[Scene], None]:
    def write(x: Scene) -> None:
        for statement in statements:
            statement(x)

    return write


FUSED = {
    "signals": (signals(0, 1), ["signal"]),
    "signals of one channel": (signals(0, 0), ["signal", "signal"]),
    "a relaxed signal": (signals(0, 1, relaxed=True), ["signal", "rlxsignal"]),
    "waits": (
        both(
            lambda x: x.m[0].wait(tb=0, data_sync=NONE),
            lambda x: x.m[1].wait(tb=0, data_sync=NONE),
            lambda x: x.answer("memory", waits=2),
        ),
        ["wait"],
    ),
    "flushes": (both(lambda x: x.p[0].flush(0, NONE), lambda x: x.p[0].flush(0, NONE)), ["flush"]),
    "semaphores": (both(lambda x: x.sem[0].acquire(0, NONE), lambda x: x.sem[1].acquire(0, NONE)), ["sem_acquire"]),
    "an acquire and a release": (
        both(lambda x: x.sem[0].acquire(0, NONE), lambda x: x.sem[1].release(0, NONE)),
        ["sem_acquire", "sem_release"],
    ),
    "puts": (
        both(
            lambda x: x.m[0].put(x.c(x.far, 0), x.c(x.i, 0), tb=0),
            lambda x: x.m[0].put(x.c(x.far, 1), x.c(x.i, 1), tb=0),
        ),
        ["put"],
    ),
    "puts of other sizes": (
        both(
            lambda x: x.m[0].put(x.c(x.far, 0), x.c(x.i, 0), tb=0),
            lambda x: x.m[0].put(x.c(x.far, 1, 2), x.c(x.i, 1, 2), tb=0),
        ),
        ["put", "put"],
    ),
    "puts in other ways": (
        both(
            lambda x: x.m[0].put(x.c(x.far, 0), x.c(x.i, 0), tb=0),
            lambda x: x.p[0].put(x.c(x.far, 1), x.c(x.i, 1), tb=0),
        ),
        ["put", "put"],
    ),
    "gets": (
        both(
            lambda x: x.m[0].get(x.c(x.i, 0), x.c(x.far, 0), tb=0),
            lambda x: x.m[0].get(x.c(x.i, 1), x.c(x.far, 1), tb=0),
        ),
        ["get"],
    ),
    "puts with signals": (
        both(
            lambda x: x.p[0].put_with_signal(x.c(x.far, 0), x.c(x.i, 0), tb=0),
            lambda x: x.p[1].put_with_signal(x.c(x.far, 1), x.c(x.i, 1), tb=0),
            lambda x: x.answer("port", signals=2),
        ),
        ["pws"],
    ),
    "packets passed on": (
        both(
            lambda x: x.m[0].read_put_packets(x.c(x.far_s, 0), x.c(x.s, 0), tb=0),
            lambda x: x.m[0].read_put_packets(x.c(x.far_s, 1), x.c(x.s, 0), tb=0),
        ),
        ["rppkt"],
    ),
    "other packets passed on": (
        both(
            lambda x: x.m[0].read_put_packets(x.c(x.far_s, 0), x.c(x.s, 0), tb=0),
            lambda x: x.m[0].read_put_packets(x.c(x.far_s, 1), x.c(x.s, 1), tb=0),
        ),
        ["rppkt", "rppkt"],
    ),
    "reductions that go on": (reduce_then(lambda x: x.rank.reduce(x.c(x.i, 0), [x.c(x.i, 2)], tb=0)), ["re"]),
    "reductions of another kind": (
        reduce_then(lambda x: x.rank.reduce(x.c(x.i, 0), [x.c(x.i, 2)], tb=0, reduce_op=ReduceOperationType.max)),
        ["re", "nop", "re"],
    ),
    "a reduction and its sends": (
        reduce_then(*[lambda x, k=k: x.m[0].put(x.c(x.far, k), x.c(x.i, 0), tb=0) for k in (0, 1)]),
        ["res"],
    ),
    "a reduction and a send through a port": (
        reduce_then(lambda x: x.p[0].put(x.c(x.far, 0), x.c(x.i, 0), tb=0)),
        ["re", "nop", "put"],
    ),
    "a reduction of what is far, and a send": (
        both(
            lambda x: x.m[0].reduce(x.c(x.i, 0), [x.c(x.far, 0)], tb=0),
            lambda x: x.m[0].put(x.c(x.far, 1), x.c(x.i, 0), tb=0),
        ),
        ["rres"],
    ),
    "packets reduced and sent": (
        reduce_then(lambda x: x.m[0].put_packets(x.c(x.far_s, 0), x.c(x.i, 0), tb=0), packet=True),
        ["respkt"],
    ),
    "packets reduced and copied": (
        reduce_then(lambda x: x.rank.copy_packets(x.c(x.s, 1), x.c(x.i, 0), tb=0), packet=True),
        ["recpkt"],
    ),
    "packets reduced, copied and sent": (
        reduce_then(
            lambda x: x.rank.copy_packets(x.c(x.s, 1), x.c(x.i, 0), tb=0),
            lambda x: x.m[0].put_packets(x.c(x.far_s, 0), x.c(x.i, 0), tb=0),
            lambda x: x.m[0].read_put_packets(x.c(x.far_s, 1), x.c(x.s, 1), tb=0),
            packet=True,
        ),
        ["recspkt"],
    ),
    "a reduction and a store by a switch": (
        both(lambda x: x.switch.reduce(0, 1, x.c(x.i, 0), tb=0), lambda x: x.switch.broadcast(x.c(x.i, 0), 0, 1, tb=0)),
        ["glres"],
    ),
    "copies": (
        both(
            lambda x: x.rank.copy(x.c(x.o, 0), x.c(x.i, 0), tb=0),
            lambda x: x.rank.copy(x.c(x.o, 1), x.c(x.i, 1), tb=0),
        ),
        ["copy", "copy"],
    ),
    "a meeting before a meeting": (both(lambda x: x.rank.barrier([0]), lambda x: x.rank.barrier([0])), ["nop"]),
    "a meeting before a barrier": (both(lambda x: x.rank.barrier([0]), lambda x: x.rank.barrier([0, 1])), ["barrier"]),
    "a meeting after a barrier": (both(lambda x: x.rank.barrier([0, 1]), lambda x: x.rank.barrier([0])), ["barrier"]),
    "a barrier and a signal": (
        both(
            lambda x: x.rank.barrier([0, 1]),
            lambda x: x.m[0].signal(0, BEFORE),
            lambda x: x.answer("memory", signals=1),
        ),
        ["barrier", "signal"],
    ),
    "an acquire that ends where a signal begins": (
        both(
            lambda x: x.sem[0].acquire(0, AFTER),
            lambda x: x.m[0].signal(0, BEFORE),
            lambda x: x.answer("memory", signals=1),
        ),
        ["sem_acquire", "nop", "signal"],
    ),
}


@pytest.mark.parametrize("case", FUSED)
def test_fusion(case: str) -> None:
    statements, names = FUSED[case]
    plan = lower(lambda: statements(Scene()))
    assert plan.names() == names
    assert plan.codes() == []


def test_without_fusion_every_statement_is_an_operation() -> None:
    plan = lower(lambda: FUSED["puts"][0](Scene()), instr_fusion=False)
    assert plan.names() == ["put", "put"]


def test_the_thread_blocks_of_a_group_share_a_statement() -> None:
    def write() -> None:
        x = Scene()
        x.rank.copy(x.o[0:2], x.i[2:4], tb_group=ThreadBlockGroup([2, 0]))
        x.switch.reduce(0, 1, x.i[0:1], tb_group=ThreadBlockGroup([0, 1]))
        x.switch.broadcast(x.i[0:1], 0, 1, tb_group=ThreadBlockGroup([0, 1]))

    plan = lower(write)
    blocks = plan.document["gpus"][0]["threadblocks"]
    assert [[op.get("tbg_info") for op in block["ops"]] for block in blocks] == [
        [{"tb_id": 1, "tbg_size": 2}, {"tb_id": 0, "tbg_size": 2}],
        [{"tb_id": 1, "tbg_size": 2}],
        [{"tb_id": 0, "tbg_size": 2}],
    ]
    assert [block["id"] for block in blocks] == [0, 1, 2]


def copies(*pairs: tuple[str, int, str, int]) -> Callable[[], None]:
    def write() -> None:
        x = Scene()
        buffers = {"i": x.i, "o": x.o, "s": x.s}
        for to, at, source, first in pairs:
            x.rank.copy(x.c(buffers[to], at), x.c(buffers[source], first), tb=0)

    return write


@pytest.mark.parametrize(
    ("pairs", "names"),
    [
        ([("o", 0, "i", 0), ("o", 1, "i", 1)], ["copy", "copy"]),
        ([("o", 0, "i", 0), ("s", 0, "o", 0)], ["copy", "nop", "copy"]),
        ([("o", 0, "i", 0), ("i", 0, "s", 0)], ["copy", "nop", "copy"]),
        ([("o", 0, "i", 0), ("o", 0, "i", 1)], ["copy", "nop", "copy"]),
        ([("o", 0, "i", 0), ("s", 0, "i", 0)], ["copy", "copy"]),
    ],
    ids=["apart", "read after write", "write after read", "write after write", "read after read"],
)
def test_threads_meet_where_data_depend(pairs: list[tuple[str, int, str, int]], names: list[str]) -> None:
    assert lower(copies(*pairs)).names() == names
    assert lower(copies(*pairs), auto_sync=False).names() == ["copy", "copy"]


def test_loops_become_one_operation_per_thread_block() -> None:
    def write() -> None:
        x = Scene()
        with LoopIterationContext(unit=64, num_chunks=1):
            x.rank.copy(x.s[0:1], x.i[0:1], tb=1)
            x.sem[0].release(tb=1)
            x.sem[0].acquire(tb=0, data_sync=AFTER)
            x.rank.copy(x.o[0:1], x.s[0:1], tb=0)
        x.rank.copy(x.o[1:2], x.i[1:2], tb=0)

    plan = lower(write)
    assert plan.names() == ["pipeline", "copy"]
    loop = plan.ops()[0]
    assert loop["iter_context"] == {"unit_size": 64, "num_chunks": 1}
    assert [op["name"] for op in loop["ops"]] == ["sem_acquire", "nop", "copy"]
    assert [op["name"] for op in plan.ops(0, 1)[0]["ops"]] == ["copy", "nop", "sem_release", "nop"]


def test_instances_have_thread_blocks_channels_and_chunks_of_their_own() -> None:
    def write() -> None:
        a, b = MemoryChannel(1, 0), MemoryChannel(0, 1)
        Semaphore(0, 5)
        a.put(Rank(1).get_output_buffer()[2:4], Rank(0).get_input_buffer()[2:4], tb=1)
        a.signal(tb=1, data_sync=NONE)
        Rank(0).barrier([0, 1])
        b.wait(tb=0, data_sync=NONE)

    gpu = lower(write, instances=3).document["gpus"][0]
    assert (gpu["input_chunks"], gpu["output_chunks"]) == (24, 24)
    assert gpu["channels"] == [{"channel_type": "memory", "connected_to": [1, 1, 1]}]
    assert gpu["semaphores"] == [{"init_value": 5}] * 3
    assert [block["id"] for block in gpu["threadblocks"]] == list(range(6))
    blocks = gpu["threadblocks"][3:]
    assert [block["channels"][0]["channel_ids"] for block in blocks] == [[0], [1], [2]]
    assert [block["ops"][0]["src_buff"][0]["index"] for block in blocks] == [6, 8, 10]
    assert [block["ops"][2]["barrier_id"] for block in blocks] == [0, 1, 2]


def test_channels_and_buffers_are_numbered_by_first_use() -> None:
    def write() -> None:
        first, second, port = MemoryChannel(1, 0), MemoryChannel(2, 0), PortChannel(1, 0)
        own = Rank(0).get_input_buffer()
        port.put(Buffer(1, 1)[0:1], own[0:1], tb=2)
        second.put(Rank(2).get_output_buffer()[0:1], own[0:1], tb=0)
        first.get(own[1:2], Rank(1).get_input_buffer()[1:2], tb=0)
        first.put(Rank(2 - 1).get_input_buffer()[2:3], own[2:3], tb=0)

    gpu = lower(write, ranks=3).document["gpus"][0]
    assert [(each["rank"], each["type"]) for each in gpu["remote_buffers"]] == [(1, "s"), (2, "o"), (1, "i")]
    assert [list(each["access_channel_types"]) for each in gpu["remote_buffers"]] == [["port"], ["memory"], ["memory"]]
    assert [each["connected_to"] for each in gpu["channels"]] == [[1, 2], [1]]
    block = gpu["threadblocks"][0]
    assert block["channels"] == [{"channel_type": "memory", "channel_ids": [1, 0]}]
    assert block["remote_buffer_refs"] == [{"access_channel_type": "memory", "remote_buffer_ids": [1, 2]}]
    assert [ref["buffer_id"] for op in block["ops"] for side in op.values() if isinstance(side, list)
            for ref in side if isinstance(ref, dict) and "buffer_id" in ref] == [0, 1, 1]  # fmt: skip
    assert gpu["threadblocks"][1]["ops"] == []
