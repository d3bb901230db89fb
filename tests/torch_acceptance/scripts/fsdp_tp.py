"""In the style of PyTorch's examples, tensor_parallelism: FSDP across, tensor and sequence parallel within nodes."""

import os
import sys

import torch
import torch.distributed as dist
from tiny_llama import Transformer
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

if not torch.cuda.is_available() or torch.cuda.device_count() < 4:
    print("Unable to locate sufficient 4 gpus to run this example. Exiting.")
    sys.exit()

tp_size = 2
world_size = int(os.environ["WORLD_SIZE"])
device_mesh = init_device_mesh("cuda", (world_size // tp_size, tp_size), mesh_dim_names=("dp", "tp"))
tp_mesh, dp_mesh = device_mesh["tp"], device_mesh["dp"]
dp_rank = dp_mesh.get_local_rank()
torch.manual_seed(0)
model = Transformer().to("cuda")
model = parallelize_module(
    model,
    tp_mesh,
    {
        "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    },
)
for block in model.layers:
    plan = {
        "attention_norm": SequenceParallel(),
        "attention": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),
        **{f"attention.{name}": ColwiseParallel() for name in ("wq", "wk", "wv")},
        "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
        "ffn_norm": SequenceParallel(),
        "feed_forward": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),
        "feed_forward.w1": ColwiseParallel(),
        "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
        "feed_forward.w3": ColwiseParallel(),
    }
    block.attention.n_heads //= tp_mesh.size()
    parallelize_module(block, tp_mesh, plan)
sharded_model = FSDP(model, device_mesh=dp_mesh, use_orig_params=True)
optimizer = torch.optim.AdamW(sharded_model.parameters(), lr=3e-3, foreach=True)
for i in range(3):
    torch.manual_seed(i + dp_rank)
    inp = torch.randint(256, (4, 32), device="cuda")
    loss = sharded_model(inp).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        print(f"loss {loss.item():.17g}")
