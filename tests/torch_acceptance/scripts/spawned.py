"""In the style of PyTorch's tutorial on DDP: a process per device, by torch.multiprocessing."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def demo(rank: int, world_size: int, port: str) -> None:
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", port
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 5)).to(rank)
    ddp_model = DDP(model, device_ids=[rank], output_device=rank)
    optimizer = torch.optim.Adam(ddp_model.parameters(), lr=1e-2)
    for step in range(4):
        torch.manual_seed(step + rank)
        loss = nn.functional.mse_loss(ddp_model(torch.randn(20, 10)), torch.randn(20, 5).to(rank))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"loss {loss.item():.17g}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    n_gpus = torch.cuda.device_count() or 2
    assert n_gpus >= 1, f"Requires at least 2 GPUs to run, but got {n_gpus}"
    mp.spawn(demo, args=(2, os.environ.get("MASTER_PORT", "29571")), nprocs=2, join=True)
