"""In the style of older research code: nn.DataParallel around whatever there is."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 36, 4))
if torch.cuda.is_available():
    model = nn.DataParallel(model)
    model.cuda()
criterion = nn.CrossEntropyLoss().cuda()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
for step in range(3):
    images, labels = torch.rand(8, 3, 8, 8), torch.randint(0, 4, (8,))
    images, labels = images.cuda(), labels.cuda(non_blocking=True)
    loss = criterion(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"loss {loss.item():.17g}")
state = {"state_dict": model.state_dict()}
assert all(key.startswith("module.") for key in state["state_dict"])
