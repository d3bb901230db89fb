"""A job whose ranks compile functions that communicate, and a model under DistributedDataParallel."""

from __future__ import annotations

import sys
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ahbm.torch

recorder = ahbm.torch.record(sys.argv[1], compute="none") if len(sys.argv) > 1 else None
dist.init_process_group("ahbm")
rank, n = dist.get_rank(), dist.get_world_size()


def broadcast(x: torch.Tensor) -> torch.Tensor:
    dist.broadcast(x, 0)
    return x + 1


def later(x: torch.Tensor) -> torch.Tensor:
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    return x + 1


def barrier(x: torch.Tensor) -> torch.Tensor:
    dist.barrier()
    return x + 1


def exchange(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(4)
    ops = [dist.P2POp(dist.isend, x, (rank + 1) % n), dist.P2POp(dist.irecv, out, (rank - 1) % n)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return out


def scatter(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(2)
    dist.scatter(out, list(x.chunk(2)) if rank == 0 else None, 0)
    return out


for function in (broadcast, later, barrier, exchange, scatter):
    x = torch.arange(4.0) + rank
    want = function(x.clone())
    assert torch.equal(torch.compile(function, backend="eager")(x.clone()), want), function

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
grads = []
for compiles in (False, True):
    net.zero_grad()
    model = DistributedDataParallel(net)
    step = torch.compile(model, backend="eager") if compiles else model
    with recorder if compiles and recorder is not None else nullcontext():
        step(torch.ones(4, 8) * rank).sum().backward()
    grads.append(net[0].weight.grad.clone())
assert torch.equal(*grads)
dist.destroy_process_group()
