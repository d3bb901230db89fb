"""In the style of PyTorch's examples, vae: the trick of reparametrization, and a sum of two losses."""

import torch
from torch import nn, optim
from torch.nn import functional as F


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(784, 40), nn.Linear(40, 5), nn.Linear(40, 5)
        self.fc3, self.fc4 = nn.Linear(5, 40), nn.Linear(40, 784)

    def forward(self, x):
        h = F.relu(self.fc1(x.view(-1, 784)))
        mu, logvar = self.fc21(h), self.fc22(h)
        std = torch.exp(0.5 * logvar)
        z = mu + torch.randn_like(std) * std
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar


torch.manual_seed(1)
accel = torch.accelerator.is_available()
device = torch.accelerator.current_accelerator() if accel else torch.device("cpu")
model = VAE().to(device)
optimizer = optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(2):
    for _ in range(3):
        data = torch.rand(16, 1, 28, 28).to(device)
        optimizer.zero_grad()
        recon, mu, logvar = model(data)
        BCE = F.binary_cross_entropy(recon, data.view(-1, 784), reduction="sum")
        loss = BCE - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        loss.backward()
        optimizer.step()
        print(f"loss {loss.item():.17g}")
    with torch.no_grad():
        sample = torch.randn(8, 5).to(device)
        torch.sigmoid(model.fc4(F.relu(model.fc3(sample)))).cpu()
