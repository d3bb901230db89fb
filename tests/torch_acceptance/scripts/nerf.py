"""In the style of nerf-pytorch: rays of a pose, an encoding of positions, densities that are summed along the rays."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
H = W = 8


def get_rays(c2w, focal=10.0):
    i, j = torch.meshgrid(torch.linspace(0, W - 1, W), torch.linspace(0, H - 1, H), indexing="ij")
    i, j = i.t(), j.t()
    dirs = torch.stack([(i - W * 0.5) / focal, -(j - H * 0.5) / focal, -torch.ones_like(i)], -1)
    rays_d = torch.sum(dirs[..., None, :] * c2w[:3, :3], -1)
    return c2w[:3, -1].expand(rays_d.shape).to(device), rays_d.to(device)


def encode(x, freqs=4):
    bands = 2.0 ** torch.arange(freqs, device=x.device)
    return torch.cat([x, *(fn(x * b) for b in bands for fn in (torch.sin, torch.cos))], -1)


model = nn.Sequential(nn.Linear(27, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
target = torch.rand(H, W, 3, device=device)
for step in range(4):
    rays_o, rays_d = get_rays(torch.eye(4)[:3])
    z = torch.linspace(2.0, 6.0, 12, device=device).expand(H, W, 12).clone()
    z = z + torch.rand(z.shape, device=device) * (4.0 / 12)
    pts = rays_o[..., None, :] + rays_d[..., None, :] * z[..., :, None]
    raw = torch.cat([model(encode(chunk)) for chunk in pts.reshape(-1, 3).split(256)]).view(H, W, 12, 4)
    dists = torch.cat([z[..., 1:] - z[..., :-1], torch.full((H, W, 1), 1e10, device=device)], -1)
    alpha = 1.0 - torch.exp(-F.relu(raw[..., 3]) * dists)
    trans = torch.cumprod(torch.cat([torch.ones((H, W, 1), device=device), 1.0 - alpha + 1e-10], -1), -1)[..., :-1]
    rgb = torch.sum((alpha * trans)[..., None] * torch.sigmoid(raw[..., :3]), -2)
    loss = F.mse_loss(rgb, target)
    psnr = -10.0 * torch.log(loss) / torch.log(torch.tensor([10.0], device=device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for group in optimizer.param_groups:
        group["lr"] *= 0.9
    print(f"loss {loss.item():.17g}")
    print(f"[TRAIN] Iter: {step} PSNR: {psnr.item():.3f}")
