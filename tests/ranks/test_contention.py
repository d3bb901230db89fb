"""Collectives of several groups at once: they contend, and no thread's pace shows in their times."""

import random
import time
from typing import Any

import numpy as np
import pytest

import ahbm
import ahbm.distributed as dist
from ahbm.core.buffers import requested
from ahbm.core.emulator import Emulator
from support.choosing import compiled

RING = "npu_ring_8"
SIZE = 1 << 18


def alone(ranks: list[int], size: int = SIZE) -> float:
    buffers = [np.zeros(size, np.float32) for _ in ranks]
    return compiled(Emulator.load(RING), requested("all_reduce", buffers, ranks=ranks)).latency_ps / 1000


def reduced(groups: list[list[int]], dawdle: random.Random | None = None) -> list[Any]:
    """Every rank reduces in its group; per rank its clock and what `stats` says of the collective."""

    def worker(rank: int) -> tuple[float, float, float] | None:
        dist.init_process_group(backend="ahbm")
        made = [dist.new_group(group) for group in groups]
        mine = next((group for ranks, group in zip(groups, made, strict=True) if rank in ranks), None)
        if mine is None:
            return None
        x = np.full(SIZE, rank, np.float32)
        if dawdle is not None:
            time.sleep(dawdle.random() / 100)
        dist.all_reduce(x, group=mine)
        assert x[0] == sum(mine.ranks)
        call = dist.stats()[-1]
        return dist.simulated_time(), call.start_ns, call.latency_ns

    return ahbm.spawn(worker, topology=RING)


def test_groups_on_other_links_take_their_time_alone() -> None:
    took = alone([0, 1])
    assert reduced([[0, 1], [4, 5]]) == [(took, 0, took)] * 2 + [None] * 2 + [(took, 0, took)] * 2 + [None] * 2


def test_groups_on_one_link_contend_whatever_the_threads_do() -> None:
    expected = reduced([[0, 2], [1, 3]])
    single = alone([0, 2])
    assert all(found is not None and single * 1.3 < found[2] < single * 2.1 for found in expected[:4])
    dawdle = random.Random(0)
    for _ in range(20):
        assert reduced([[0, 2], [1, 3]], dawdle) == expected


def test_groups_one_after_the_other_take_their_time_alone() -> None:
    def worker(rank: int) -> list[float]:
        dist.init_process_group(backend="ahbm")
        pairs = [dist.new_group([0, 2]), dist.new_group([1, 3])]
        mine = pairs[rank % 2]
        if rank % 2:
            dist.barrier()
        if rank < 4:
            dist.all_reduce(np.zeros(SIZE, np.float32), group=mine)
        if not rank % 2:
            dist.barrier()
        return [call.latency_ns for call in dist.stats() if call.collective == "all_reduce"]

    found = ahbm.spawn(worker, topology=RING)
    assert [took for times in found for took in times] == pytest.approx([alone([0, 2])] * 4)


def test_computing_hides_what_is_not_waited_for() -> None:
    def worker(rank: int) -> tuple[float, float]:
        dist.init_process_group(backend="ahbm")
        pairs = [dist.new_group([0, 2]), dist.new_group([0, 2])]
        if rank not in (0, 2):
            return 0.0, 0.0
        works = [dist.all_reduce(np.zeros(SIZE, np.float32), group=pair, async_op=True) for pair in pairs]
        before = dist.simulated_time()
        for work in works:
            assert work is not None
            work.wait()
        return before, dist.simulated_time()

    single = alone([0, 2])
    found = ahbm.spawn(worker, topology=RING)
    assert found[0] == found[2]
    # Two groups of the same ranks at once: more than one alone, no more than one after the other.
    assert found[0][0] == 0
    assert single * 1.3 < found[0][1] <= single * 2 + 1


def test_who_asks_first_does_not_matter() -> None:
    """A rank that asks early in simulated time goes on before a later one is told, whose call it then disturbs."""

    def worker(rank: int) -> float:
        dist.init_process_group(backend="ahbm")
        pairs = [dist.new_group([0, 2]), dist.new_group([1, 3])]
        if rank in (0, 2):
            dist.all_reduce(np.zeros(SIZE, np.float32), group=pairs[0])
        if rank in (1, 3):
            assert dist.simulated_time() == 0
            dist.all_reduce(np.zeros(SIZE, np.float32), group=pairs[1])
        return dist.simulated_time()

    assert ahbm.spawn(worker, topology=RING)[:4] == [found and found[0] for found in reduced([[0, 2], [1, 3]])[:4]]


def test_a_mesh_of_data_and_tensor_parallel_groups() -> None:
    """Ranks in rows and columns: each step gathers along its row while its column reduces."""

    def worker(rank: int) -> tuple[float, ...]:
        dist.init_process_group(backend="ahbm")
        rows = [dist.new_group([4 * row + column for column in range(4)]) for row in range(2)]
        columns = [dist.new_group([column, 4 + column]) for column in range(4)]
        row, column = rows[rank // 4], columns[rank % 4]
        for _ in range(3):
            grads = dist.all_reduce(np.ones(SIZE // 4, np.float32), group=column, async_op=True)
            out = np.zeros(SIZE, np.float32)
            dist.all_gather_into_tensor(out, np.full(SIZE // 4, rank, np.float32), group=row)
            assert out[-1] == max(row.ranks)
            assert grads is not None
            grads.wait()
        return dist.simulated_time(), *(call.latency_ns for call in dist.stats() if call.collective != "new_group")

    first = ahbm.spawn(worker, topology=RING)
    assert first == ahbm.spawn(worker, topology=RING)
    assert any(took > alone([0, 4], SIZE // 4) for took in first[0][1:])


def test_collectives_of_one_group_run_one_after_the_other() -> None:
    def worker(rank: int) -> tuple[list[float], list[float]]:
        dist.init_process_group(backend="ahbm")
        works = [dist.all_reduce(np.zeros(SIZE, np.float32), async_op=True) for _ in range(3)]
        for work in works:
            assert work is not None
            work.wait()
        calls = dist.stats()
        return [call.start_ns for call in calls], [call.latency_ns for call in calls]

    took = alone(list(range(8)))
    for starts, latencies in ahbm.spawn(worker, topology=RING):
        assert starts == pytest.approx([0, took, 2 * took])
        assert latencies == pytest.approx([took] * 3)
