"""One process on two devices that are not there: nn.DataParallel trains as on one."""

from __future__ import annotations

import torch
import torch.cuda.comm
from torch import nn


def net() -> nn.Module:
    """The same weights every time."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8, affine=False), nn.ReLU(), nn.Linear(8, 2)).cuda().eval()


given = torch.randn(6, 4, generator=torch.Generator().manual_seed(1)).cuda().requires_grad_()
alone, parallel = net(), nn.DataParallel(net())
assert parallel.device_ids == [0, 1]
results = []
for model in (alone, parallel):
    given.grad = None
    out = model(given)
    out.square().sum().backward()
    assert out.device == torch.device("cuda:0") and given.grad is not None
    results.append([out, given.grad, *(each.grad for each in model.parameters())])
for one, other in zip(*results, strict=True):
    torch.testing.assert_close(one, other)
assert list(parallel.state_dict()) == [f"module.{name}" for name in alone.state_dict()]

parts = torch.cuda.comm.scatter(torch.arange(5.0), [0, 1], [2, 3])
assert [str(part.device) for part in parts] == ["cuda:0", "cuda:1"] and parts[1].tolist() == [2, 3, 4]
assert torch.cuda.comm.gather(parts, destination=1).device.index == 1
assert torch.cuda.comm.reduce_add([torch.ones(2, device=at) for at in range(2)], 1).tolist() == [2, 2]
ones = [torch.full((2,), at + 1.0, device=at) for at in range(2)]
torch.cuda.nccl.all_reduce(ones)
assert [one.tolist() for one in ones] == [[3, 3], [3, 3]] and ones[1].device.index == 1
print("all is there")
