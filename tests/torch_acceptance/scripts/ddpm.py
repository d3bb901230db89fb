"""In the style of denoising diffusion models: a small U-Net, noise at random times, an average of weights, sampling."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


class Res(nn.Module):
    def __init__(self, i, o, t):
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(4, i), nn.Conv2d(i, o, 3, padding=1)
        self.n2, self.c2 = nn.GroupNorm(4, o), nn.Conv2d(o, o, 3, padding=1)
        self.t, self.skip = nn.Linear(t, 2 * o), nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x, t):
        h = self.c1(F.silu(self.n1(x)))
        scale, shift = self.t(F.silu(t))[:, :, None, None].chunk(2, dim=1)
        return self.c2(F.silu(self.n2(h) * (scale + 1) + shift)) + self.skip(x)


class Unet(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.time, self.inp = (
            nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 32)),
            nn.Conv2d(3, w, 7, padding=3),
        )
        self.down, self.mid, self.up = Res(w, w, 32), Res(w, 2 * w, 32), Res(3 * w, w, 32)
        self.pool, self.final = nn.Conv2d(w, w, 4, 2, 1), nn.Conv2d(w, 3, 1)

    def forward(self, x, t):
        freqs = torch.exp(torch.arange(8, device=x.device) * -(math.log(10000) / 7))
        emb = t[:, None] * freqs[None]
        t = self.time(torch.cat((emb.sin(), emb.cos()), dim=-1))
        a = self.down(self.inp(x), t)
        b = self.mid(self.pool(a), t)
        b = F.interpolate(b, scale_factor=2, mode="nearest")
        return self.final(self.up(torch.cat((b, a), dim=1), t))


torch.manual_seed(0)
device, steps = "cuda", 50
betas = torch.linspace(1e-4, 0.02, steps, dtype=torch.float64)
alphas_cumprod = torch.cumprod(1.0 - betas, dim=0).to(torch.float32).to(device)
model = Unet().to(device)
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.995))
opt = torch.optim.Adam(model.parameters(), lr=8e-4, betas=(0.9, 0.99))
for step in range(3):
    x = torch.rand(4, 3, 16, 16, device=device) * 2 - 1
    t = torch.randint(0, steps, (4,), device=device).long()
    noise = torch.randn_like(x)
    a = alphas_cumprod.gather(-1, t).reshape(4, 1, 1, 1)
    loss = (
        F.mse_loss(model(a.sqrt() * x + (1 - a).sqrt() * noise, t), noise, reduction="none").mean(dim=(1, 2, 3)).mean()
    )
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
    ema.update_parameters(model)
    print(f"loss {loss.item():.17g}")
with torch.inference_mode():
    img = torch.randn(2, 3, 16, 16, device=device)
    for t in reversed(range(0, steps, 25)):
        pred = ema(img, torch.full((2,), t, device=device, dtype=torch.long))
        a = alphas_cumprod[t]
        img = ((img - (1 - a).sqrt() * pred) / a.sqrt()).clamp_(-1.0, 1.0)
print(f"loss {img.mean().item():.17g}")
