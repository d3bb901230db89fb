"""Threads that ranks start act for their rank."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install .[torch]")

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import fully_shard

import ahbm.torch

SMALL = {"sip.cube_mesh.w": 2, "sip.cube_mesh.h": 1}
MODES = pytest.mark.parametrize("turns", [True, False], ids=["turns", "free"])


@MODES
def test_a_checkpoint_that_is_saved_beside_training_is_whole(turns: bool, tmp_path: Path) -> None:
    whole = torch.arange(16.0).reshape(4, 4)

    def model(values: torch.Tensor) -> torch.nn.Module:
        made = torch.nn.Linear(4, 4, bias=False)
        with torch.no_grad():
            made.weight.copy_(values)
        return fully_shard(made)

    def worker() -> None:
        dist.init_process_group("ahbm")
        saved, loaded = model(whole), model(-whole)
        future = dcp.async_save({"m": saved.state_dict()}, checkpoint_id=tmp_path, process_group=dist.new_group())
        with torch.no_grad():
            saved.weight.fill_(7.0)
        dist.barrier()
        future.result()
        dcp.load({"m": loaded.state_dict()}, checkpoint_id=tmp_path)
        assert torch.equal(loaded.weight.full_tensor(), whole)

    ahbm.torch.spawn(worker, world_size=2, turns=turns, overrides=SMALL)
    assert sorted(path.name for path in tmp_path.glob("*.distcp")) == ["__0_0.distcp", "__1_0.distcp"]


@MODES
@pytest.mark.parametrize("way", ["join", "event", "sleep", "pool"])
def test_a_rank_that_waits_for_its_thread_lets_others_go_on(way: str, turns: bool) -> None:
    with ThreadPoolExecutor(1) as shared:
        shared.submit(int).result()  # its worker is no rank's

        def worker(rank: int) -> None:
            dist.init_process_group("ahbm")
            group = dist.new_group()
            told: list[float] = []
            done = threading.Event()

            def help_out() -> None:
                assert dist.get_rank() == rank and dist.get_world_size() == 2
                told.append(float(funcol.all_reduce(torch.tensor([rank + 1.0]), "sum", group)))
                done.set()

            if way == "pool":
                with ThreadPoolExecutor(1) as pool:
                    pool.submit(help_out).result()
                assert shared.submit(dist.get_rank).result() == rank
            else:
                thread = threading.Thread(target=help_out)
                thread.start()
                if way == "event":
                    assert done.wait(60)
                while way == "sleep" and not done.is_set():
                    time.sleep(0.01)
                thread.join()
            assert told == [3.0]
            dist.barrier()

        ahbm.torch.spawn(worker, world_size=2, turns=turns, overrides=SMALL)
        assert shared.submit(dist.is_initialized).result() is False
