"""In the style of PyTorch's tutorial on ZeroRedundancyOptimizer: the optimizer's state is split among the ranks."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

rank = int(os.environ["LOCAL_RANK"])
dist.init_process_group("nccl")
torch.cuda.set_device(rank)
torch.manual_seed(0)
model = nn.Sequential(*[nn.Linear(20, 20) for _ in range(6)]).to(rank)
ddp_model = DDP(model, device_ids=[rank])
loss_fn = nn.MSELoss()
optimizer = ZeroRedundancyOptimizer(ddp_model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
for step in range(4):
    torch.manual_seed(100 * step + rank)
    outputs = ddp_model(torch.randn(10, 20).to(rank))
    loss = loss_fn(outputs, torch.randn(10, 20).to(rank))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"loss {loss.item():.17g}")
total = torch.stack([p.abs().sum() for p in model.parameters()]).sum()
if rank == 0:
    print(f"loss {total.item():.17g}")
dist.destroy_process_group()
