"""One rank of a large world."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install .[torch]")

import torch
import torch.distributed as dist
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
        group = dist.new_group(range(0, 64, 5))
        if rank % 5 == 0:
            part = torch.zeros(1)
            dist.reduce_scatter_tensor(part, torch.arange(13.0), group=group)
            assert part.item() == 13 * dist.get_group_rank(group, rank)
        chunks = torch.zeros(64)
        dist.all_to_all_single(chunks, torch.arange(64.0))
        assert torch.equal(chunks, torch.full((64,), float(rank)))
        with pytest.raises(UnsupportedError, match="AHBM-U152"):
            dist.send(x, (rank + 1) % 64)
        with pytest.raises(DistributedError, match="would send it 1 elements each"):
            dist.all_to_all_single(torch.zeros(65), torch.zeros(64), [2] + 63 * [1], 64 * [1])
        net = DistributedDataParallel(torch.nn.Linear(3, 3))
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
