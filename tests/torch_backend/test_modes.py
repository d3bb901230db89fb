"""The same scenarios in every mode."""

from __future__ import annotations

import json
import os
import pickle
import re
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install .[torch]")

import torch
import torch.distributed as dist
from jobs import forked, places, torchrun
from scenarios import SCENARIOS, data

import ahbm
import ahbm.distributed
import ahbm.torch
from ahbm.errors import DistributedError, RankError, UnsupportedError
from ahbm.ranks import stall

HERE = Path(__file__).parent
SMALL = {"sip.cube_mesh.w": 2, "sip.cube_mesh.h": 1}


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("turns", [True, False], ids=["turns", "free"])
def test_threads(name: str, turns: bool) -> None:
    def worker(rank: int) -> None:
        dist.init_process_group("ahbm")
        SCENARIOS[name]()
        dist.destroy_process_group()

    ahbm.torch.spawn(worker, world_size=3, turns=turns, overrides=SMALL)


def test_processes() -> None:
    done = torchrun(HERE / "job.py", 3)
    assert done.returncode == 0, done.stderr


def test_a_failing_rank_stops_the_others_by_name() -> None:
    def worker(rank: int) -> None:
        dist.init_process_group("ahbm")
        if rank == 1:
            raise ValueError("no luck")
        dist.barrier()

    with pytest.raises(RankError, match="rank 1 failed: ValueError: no luck"):
        ahbm.torch.spawn(worker, world_size=3, overrides=SMALL)


def test_futures_of_what_a_failing_rank_leaves_behind_fail_too() -> None:
    told: list[str] = []

    def worker(rank: int) -> None:
        dist.init_process_group("ahbm")
        if rank == 1:
            while not told:
                time.sleep(0.001)
            raise ValueError("no luck")
        work = dist.all_reduce(data(rank), async_op=True)
        future = work.get_future()
        told.append("asked")
        try:
            future.wait()
        except RuntimeError as error:
            told.append(str(error))
        assert work.is_completed() and not work.is_success()

    with pytest.raises(RankError, match="rank 1 failed: ValueError: no luck"):
        ahbm.torch.spawn(worker, turns=False, overrides=SMALL)
    assert len(told) == 2 and "no luck" in told[1]


def test_a_spawn_leaves_no_trace_in_later_tracebacks() -> None:
    before = sys.excepthook
    ahbm.torch.spawn(lambda: dist.init_process_group("ahbm"), overrides=SMALL)
    assert sys.excepthook is before


def test_ranks_that_disagree() -> None:
    def worker(rank: int) -> None:
        dist.init_process_group("ahbm")
        dist.all_reduce(data(rank, 4 + rank))

    with pytest.raises(DistributedError, match="the ranks disagree on elements: rank 0 has 4; rank 1 has 5"):
        ahbm.torch.spawn(worker, overrides=SMALL)


def test_a_dead_process_fails_the_others_by_name(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "import os, signal, sys, torch.distributed as dist\n"
        # torchrun ends the others as soon as it sees that one is dead, perhaps before they do.
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "dist.init_process_group('ahbm')\n"
        "dist.barrier()\n"
        "if dist.get_rank() == 1: os._exit(7)\n"
        "try:\n"
        "    dist.barrier()\n"
        "except Exception as error:\n"
        "    sys.stderr.write(f'{dist.get_rank()}: {error}\\n')\n"
    )
    done = torchrun(script, 3)
    for rank in (0, 2):
        assert f"{rank}: AHBM-X120 rank 1 failed: ConnectionError: its process has ended" in done.stderr, done.stderr


def test_turns_give_each_rank_its_own_random_numbers() -> None:
    def worker(rank: int) -> torch.Tensor:
        dist.init_process_group("ahbm")
        torch.manual_seed(rank)
        drawn = []
        for _ in range(3):
            drawn.append(torch.rand(2))
            dist.barrier()
        return torch.cat(drawn)

    got = ahbm.torch.spawn(worker, world_size=3, overrides=SMALL)
    for rank, drawn in enumerate(got):
        torch.manual_seed(rank)
        assert torch.equal(drawn, torch.cat([torch.rand(2) for _ in range(3)]))


def test_tensors_in_the_other_front_are_resized_afterwards() -> None:
    def worker() -> None:
        ahbm.distributed.init_process_group()
        for dtype in (torch.float32, torch.bfloat16, torch.uint16):
            x = torch.ones(4, dtype=dtype)
            ahbm.distributed.all_reduce(x)
            assert torch.equal(x, torch.full((4,), 2, dtype=dtype))
            x.resize_(8)
        y = torch.ones(4, 6, requires_grad=True)
        ahbm.distributed.all_reduce(y.t()[::2])
        assert torch.equal(y[:, ::2], torch.full((4, 3), 2.0)) and torch.equal(y[:, 1::2], torch.ones(4, 3))
        refused = torch.ones(4, dtype=torch.bool)
        with pytest.raises(UnsupportedError, match="AHBM-U130"):
            ahbm.distributed.all_reduce(refused)
        refused.resize_(8)
        y.untyped_storage().resize_(0)
        with pytest.raises(DistributedError, match="AHBM-X130 a tensor of 24 elements has no memory"):
            ahbm.distributed.all_reduce(y)

    ahbm.spawn(worker, nprocs=2, overrides=SMALL)


