"""In the style of PyTorch's tutorial on saving memory: an optimizer per parameter, stepped as its gradient comes."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(*(nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(4))).cuda()
optimizer_dict = {p: torch.optim.Adam([p], foreach=False, lr=1e-2) for p in model.parameters()}


def optimizer_hook(parameter):
    optimizer_dict[parameter].step()
    optimizer_dict[parameter].zero_grad()


for p in model.parameters():
    p.register_post_accumulate_grad_hook(optimizer_hook)
for step in range(4):
    inputs = torch.rand(8, 32, device="cuda")
    loss = model(inputs).square().sum()
    loss.backward()
    print(f"loss {loss.item():.17g}")
    assert all(p.grad is None for p in model.parameters())
