"""In the style of PyTorch's examples, tensor_parallelism: inputs and outputs sharded along the sequence."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

if torch.accelerator.device_count() < 2:
    print("Unable to locate sufficient 2 gpus to run this example. Exiting.")
    sys.exit()


class ToyModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.in_proj, self.relu, self.out_proj = nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out_proj(self.relu(self.in_proj(x)))


world_size = int(os.environ["WORLD_SIZE"])
device_type = torch.accelerator.current_accelerator().type
device_mesh = init_device_mesh(device_type=device_type, mesh_shape=(world_size,))
rank = device_mesh.get_rank()
torch.manual_seed(0)
sp_model = parallelize_module(
    module=ToyModel().to(device_type),
    device_mesh=device_mesh,
    parallelize_plan={
        "in_proj": ColwiseParallel(input_layouts=Shard(0)),
        "out_proj": RowwiseParallel(output_layouts=Shard(0)),
    },
)
optimizer = torch.optim.AdamW(sp_model.parameters(), lr=0.25, foreach=True)
for i in range(4):
    torch.manual_seed(i + rank)
    inp = torch.rand(20, 10, device=device_type)
    output = sp_model(inp)
    loss = output.sum()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"loss {loss.item():.17g}")
dist.destroy_process_group()