def test_a_tensor_of_a_wrong_size_is_named_with_the_size_that_it_must_have() -> None:
    zeros = torch.zeros
    calls: dict[str, Callable[[], object]] = {
        "reduce_scatter: the input has 7 elements, not 6": lambda: dist.reduce_scatter_tensor(zeros(3), zeros(7)),
        "reduce_scatter: the input has 3 elements, not 6": lambda: dist.reduce_scatter_tensor(zeros(3), zeros(3)),
        "all_gather: the output has 7 elements, not 6": lambda: dist.all_gather_into_tensor(zeros(7), zeros(3)),
        "the output has 8 elements, not 6": lambda: dist.all_to_all_single(zeros(8), zeros(6)),
    }

    def worker(rank: int) -> None:
        dist.init_process_group("ahbm")
        for told, call in calls.items():
            with pytest.raises(DistributedError, match=f"AHBM-X130 .*{told}"):
                call()

    ahbm.torch.spawn(worker, world_size=2, overrides=SMALL)


def test_accumulation_in_f32() -> None:
    def worker(rank: int) -> torch.Tensor:
        dist.init_process_group("ahbm")
        x = torch.tensor([1.0] + 7 * [0.003] if rank == 0 else 8 * [0.003]).to(torch.bfloat16)
        dist.all_reduce(x)
        return x

    # In the order of this algorithm, the small terms are lost one by one.
    def named(algorithms: object, request: object) -> str:
        return "lrab_hierarchical_allreduce"

    plain = ahbm.torch.spawn(worker, world_size=8, overrides=SMALL, selector=named)
    wide = ahbm.torch.spawn(worker, world_size=8, overrides=SMALL, selector=named, accumulate="f32")
    exact = (1.0 + 7 * torch.tensor(0.003).to(torch.bfloat16).float()).to(torch.bfloat16)
    assert wide[0][0] == exact and plain[0][0] != exact


def late_barriers(rank: int, told: list[str]) -> None:
    """Notes what a rank is told when others come too late: rank 1 of 4 calls nothing, rank 3 only the first barrier."""
    dist.init_process_group("ahbm")
    store = dist.distributed_c10d._get_default_store()
    dist.monitored_barrier(timeout=timedelta(seconds=60))
    calls: list[Callable[[], object]] = [
        lambda: dist.monitored_barrier(timeout=timedelta(seconds=1)),
        lambda: dist.monitored_barrier(timeout=timedelta(seconds=1), wait_all_ranks=True),
        lambda: dist.monitored_barrier(timeout=timedelta(0)),
        lambda: dist.barrier(async_op=True).wait(timedelta(seconds=0.1)),
    ]
    for number, call in enumerate(calls):
        if rank == 1 or (rank == 3 and number == 1):
            break
        try:
            call()
        except dist.DistBackendError as error:
            assert isinstance(error, DistributedError) and error.code == "AHBM-X122"
            assert pickle.loads(pickle.dumps(error)).message == error.message
            told.append(error.message)
    store.set(f"told {rank}", "")
    store.wait([f"told {other}" for other in range(4)])


RECEIVED = "Rank {} successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0."


def check_late_barriers(told: list[list[str]]) -> None:
    first, all_of_them, zero, barrier = told[0]
    assert first == "Rank 1 failed to pass monitoredBarrier in 1000 ms"
    assert all_of_them == "Ranks 1, 3 failed to pass monitoredBarrier in 1000 ms"
    assert zero == "Rank 0 timed out in monitoredBarrier after 0 ms"
    assert re.search(" Timed out waiting 100ms for ranks 1, 3$", barrier)
    assert told[1] == []
    for rank in (2, 3):
        assert told[rank][0].startswith(RECEIVED.format(rank))
    assert re.search(" Timed out waiting 100ms for ranks? 1", told[2][-1])


def test_late_ranks_are_told_of_in_torchs_words() -> None:
    told: list[list[str]] = [[] for _ in range(4)]
    with pytest.raises(DistributedError, match="AHBM-X123 all ranks have returned"):
        ahbm.torch.spawn(lambda rank: late_barriers(rank, told[rank]), world_size=4, turns=False, overrides=SMALL)
    check_late_barriers(told)


