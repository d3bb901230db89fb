"""In the style of PyTorch's examples, dcgan: two networks with an optimizer each."""

import torch
from torch import nn

device, nz, ngf, batch = torch.device("cuda"), 16, 8, 16


def weights_init(m):
    if m.__class__.__name__.find("Conv") != -1:
        torch.nn.init.normal_(m.weight, 0.0, 0.02)
    elif m.__class__.__name__.find("BatchNorm") != -1:
        torch.nn.init.normal_(m.weight, 1.0, 0.02)
        torch.nn.init.zeros_(m.bias)


torch.manual_seed(0)
netG = nn.Sequential(
    nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False), nn.BatchNorm2d(ngf * 2), nn.ReLU(True),
    nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False), nn.BatchNorm2d(ngf), nn.ReLU(True),
    nn.ConvTranspose2d(ngf, 3, 4, 2, 1, bias=False), nn.Tanh(),
).to(device).apply(weights_init)  # fmt: skip
netD = nn.Sequential(
    nn.Conv2d(3, ngf, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(ngf, ngf * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(ngf * 2), nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(ngf * 2, 1, 4, 1, 0, bias=False), nn.Sigmoid(),
).to(device).apply(weights_init)  # fmt: skip
criterion, fixed_noise = nn.BCELoss(), torch.randn(4, nz, 1, 1, device=device)
optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
for i in range(4):
    netD.zero_grad()
    real = torch.rand(batch, 3, 16, 16).to(device)
    label = torch.full((batch,), 1, dtype=real.dtype, device=device)
    errD_real = criterion(netD(real).view(-1, 1).squeeze(1), label)
    errD_real.backward()
    fake = netG(torch.randn(batch, nz, 1, 1, device=device))
    label.fill_(0)
    errD_fake = criterion(netD(fake.detach()).view(-1, 1).squeeze(1), label)
    errD_fake.backward()
    optimizerD.step()
    netG.zero_grad()
    label.fill_(1)
    errG = criterion(netD(fake).view(-1, 1).squeeze(1), label)
    errG.backward()
    optimizerG.step()
    print(f"[{i}] Loss_D: {(errD_real + errD_fake).item():.4f} Loss_G: {errG.item():.4f}")
    print(f"loss {errG.item():.17g}")
with torch.no_grad():
    netG(fixed_noise)
