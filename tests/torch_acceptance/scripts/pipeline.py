"""In the style of PyTorch's tutorial on pipeline parallelism: a stage per rank, forward and backward in turn."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(rank)
device = torch.device("cuda")
dist.init_process_group(backend="nccl", rank=rank, world_size=world_size)
torch.manual_seed(0)
layers = [nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)) for _ in range(world_size)]
model = layers[rank].to(device)
stage = PipelineStage(model, rank, world_size, device)
schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=nn.MSELoss())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    torch.manual_seed(step)
    x, y = torch.randn(8, 16).to(device), torch.randn(8, 16).to(device)
    optimizer.zero_grad()
    losses = []
    if rank == 0:
        schedule.step(x)
    else:
        schedule.step(target=y, losses=losses)
        print(f"loss {torch.stack(losses).mean().item():.17g}", flush=True)
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
