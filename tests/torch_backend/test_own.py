"""Ranks that are threads have of their own what torch keeps once per process."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install .[torch]")

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import loss_parallel

import ahbm.torch

SMALL = {"sip.cube_mesh.w": 2, "sip.cube_mesh.h": 1}


@pytest.mark.parametrize("turns", [True, False], ids=["turns", "free"])
def test_shards_of_unequal_size_are_redistributed_on_a_mesh_of_two_dimensions(turns: bool) -> None:
    plans = [
        ((Shard(0), Shard(0)), (Replicate(), Replicate())),
        ((Shard(0), Shard(0)), (Shard(0), Shard(1))),
        ((Shard(0), Shard(1)), (Shard(1), Shard(1))),
    ]

    def worker() -> None:
        dist.init_process_group("ahbm")
        mesh = init_device_mesh("cpu", (2, 2))
        for shape in ((7, 1), (7, 5), (3, 3)):
            whole = torch.arange(float(shape[0] * shape[1])).reshape(shape)
            for start, end in plans:
                there = distribute_tensor(whole, mesh, start).redistribute(mesh, end)
                assert torch.equal(there.full_tensor(), whole), (shape, start, end)

    for _ in range(2):
        ahbm.torch.spawn(worker, world_size=4, turns=turns, overrides=SMALL)


def test_a_rank_that_leaves_loss_parallel_leaves_the_others_in() -> None:
    before = dict(DTensor._op_dispatcher._custom_op_handlers)

    def worker(rank: int) -> float:
        dist.init_process_group("ahbm")
        mesh = init_device_mesh("cpu", (2,))
        logits = distribute_tensor(torch.ones(4, 8), mesh, [Shard(1)]).requires_grad_()
        with loss_parallel():
            assert len(DTensor._op_dispatcher._custom_op_handlers) > len(before)
            loss = torch.nn.functional.cross_entropy(logits, torch.arange(4))
            loss.backward()
            if rank == 1:
                dist.barrier()
        assert before == DTensor._op_dispatcher._custom_op_handlers
        if rank == 0:
            dist.barrier()
        return float(loss.full_tensor())

    first, second = ahbm.torch.spawn(worker, world_size=2, overrides=SMALL)
    assert first == second == pytest.approx(2.0794415)
    assert before == DTensor._op_dispatcher._custom_op_handlers


def test_ranks_take_the_state_of_their_sharded_optimizers_at_once() -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    def worker() -> int:
        dist.init_process_group("ahbm")
        model = FullyShardedDataParallel(torch.nn.Linear(8, 8), device_id=torch.device("cpu"), use_orig_params=True)
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
        return len(FullyShardedDataParallel.optim_state_dict(model, optimizer)["state"])

    assert ahbm.torch.spawn(worker, world_size=2, overrides=SMALL) == [2, 2]
