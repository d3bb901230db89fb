"""In the style of PyTorch's tutorial on knowledge distillation: a frozen teacher, soft targets, features by hooks."""

import torch
import torch.nn.functional as F
from torch import nn


def network(width):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(width * 64, 10)
    )


torch.manual_seed(42)
device = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"
teacher, student = network(16).to(device).eval(), network(4).to(device)
features = {}
teacher[1].register_forward_hook(lambda m, i, o: features.__setitem__("teacher", o.detach()))
student[1].register_forward_hook(lambda m, i, o: features.__setitem__("student", o))
regressor = nn.Conv2d(4, 16, 1).to(device)
optimizer = torch.optim.NAdam([*student.parameters(), *regressor.parameters()], lr=1e-3)
T = 2
for step in range(4):
    inputs, labels = torch.rand(8, 3, 16, 16).to(device), torch.randint(0, 10, (8,)).to(device)
    optimizer.zero_grad()
    with torch.no_grad():
        teacher_logits = teacher(inputs)
    logits = student(inputs)
    soft_targets = F.softmax(teacher_logits / T, dim=-1)
    soft_prob = F.log_softmax(logits / T, dim=-1)
    soft = torch.sum(soft_targets * (soft_targets.log() - soft_prob)) / soft_prob.size()[0] * T**2
    hidden = F.cosine_embedding_loss(
        regressor(features["student"]).flatten(1), features["teacher"].flatten(1), torch.ones(8, device=device)
    )
    loss = 0.25 * soft + 0.25 * hidden + 0.5 * F.cross_entropy(logits, labels)
    loss.backward()
    optimizer.step()
    print(f"loss {loss.item():.17g}")
