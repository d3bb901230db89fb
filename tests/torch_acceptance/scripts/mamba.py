"""In the style of mamba-minimal: a state space whose steps depend on the input, a convolution that looks back."""

import torch
import torch.nn.functional as F
from torch import nn


class MambaBlock(nn.Module):
    def __init__(self, dim, state=4, conv=3):
        super().__init__()
        inner, self.rank = 2 * dim, 2
        self.in_proj = nn.Linear(dim, 2 * inner, bias=False)
        self.conv1d = nn.Conv1d(inner, inner, conv, groups=inner, padding=conv - 1)
        self.x_proj, self.dt_proj = nn.Linear(inner, self.rank + 2 * state, bias=False), nn.Linear(self.rank, inner)
        self.A_log = nn.Parameter(torch.log(torch.arange(1, state + 1).float().repeat(inner, 1)))
        self.D, self.out_proj, self.state = nn.Parameter(torch.ones(inner)), nn.Linear(inner, dim, bias=False), state

    def forward(self, x):
        b, length, _ = x.shape
        x, res = self.in_proj(x).chunk(2, dim=-1)
        x = F.silu(self.conv1d(x.transpose(1, 2))[:, :, :length].transpose(1, 2))
        delta, B, C = self.x_proj(x).split([self.rank, self.state, self.state], dim=-1)
        delta, A = F.softplus(self.dt_proj(delta)), -torch.exp(self.A_log.float())
        deltaA = torch.exp(torch.einsum("bld,dn->bldn", delta, A))
        deltaB_u = torch.einsum("bld,bln,bld->bldn", delta, B, x)
        h, ys = torch.zeros((b, x.size(-1), self.state), device=deltaA.device), []
        for i in range(length):
            h = deltaA[:, i] * h + deltaB_u[:, i]
            ys.append(torch.einsum("bdn,bn->bd", h, C[:, i, :]))
        y = torch.stack(ys, dim=1) + x * self.D
        return self.out_proj(y * F.silu(res))


class Mamba(nn.Module):
    def __init__(self, vocab=40, dim=16, layers=2):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.layers, self.norms = (
            nn.ModuleList(MambaBlock(dim) for _ in range(layers)),
            nn.ModuleList(nn.RMSNorm(dim) for _ in range(layers + 1)),
        )

    def forward(self, ids):
        x = self.embedding(ids)
        for layer, norm in zip(self.layers, self.norms, strict=False):
            x = layer(norm(x)) + x
        return self.norms[-1](x) @ self.embedding.weight.T


torch.manual_seed(0)
model = Mamba().to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(3):
    ids = torch.randint(0, 40, (3, 11), device="cuda")
    logits = model(ids[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, 40), ids[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"loss {loss.item():.17g}")
