"""In the style of hlb-CIFAR10: data on the device, half precision, fancy indexing, an average of weights."""

import copy
import os
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

batchsize, default_dtype, scaling = 32, torch.bfloat16, 1 / 9
path = os.path.join(tempfile.mkdtemp(), "data.pt")
torch.manual_seed(0)
if not os.path.exists(path):
    images = torch.rand(128, 3, 32, 32, device="cuda")
    std, mean = torch.std_mean(images, dim=(0, 2, 3))
    images = images.sub(mean.view(1, -1, 1, 1)).div(std.view(1, -1, 1, 1)).to(default_dtype)
    torch.save(
        {"images": F.pad(images, (2,) * 4, "reflect"), "targets": torch.randint(0, 10, (128,), device="cuda")}, path
    )
data = torch.load(path)


class ConvGroup(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.pool1 = nn.MaxPool2d(2)
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, padding="same", bias=False)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding="same", bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(channels_out), nn.BatchNorm2d(channels_out)
        self.activ = nn.GELU()

    def forward(self, x):
        x = self.activ(self.norm1(self.pool1(self.conv1(x))))
        return self.activ(self.norm2(self.conv2(x)))


class SpeedyConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.initial = nn.Conv2d(3, 8, 2, bias=False)
        self.groups = nn.Sequential(ConvGroup(8, 16), ConvGroup(16, 32))
        self.linear = nn.Linear(32, 10, bias=False)

    def forward(self, x):
        x = self.groups(F.gelu(self.initial(x)))
        return self.linear(torch.amax(x, dim=(2, 3))) * scaling


def make_random_square_masks(inputs, size):
    in_shape = inputs.shape
    y = torch.randint(0, in_shape[-2] - size + 1, (in_shape[0],), device=inputs.device)
    x = torch.randint(0, in_shape[-1] - size + 1, (in_shape[0],), device=inputs.device)
    rows = torch.arange(in_shape[-2], device=inputs.device).view(1, -1) - y.view(-1, 1)
    cols = torch.arange(in_shape[-1], device=inputs.device).view(1, -1) - x.view(-1, 1)
    rows, cols = (rows >= 0) * (rows < size), (cols >= 0) * (cols < size)
    return (rows[:, None, :, None] * cols[:, None, None, :]).expand(in_shape)


@torch.no_grad()
def get_batches(crop_size=32):
    shuffled = torch.randperm(len(data["images"]), device="cuda")
    crop = make_random_square_masks(data["images"], crop_size)
    cropped = torch.masked_select(data["images"], crop).view(-1, 3, crop_size, crop_size)
    flip = torch.rand(len(cropped), device="cuda") < 0.5
    cropped[flip] = cropped[flip].flip(-1)
    for at in range(len(shuffled) // batchsize):
        idx = shuffled[at * batchsize : (at + 1) * batchsize]
        yield cropped.index_select(0, idx), data["targets"].index_select(0, idx)


net = SpeedyConvNet().to("cuda").to(memory_format=torch.channels_last).to(default_dtype)
ema = copy.deepcopy(net).eval().requires_grad_(False)
loss_fn = nn.CrossEntropyLoss(label_smoothing=0.2, reduction="none")
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.85, nesterov=True, weight_decay=1e-4)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.1, total_steps=8)
starter, ender = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
for epoch in range(2):
    torch.cuda.synchronize()
    starter.record()
    net.train()
    for inputs, targets in get_batches():
        outputs = net(inputs.contiguous(memory_format=torch.channels_last))
        loss = loss_fn(outputs.float(), targets).mul(1.0 / batchsize).sum()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        with torch.no_grad():
            for e, p in zip(ema.state_dict().values(), net.state_dict().values(), strict=True):
                if e.dtype == default_dtype:
                    e *= 0.95
                    e += p * 0.05
        print(f"loss {loss.item():.17g}")
    ender.record()
    torch.cuda.synchronize()
    with torch.no_grad():
        acc = (ema(data["images"][:32]).argmax(-1) == data["targets"][:32]).float().mean()
    print(f"{epoch} {acc:.4f} {starter.elapsed_time(ender):.3f}")
