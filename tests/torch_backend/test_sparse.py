"""all_reduce of sparse tensors: the bits of gloo, in simulated time."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install .[torch]")

import torch
import torch.distributed as dist
from jobs import torchrun
from sparse_job import numbers

import ahbm.torch
from ahbm.errors import RankError

SMALL = {"sip.cube_mesh.w": 2, "sip.cube_mesh.h": 1}
JOB = Path(__file__).parent / "sparse_job.py"


@cache
def printed(backend: str, ranks: int) -> list[str]:
    done = torchrun(JOB, ranks, backend)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


@pytest.mark.parametrize("ranks", [2, 4])
def test_processes(ranks: int) -> None:
    assert printed("ahbm", ranks) == printed("gloo", ranks) and len(printed("ahbm", ranks)) == 7 * ranks


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("turns", [True, False])
def test_threads(ranks: int, turns: bool) -> None:
    found = ahbm.torch.spawn(numbers, ("ahbm",), world_size=ranks, turns=turns, overrides=SMALL)
    assert sorted(f"{rank}: {line}" for rank, told in enumerate(found) for line in told) == printed("gloo", ranks)


def test_time_is_simulated() -> None:
    def worker(rank: int) -> int:
        dist.init_process_group("ahbm")
        x = torch.eye(200)[:: rank + 1].to_sparse()
        x = torch.sparse_coo_tensor(x.indices(), x.values(), (200, 200), check_invariants=False)
        place = dist.group.WORLD._place
        work = dist.all_reduce(x, async_op=True)
        sizes_known = place.now_ps()
        work.wait()
        return sizes_known if rank else place.now_ps() - sizes_known

    after, before = ahbm.torch.spawn(worker, world_size=2, overrides=SMALL)
    assert after > 0 and before > 0


def test_one_rank_alone() -> None:
    ahbm.torch.init_alone(rank=1, world_size=8, overrides=SMALL)
    try:
        x = torch.eye(3).to_sparse()
        dist.all_reduce(x)
        assert torch.equal(x.to_dense(), 8 * torch.eye(3))
    finally:
        dist.destroy_process_group()


def test_a_recorder_refuses_what_depends_on_other_ranks(tmp_path: Path) -> None:
    def worker() -> None:
        recorder = ahbm.torch.record(tmp_path / "job")
        dist.init_process_group("ahbm")
        with recorder:
            dist.all_reduce(torch.eye(3).to_sparse())

    with pytest.raises(RankError, match="AHBM-U154"):
        ahbm.torch.spawn(worker, world_size=2, overrides=SMALL)


@pytest.mark.parametrize("turns", [True, False])
def test_a_sum_of_a_sum_comes_after_it(turns: bool) -> None:
    def worker(rank: int) -> list[float]:
        dist.init_process_group("ahbm")
        x = torch.sparse_coo_tensor(torch.tensor([[rank, 2]]), torch.tensor([1.0, 1.0]), (3,))
        works = [dist.all_reduce(x, async_op=True) for _ in range(2)]
        dist.all_reduce(torch.ones(1))  # so both have ended
        found: list[float] = x.to_dense().tolist()
        for work in works:
            work.wait()
        return found

    assert ahbm.torch.spawn(worker, turns=turns) == [[2.0, 2.0, 4.0]] * 2