@pytest.fixture
def gave_up(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once a rank has waited in vain."""
    event, late = threading.Event(), stall.late

    def noted(*given: Any) -> DistributedError:
        event.set()
        return late(*given)

    monkeypatch.setattr(stall, "late", noted)
    return event


def hold_the_turn_while_rank_0_waits(rank: int, gave_up: threading.Event) -> None:
    """Rank 0 goes on; rank 1 has the turn from where rank 0 waits next until that wait was in vain."""
    if rank > 0:
        dist.recv(data(rank), rank - 1)
    if rank < dist.get_world_size() - 1:
        dist.isend(data(rank), rank + 1)
    if rank == 1:
        assert gave_up.wait(60)


def test_ranks_that_had_no_turn_are_not_late(gave_up: threading.Event) -> None:
    told: dict[int, str] = {}

    def worker(rank: int) -> None:
        dist.init_process_group("ahbm")
        hold_the_turn_while_rank_0_waits(rank, gave_up)
        try:
            dist.monitored_barrier(timeout=timedelta(seconds=0.5), wait_all_ranks=True)
        except dist.DistBackendError as error:
            told[rank] = str(error)

    ahbm.torch.spawn(worker, world_size=3, overrides=SMALL)
    assert "Ranks 1 failed to pass monitoredBarrier in 500 ms" in told[0]
    assert "rank 1, which has not called it and rank 2, which has had no turn to call it" in told[0]


def test_a_rank_that_has_waited_in_vain_goes_on_in_its_turn(gave_up: threading.Event) -> None:
    order: list[str] = []

    def worker(rank: int) -> None:
        dist.init_process_group("ahbm")
        hold_the_turn_while_rank_0_waits(rank, gave_up)
        work = dist.all_reduce(data(rank), async_op=True)
        order.append(f"{rank} called")
        try:
            work.wait(timedelta(seconds=0.1))
        except dist.DistBackendError:
            order.append(f"{rank} late")
        x = data(rank)
        dist.all_reduce(x)
        assert torch.equal(x, data(0) + data(1))

    ahbm.torch.spawn(worker, world_size=2, overrides=SMALL)
    assert order == ["0 called", "1 called", "0 late"]


def test_late_processes_are_told_of_in_torchs_words(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        f"import json, os, sys, torch.distributed as dist\n"
        f"sys.path.insert(0, {str(HERE)!r})\n"
        "from test_modes import late_barriers\n"
        "rank, told = int(os.environ['RANK']), []\n"
        "late_barriers(rank, told)\n"
        f"json.dump(told, open(os.path.join({str(tmp_path)!r}, str(rank)), 'w'))\n"
        "dist.destroy_process_group()\n"
    )
    done = torchrun(script, 4)
    assert done.returncode == 0, done.stderr
    check_late_barriers([json.loads((tmp_path / str(rank)).read_text()) for rank in range(4)])


def test_errors_of_operations_are_torchs_too() -> None:
    def worker(rank: int) -> None:
        dist.init_process_group("ahbm")
        with pytest.raises(dist.DistBackendError, match="AHBM-X110") as caught:
            dist.all_reduce(data(rank, 4 + rank))
        assert isinstance(caught.value, DistributedError)
        future = dist.all_reduce(data(rank, 4 + rank), async_op=True).get_future()
        with pytest.raises(RuntimeError, match="AHBM-X110"):
            future.wait()

    ahbm.torch.spawn(worker, overrides=SMALL)


def test_rank_0_that_leaves_right_after_init_is_one_sentence(tmp_path: Path) -> None:
    """Of ranks that find each other through rank 0's store, as without torchrun."""
    script = tmp_path / "job.py"
    script.write_text(
        "import os, torch.distributed as dist\n"
        "dist.init_process_group('ahbm')\n"
        "if dist.get_rank() == 0: os._exit(0)\n"
        "dist.barrier()\n"
    )
    needed = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
    ranks = [{**os.environ, **{name: place[name] for name in needed}} for place in places(2)]
    told = forked([str(script)], ranks, HERE).stderr
    assert "frame #" not in told, told
    assert re.search("AHBM-X126 rank 0, whose process holds the emulator, is gone: .*\n", told), told


@pytest.mark.parametrize("differs", ["pg_options", "environment"])
def test_processes_that_ask_for_different_setups_are_told(differs: str, tmp_path: Path) -> None:
    script = tmp_path / "asks.py"
    given = "pg_options={'algorithm': ['ring_allreduce', 'tree_allreduce'][rank]}" if differs == "pg_options" else ""
    script.write_text(
        "import os, torch.distributed as dist\n"
        "rank = int(os.environ['RANK'])\n"
        f"if {differs!r} == 'environment': os.environ['AHBM_TOPOLOGY'] = ['npu_ring_8', 'npu_switch_8'][rank]\n"
        f"dist.init_process_group('ahbm', {given})\n"
        "dist.barrier()\n"
    )
    done = torchrun(script, 2)
    assert done.returncode
    what = "algorithm" if differs == "pg_options" else "topology"
    first, other = ("ring_allreduce", "tree_allreduce") if what == "algorithm" else ("npu_ring_8", "npu_switch_8")
    told = f"the ranks disagree on {what}: rank 0 has {what} {first}; rank 1 has {what} {other}"
    assert f"AHBM-X110 init_process_group: {told}" in done.stderr
