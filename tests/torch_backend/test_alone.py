"""One rank of a large world."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install .[torch]")

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._composable.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import ahbm.torch
from ahbm.errors import DistributedError, UnsupportedError

PLAIN = {"sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1}


@pytest.mark.parametrize("rank", [0, 5])
def test_uniform_ranks(rank: int) -> None:
    ahbm.torch.init_alone(rank, 64, overrides=PLAIN)
    try:
        x = torch.arange(4.0)
        dist.all_reduce(x)
        assert torch.equal(x, 64 * torch.arange(4.0))
        out = torch.zeros(64, 2)
        dist.all_gather_into_tensor(out, torch.tensor([1.0, 2.0]))
        assert torch.equal(out, torch.tensor([1.0, 2.0]).repeat(64, 1))
        groups = [dist.new_group(range(i, 64, 4)) for i in range(4)]
        part = torch.zeros(1)
        dist.reduce_scatter_tensor(part, torch.arange(16.0), group=groups[rank % 4])
        assert part.item() == 16 * dist.get_group_rank(groups[rank % 4], rank)
        chunks = torch.zeros(64)
        dist.all_to_all_single(chunks, torch.arange(64.0))
        assert torch.equal(chunks, torch.full((64,), float(rank)))
        with pytest.raises(UnsupportedError, match="AHBM-U152"):
            dist.send(x, (rank + 1) % 64)
        with pytest.raises(DistributedError, match="would send it 1 elements each"):
            dist.all_to_all_single(torch.zeros(65), torch.zeros(64), [2] + 63 * [1], 64 * [1])
        for bad in (-1, 64):
            with pytest.raises(DistributedError, match=f"AHBM-X131 broadcast: root={bad} is no rank of group WORLD"):
                dist.broadcast(x, group_src=bad)
            with pytest.raises(DistributedError, match=f"AHBM-X131 dst={bad} is no rank of group WORLD"):
                dist.send(x, group_dst=bad)
        x.resize_(8)
        for hook in (None, dist.BuiltinCommHookType.FP16_COMPRESS):
            net = DistributedDataParallel(torch.nn.Linear(3, 3))
            if hook is not None:
                net._register_builtin_comm_hook(hook)
            net(torch.ones(1, 3)).sum().backward()
            assert torch.equal(net.module.bias.grad, torch.ones(3))
    finally:
        dist.destroy_process_group()


def test_its_time_is_that_of_all_ranks() -> None:
    def time_of(size: int) -> float:
        return ahbm.run("all_reduce", bytes_per_rank=size, dtype="f32", overrides=everywhere, data=False).latency_ns

    everywhere = {**PLAIN, "system.sips.count": 16}
    ahbm.torch.init_alone(0, 16, overrides=PLAIN)
    try:
        with dist.distributed_c10d._time_estimator() as estimated:
            dist.all_reduce(torch.ones(256))
        assert estimated.estimated_time == time_of(1024) / 1000
    finally:
        dist.destroy_process_group()


def test_tensors_without_data() -> None:
    """FakeTensorMode and the meta device: shapes, and the times of tensors with data."""

    def times(kind: AbstractContextManager[object], device: str) -> list[int]:
        ahbm.torch.init_alone(0, 8, overrides=PLAIN)
        try:
            with kind, torch.device(device):
                x, out = torch.ones(16), torch.ones(8, 16)
                dist.all_reduce(x)
                dist.all_reduce(x.to(torch.bfloat16).unsqueeze(0).t(), dist.ReduceOp.AVG)
                dist.all_gather_into_tensor(out, x)
                dist.all_gather(list(out.unbind()), x)
                dist.reduce_scatter_tensor(x, out)
                dist.reduce_scatter(x, list(out.unbind()))
                dist.all_to_all_single(out, out)
                dist.all_to_all(list(out.unbind()), list(out.unbind()))
                dist.gather(x, list(out.unbind()), 0)
                dist.scatter(x, list(out.unbind()), 0)
                dist.reduce(x, 3)
                work = dist.broadcast(x, 0, async_op=True)
                assert work is not None and work.wait() and work.result()[0] is x
                assert x.shape == (16,) and out.shape == (8, 16)
            world = dist.group.WORLD
            assert world is not None
            return [end for _, _, end in world._place.seat.ledger.times().calls[0]]
        finally:
            dist.destroy_process_group()

    real = times(nullcontext(), "cpu")
    assert len(real) == 12 and real == sorted(real)
    assert times(FakeTensorMode(), "cpu") == times(nullcontext(), "meta") == real


def test_tensors_without_data_among_ranks_that_move_data() -> None:
    def worker() -> float:
        dist.init_process_group("ahbm")
        x = torch.ones(256, device="meta")
        with dist.distributed_c10d._time_estimator() as estimated:
            dist.all_reduce(x)
        with pytest.raises(UnsupportedError, match="AHBM-U153"):
            dist.all_reduce(x)
        time: float = estimated.estimated_time
        return time

    (us, _) = ahbm.torch.spawn(worker, overrides=PLAIN)
    assert isinstance(us, float) and us > 0


def test_fsdp2_without_data() -> None:
    ahbm.torch.init_alone(0, 64, overrides=PLAIN)
    try:
        mesh = init_device_mesh("cpu", (64,))
        with FakeTensorMode(allow_non_fake_inputs=True):
            net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Linear(256, 256))
            fully_shard(net, mesh=mesh)
            net(torch.ones(2, 256)).sum().backward()
        names = [made.record.collective for made in dist.group.WORLD._place.seat.ledger.performed[0]]
        assert {"all_gather", "reduce_scatter"} <= set(names)
    finally:
        dist.destroy_process_group()
