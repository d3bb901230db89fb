"""In the style of recommenders: a factorization of a matrix, sparse gradients and SparseAdam, a ranking evaluation."""

import torch
from torch import nn

torch.manual_seed(0)
users, items, dim = 50, 80, 8


class MF(nn.Module):
    def __init__(self):
        super().__init__()
        self.user, self.item = nn.Embedding(users, dim, sparse=True), nn.Embedding(items, dim, sparse=True)

    def forward(self, u, i):
        return (self.user(u) * self.item(i)).sum(-1)


model = MF().cuda()
optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=1e-2)
for step in range(5):
    u, i = torch.randint(0, users, (32,), device="cuda"), torch.randint(0, items, (32,), device="cuda")
    negative = torch.randint(0, items, (32,), device="cuda")
    loss = -torch.nn.functional.logsigmoid(model(u, i) - model(u, negative)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"loss {loss.item():.17g}")
with torch.no_grad():
    scores = model.user.weight @ model.item.weight.T
    top = scores.topk(5, dim=1).indices
    hits = (top == torch.arange(users, device="cuda")[:, None] % items).any(1).float().mean()
    print(f"hit rate {hits:.3f}, {torch.unique(top).numel()} items")
