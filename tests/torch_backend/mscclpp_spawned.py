"""A script for NCCL that starts its own ranks, by the method that it is given."""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from mscclpp_program import compiled

import mscclpp


def worker(rank: int, world: int, port: str) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    mscclpp.ExecutionPlanRegistry().register_plan(compiled(rank, world))
    dist.init_process_group("nccl")
    x = torch.full((1 << 10,), rank + 1.0)
    dist.all_reduce(x)
    assert x.eq(world * (world + 1) // 2).all()
    dist.destroy_process_group()
    # One write: under torchrun nothing is buffered, and print writes the end of the line by itself.
    print(f"rank {rank} of {sys.argv[2]} is done\n", end="", flush=True)


if __name__ == "__main__":
    mp.start_processes(worker, (2, sys.argv[1]), nprocs=2, start_method=sys.argv[2])
