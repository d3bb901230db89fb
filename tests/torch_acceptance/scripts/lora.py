"""In the style of PEFT: low-rank updates of frozen weights, with activations computed again on the way back."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class LoRALinear(nn.Module):
    def __init__(self, base, r=4, alpha=8):
        super().__init__()
        self.base, self.scaling = base.requires_grad_(False), alpha / r
        self.lora_A = nn.Parameter(torch.randn(r, base.in_features) * 0.02)
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, r))

    def forward(self, x):
        return self.base(x) + (x @ self.lora_A.T @ self.lora_B.T) * self.scaling


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        return x + self.down(nn.functional.silu(self.up(self.norm(x))))


torch.manual_seed(0)
model = nn.Sequential(*(Block(32) for _ in range(3)), nn.Linear(32, 8))
for block in model[:-1]:
    block.up, block.down = LoRALinear(block.up), LoRALinear(block.down)
for name, p in model.named_parameters():
    p.requires_grad = "lora" in name or name.startswith("3.")
model.to("cuda")
trainable = [p for p in model.parameters() if p.requires_grad]
print(f"trainable: {sum(p.numel() for p in trainable)} of {sum(p.numel() for p in model.parameters())}")
optimizer = torch.optim.AdamW(trainable, lr=1e-2)
for step in range(4):
    x, y = torch.randn(16, 32).to("cuda"), torch.randint(0, 8, (16,)).to("cuda")
    h = x
    for block in model[:-1]:
        h = checkpoint(block, h, use_reentrant=False)
    loss = nn.functional.cross_entropy(model[-1](h), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss {loss.item():.17g}")
