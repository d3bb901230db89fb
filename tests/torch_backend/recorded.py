"""A job for torchrun: some of everything, on the backend and into the trace that the arguments name."""

import sys

import torch
import torch.distributed as dist
from jobs import end
from torch.distributed import _functional_collectives as functional
from torch.nn.parallel import DistributedDataParallel

import ahbm.torch

backend, prefix = sys.argv[1:]
recorder = ahbm.torch.record(prefix)
dist.init_process_group(backend)
rank, n = dist.get_rank(), dist.get_world_size()
dist.all_reduce(torch.ones(5))  # before `with`: not part of it
with recorder:
    x = torch.ones(3)
    dist.all_reduce(x)
    assert torch.equal(functional.all_reduce(x, "max", dist.group.WORLD) + 1, x + 1)
    net = DistributedDataParallel(torch.nn.Linear(4, 4))
    for _ in range(20):
        net(torch.ones(2, 4)).sum().backward()
    sent, got = torch.full((2,), float(rank)), torch.zeros(2)
    batch = [dist.P2POp(dist.isend, sent, (rank + 1) % n), dist.P2POp(dist.irecv, got, (rank - 1) % n)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    assert torch.equal(got, torch.full((2,), float((rank - 1) % n)))
    pair = dist.new_group([0, 1])
    if rank < 2:
        dist.all_reduce(x, dist.ReduceOp.MAX, group=pair, async_op=True).wait()
        dist.broadcast(x.half(), 1, group=pair)
    split = dist.split_group(split_ranks=[[1, 0]])
    if rank < 2:
        dist.broadcast(x, group=split, group_src=0)
        for work in dist.batch_isend_irecv([dist.P2POp([dist.isend, dist.irecv][rank], sent, 1 - rank, group=split)]):
            work.wait()
        parts = dist.split_group(split, [[0], [1]])
        dist.all_reduce(x, group=parts)
    out = torch.zeros(n * 3)
    dist.all_gather_into_tensor(out, x)
    dist.reduce_scatter_tensor(torch.zeros(3), out)
    dist.all_to_all_single(torch.zeros(n), torch.ones(n))
    dist.all_to_all_single(
        torch.zeros(n * (rank + 1)), torch.zeros(n * (n + 1) // 2), n * [rank + 1], list(range(1, n + 1))
    )
    dist.reduce(x, 1)
    dist.barrier()
    if rank == 0:
        assert dist.recv(got) == 1
    elif rank == 1:
        dist.send(sent, 0)
    objects: list[object] = [None] * n
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(n)]
    dist.scatter(got, [sent] * n if rank == 0 else None, src=0)
    dist.gather(got, [torch.zeros(2) for _ in range(n)] if rank == 0 else None, dst=0)
dist.all_reduce(torch.ones(5))  # nor is what comes after
dist.destroy_process_group()
if backend == "gloo":
    end()
