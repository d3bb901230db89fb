"""`ahbm.spawn`: who runs, what stops the ranks, and that the process stays usable afterwards."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ahbm.distributed as dist
from ahbm import run, spawn
from ahbm.errors import AhbmError, ConfigError, DistributedError, InterruptedRun, RankError, TopologyError

SMALL = {
    "system.sips.topology": "ring_1d",
    "sip.cube_mesh.w": 2,
    "sip.cube_mesh.h": 2,
    "cube.pe_layout.corners": 1,
    "cube.pe_layout.pe_per_corner": 1,
}


def go(worker: Any, ranks: int = 3, args: tuple[object, ...] = (), **kw: Any) -> list[Any]:
    return spawn(worker, args, overrides={**SMALL, "system.sips.count": ranks}, **kw)


def reduce_ones() -> float:
    dist.init_process_group(backend="ahbm")
    x = np.ones(4, np.float32)
    dist.all_reduce(x)
    return float(x[0])


@pytest.fixture(autouse=True)
def stays_usable() -> Any:
    yield
    assert go(reduce_ones) == [3.0, 3.0, 3.0]


def test_the_rank_is_passed_to_workers_that_take_it() -> None:
    assert go(lambda rank, a, b: (rank, a, b), args=(1, 2)) == [(0, 1, 2), (1, 1, 2), (2, 1, 2)]
    assert go(lambda a: a, args=("x",)) == ["x", "x", "x"]
    assert go(lambda *args: args, args=(7,)) == [(0, 7), (1, 7), (2, 7)]
    with pytest.raises(DistributedError, match="takes neither") as caught:
        go(lambda a, b, c: None)
    assert caught.value.code == "AHBM-X107"


def test_fewer_ranks_than_sips() -> None:
    assert go(reduce_ones, nprocs=2) == [2.0, 2.0]


def test_more_ranks_than_sips() -> None:
    with pytest.raises(DistributedError, match="cannot run 4 ranks") as caught:
        go(reduce_ones, nprocs=4)
    assert caught.value.code == "AHBM-X104" and caught.value.hint


def test_a_failing_rank_aborts_its_siblings() -> None:
    echoes = []

    def worker(rank: int) -> None:
        dist.init_process_group()
        if rank == 1:
            raise ValueError("no such luck")
        try:
            dist.barrier()
        except RankError as error:
            echoes.append(error)
            raise

    with pytest.raises(RankError, match="rank 1 failed: ValueError: no such luck") as caught:
        go(worker)
    error = caught.value
    assert error.code == "AHBM-X120" and isinstance(error.__cause__, ValueError)
    assert error.sites[0].origin.startswith("test_spawn.py:")
    assert len(echoes) == 2 and echoes[0] is not echoes[1] and echoes[0].message == error.message


def test_exit_of_a_worker() -> None:
    def worker(rank: int) -> None:
        raise SystemExit(rank)

    with pytest.raises(RankError, match="rank 1 failed"):
        go(worker)
    assert go(lambda: exit(0)) == [None, None, None]


def test_a_rank_that_returns_early_is_named() -> None:
    def worker(rank: int) -> None:
        dist.init_process_group()
        if rank != 2:
            dist.all_reduce(np.ones(3, np.float32))

    with pytest.raises(
        DistributedError, match=r"no rank can go on: rank 0 waits in all_reduce.*which has returned"
    ) as caught:
        go(worker)
    error = caught.value
    assert error.code == "AHBM-X121" and len(error.sites) == 2 and error.hint
    assert all(site.origin.startswith("test_spawn.py:") for site in error.sites)


def test_ranks_that_wait_for_each_other_are_named() -> None:
    def worker(rank: int) -> None:
        dist.init_process_group()
        x = np.zeros(3, np.float32)
        if rank == 0:
            dist.barrier()
        else:
            dist.recv(x, src=rank - 1)

    with pytest.raises(DistributedError, match=r"rank 2 waits in recv from rank 1 .* for rank 1, which waits in recv"):
        go(worker)


def test_a_stall_can_be_caught() -> None:
    def worker(rank: int) -> float:
        dist.init_process_group()
        pair = dist.new_group([0, 1])
        if rank == 0:
            with pytest.raises(DistributedError, match="no rank can go on"):
                dist.barrier(pair)
        return 0.0

    assert go(worker) == [0.0, 0.0, 0.0]


def test_work_that_nobody_finishes() -> None:
    def worker(rank: int) -> None:
        dist.init_process_group()
        if rank == 0:
            dist.isend(np.ones(3), 1)

    with pytest.raises(DistributedError, match="all ranks have returned, but rank 0 waits in send to rank 1") as caught:
        go(worker)
    assert caught.value.code == "AHBM-X123"


def test_timeout_while_a_rank_computes() -> None:
    release = threading.Event()

    def worker(rank: int) -> None:
        dist.init_process_group(timeout=0.2)
        if rank == 1:
            release.wait(20)
        dist.barrier()

    began = time.monotonic()
    with pytest.raises(DistributedError, match=r"nothing happened for 0\.2 s while rank 1 computed") as caught:
        go(worker)
    release.set()
    assert caught.value.code == "AHBM-X122" and time.monotonic() - began < 10


def test_wait_with_a_timeout() -> None:
    release = threading.Event()

    def worker(rank: int) -> None:
        dist.init_process_group()
        if rank == 1:
            release.wait(20)
        work = dist.barrier(async_op=True)
        assert work is not None
        if rank == 0:
            with pytest.raises(DistributedError, match=r"Timed out waiting [0-9]+ms") as caught:
                work.wait(timeout=0.05)
            assert caught.value.code == "AHBM-X122"
            release.set()
        work.wait()

    go(worker)


MISMATCHES = {
    "op": lambda rank, x: dist.all_reduce(x, "max" if rank == 1 else "sum"),
    "dtype": lambda rank, x: dist.all_reduce(x.astype(np.float16) if rank == 1 else x),
    "shape": lambda rank, x: dist.all_reduce(x[:2] if rank == 1 else x),
    "root": lambda rank, x: dist.broadcast(x, int(rank == 1)),
    "collective": lambda rank, x: dist.barrier() if rank == 1 else dist.all_reduce(x),
}


@pytest.mark.parametrize("term", MISMATCHES)
def test_ranks_that_disagree(term: str) -> None:
    caught: list[AhbmError] = []

    def worker(rank: int) -> None:
        dist.init_process_group()
        try:
            MISMATCHES[term](rank, np.ones(4, np.float32))
        except DistributedError as error:
            caught.append(error)
            raise

    with pytest.raises(DistributedError, match=f"disagree on {term}: ranks 0, 2 have .*; rank 1 has ") as raised:
        go(worker)
    assert raised.value.code == "AHBM-X110" and len(caught) == 3
    assert len(raised.value.sites) == 2 and raised.value.hint


def test_send_and_receive_that_disagree() -> None:
    def worker(rank: int) -> None:
        dist.init_process_group()
        if rank == 0:
            dist.send(np.ones(4, np.float32), 1)
        elif rank == 1:
            dist.recv(np.ones(5, np.float32), 0)

    with pytest.raises(DistributedError, match="disagree on elements: rank 0 has 4; rank 1 has 5"):
        go(worker)


def test_init_that_disagrees() -> None:
    def worker(rank: int) -> None:
        dist.init_process_group(algorithm="ring_allreduce" if rank == 1 else "tree_allreduce")
        dist.barrier()

    with pytest.raises(RankError, match="the ranks disagree on algorithm"):
        go(worker)


def test_a_thread_that_is_no_rank_cannot_wait() -> None:
    def worker(rank: int) -> None:
        dist.init_process_group()
        work = dist.barrier(async_op=True)
        assert work is not None
        failures: list[BaseException] = []

        def helper() -> None:
            try:
                work.wait()
            except DistributedError as error:
                failures.append(error)

        thread = threading.Thread(target=helper)
        thread.start()
        thread.join()
        assert len(failures) == 1
        work.wait()

    go(worker)


def test_unknown_topology_in_init() -> None:
    def worker() -> None:
        dist.init_process_group(topology="moebius")

    with pytest.raises(TopologyError, match="unknown topology"):
        go(worker)


def test_keyboard_interrupt_while_ranks_compute() -> None:
    def worker(rank: int) -> None:
        dist.init_process_group()
        if rank == 0:
            threading.Timer(0.2, signal.raise_signal, (signal.SIGINT,)).start()
            time.sleep(0.5)
        dist.barrier()

    with pytest.raises(InterruptedRun) as caught:
        go(worker)
    assert caught.value.code == "AHBM-I101"


def test_many_ranks() -> None:
    assert go(reduce_ones, ranks=64) == [64.0] * 64


@pytest.mark.parametrize("name", ["ring_allredcue", "absent.py", "broken.py"])
def test_an_algorithm_that_there_is_not_is_refused_where_it_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def kernel(:", encoding="utf-8")
    reached = []
    asked = str(tmp_path / name) if name.endswith(".py") else name

    def worker() -> None:
        dist.init_process_group(algorithm=asked)
        reached.append(dist.get_rank())

    with pytest.raises(ConfigError) as early:
        spawn(worker)
    with pytest.raises(ConfigError) as late:
        run("all_reduce", asked)
    assert not reached and str(early.value) == str(late.value)
