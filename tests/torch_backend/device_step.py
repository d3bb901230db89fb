"""Steps of a model on a device that is not there: what torch counts, and what its kernels take."""

import sys

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

width = int(sys.argv[1])
net = (
    nn.Sequential(nn.Linear(width, width, bias=False), nn.ReLU(), nn.Linear(width, width, bias=False)).cuda().bfloat16()
)
picture = nn.Conv2d(3, 4, 3).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def step() -> None:
    net(torch.ones(width, width, device="cuda", dtype=torch.bfloat16)).sum().backward()
    query = torch.randn(1, 2, 16, 8, device="cuda", requires_grad=True)
    nn.functional.scaled_dot_product_attention(query, query, query).sum().backward()
    picture(torch.randn(1, 3, 8, 8, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


with FlopCounterMode(display=False) as counted:
    step()
from ahbm.torch.device.meter import meter

assert meter.flops == counted.get_total_flops() > 10 * width**3, (meter.flops, counted.get_total_flops())
step()
step()
