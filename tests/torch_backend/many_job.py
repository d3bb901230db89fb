"""Layers of GPUs' own kernels over ranks: batch norm that ranks share, sparse gradients, recurrent layers, graphs."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
device = torch.device("cuda", rank)
torch.manual_seed(0)
rows = torch.randn(4, 3, 5, 5)
weights = torch.arange(5.0)

own, whole = nn.SyncBatchNorm(3).to(device), nn.BatchNorm2d(3)
mine, everything = rows[2 * rank : 2 * rank + 2].to(device).requires_grad_(), rows.clone().requires_grad_()
out = own(mine)
(out * weights.to(device)).sum().backward()
wanted = whole(everything)
(wanted * weights).sum().backward()
part = slice(2 * rank, 2 * rank + 2)
assert out.device == device and mine.grad is not None and everything.grad is not None
for got, want in (
    (out, wanted[part]),
    (mine.grad, everything.grad[part]),
    (own.running_mean, whole.running_mean),
    (own.running_var, whole.running_var),
):
    torch.testing.assert_close(got.detach().cpu(), want.detach())

given = torch.sparse_coo_tensor(torch.tensor([[rank, 2]]), torch.tensor([1.0, 2.0]), (4,), device=device)
dist.all_reduce(given)
assert given.device == device and given.to_dense().tolist() == [1, 1, 4, 0]
table = DDP(nn.Embedding(10, 4, sparse=True).to(device), device_ids=[rank])
table(torch.tensor([rank, 2], device=device)).sum().backward()
grad = table.module.weight.grad
assert grad.is_sparse and grad.device == device and grad.to_dense()[:3, 0].tolist() == [0.5, 0.5, 1]
layer = DDP(nn.LSTM(4, 4).to(device), device_ids=[rank])
layer(torch.ones(3, 2, 4, device=device))[0].sum().backward()
assert layer.module.weight_ih_l0.grad.device == device

x = torch.ones(4, device=device)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    total = x * 2
    dist.all_reduce(total)
    total = total + 1
x.fill_(3)
graph.replay()
assert total.tolist() == [13] * 4
dist.destroy_process_group()
print("all is there")
