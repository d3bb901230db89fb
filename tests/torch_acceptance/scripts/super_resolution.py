"""In the style of PyTorch's examples, super_resolution and fast_neural_style: shuffled pixels, Gram matrices."""

import torch
from torch import nn

torch.manual_seed(123)
device = torch.device("cuda")


class Net(nn.Module):
    def __init__(self, upscale_factor):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 5, 1, 2), nn.Conv2d(16, 16, 3, 1, 1)
        self.norm, self.pad = nn.InstanceNorm2d(16, affine=True), nn.ReflectionPad2d(1)
        self.conv3, self.shuffle = nn.Conv2d(16, upscale_factor**2, 3), nn.PixelShuffle(upscale_factor)
        nn.init.orthogonal_(self.conv2.weight, nn.init.calculate_gain("relu"))

    def forward(self, x):
        x = torch.relu(self.norm(self.conv2(torch.relu(self.conv1(x)))))
        return self.shuffle(self.conv3(self.pad(x)))


def gram_matrix(y):
    b, ch, h, w = y.size()
    features = y.view(b, ch, w * h)
    return features.bmm(features.transpose(1, 2)) / (ch * h * w)


model = Net(2).to(device)
features = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU()).to(device).requires_grad_(False)
optimizer = torch.optim.Adamax(model.parameters(), lr=1e-3)
for step in range(3):
    target = torch.rand(2, 1, 24, 24).to(device)
    small = nn.functional.interpolate(target, size=(12, 12), mode="bilinear", align_corners=False)
    out = model(small)
    loss = nn.functional.mse_loss(out, target) + nn.functional.l1_loss(
        gram_matrix(features(out)), gram_matrix(features(target))
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"loss {loss.item():.17g}")
