"""In the style of PyTorch's tutorials on function transforms: gradients per sample, ensembles, a Jacobian."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, jacrev, stack_module_state, vmap

torch.manual_seed(0)
device = "cuda"
model = nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 3)).to(device)
data, targets = torch.randn(6, 10, device=device), torch.randint(0, 3, (6,), device=device)
params = {k: v.detach() for k, v in model.named_parameters()}
buffers = {k: v.detach() for k, v in model.named_buffers()}


def compute_loss(params, buffers, sample, target):
    predictions = functional_call(model, (params, buffers), (sample.unsqueeze(0),))
    return F.cross_entropy(predictions, target.unsqueeze(0))


for step in range(3):
    grads = vmap(grad(compute_loss), in_dims=(None, None, 0, 0))(params, buffers, data, targets)
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)
    clip = (1.0 / (norms + 1e-6)).clamp(max=1.0)
    params = {k: v - 0.1 * torch.einsum("b,b...->...", clip, grads[k]) / 6 for k, v in params.items()}
    losses = vmap(compute_loss, in_dims=(None, None, 0, 0))(params, buffers, data, targets)
    print(f"loss {losses.mean().item():.17g}")
models = [nn.Linear(10, 3).to(device) for _ in range(3)]
stacked, empty = stack_module_state(models)
out = vmap(lambda p, b, x: functional_call(models[0], (p, b), (x,)), in_dims=(0, 0, None))(stacked, empty, data)
print(f"loss {out.sum().item():.17g}")
print(f"loss {jacrev(lambda x: model(x).sum(0))(data).abs().sum().item():.17g}")
