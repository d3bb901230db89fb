"""In the style of modded-nanogpt and airbench: Muon for matrices beside AdamW for the rest, two optimizers a step."""

import torch
import torch.nn.functional as F
from torch import nn


def zeropower_via_newtonschulz5(G, steps=3):
    a, b, c = (3.4445, -4.7750, 2.0315)
    X = G.bfloat16()
    X /= X.norm() + 1e-7
    if G.size(0) > G.size(1):
        X = X.T
    for _ in range(steps):
        A = X @ X.T
        X = a * X + (b * A + c * A @ A) @ X
    return X.T if G.size(0) > G.size(1) else X


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(p.grad)
                buf = state["momentum_buffer"]
                buf.lerp_(p.grad, 1 - group["momentum"])
                g = p.grad.lerp_(buf, group["momentum"])
                p.add_(zeropower_via_newtonschulz5(g).type_as(p), alpha=-group["lr"])


def norm(x):
    return F.rms_norm(x, (x.size(-1),))


class Net(nn.Module):
    def __init__(self, vocab=96, dim=48, layers=2):
        super().__init__()
        self.embed, self.lm_head = nn.Embedding(vocab, dim), nn.Linear(dim, vocab, bias=False)
        self.up = nn.ModuleList(nn.Linear(dim, 4 * dim, bias=False) for _ in range(layers))
        self.down = nn.ModuleList(nn.Linear(4 * dim, dim, bias=False) for _ in range(layers))
        self.scalars = nn.Parameter(torch.ones(layers))

    def forward(self, x, y):
        x = norm(self.embed(x))
        for i, (up, down) in enumerate(zip(self.up, self.down, strict=True)):
            x = x + self.scalars[i] * down(F.relu(up(norm(x))).square())
        logits = 15 * torch.tanh(self.lm_head(norm(x)) / 15)
        return F.cross_entropy(logits.view(-1, logits.size(-1)), y.view(-1))


torch.manual_seed(0)
model = Net().cuda()
hidden = [p for p in model.parameters() if p.ndim == 2 and p.size(0) not in (96,)]
rest = [p for p in model.parameters() if not any(p is q for q in hidden)]
optimizers = [torch.optim.Adam(rest, lr=3e-3, betas=(0.8, 0.95), fused=True), Muon(hidden)]
for step in range(5):
    x = torch.randint(0, 96, (4, 64), device="cuda")
    loss = model(x, x.roll(-1, 1))
    loss.backward()
    for opt in optimizers:
        opt.step()
    model.zero_grad(set_to_none=True)
    print(f"loss {loss.item():.17g}")
