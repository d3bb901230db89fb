"""In the style of DLRM: bags of embeddings with sparse gradients, interactions of features, two optimizers."""

import numpy as np
import torch
from torch import nn

np.random.seed(123)
torch.manual_seed(123)
ln_emb, m_spa, batch = [40, 60, 20], 8, 16
device = "cuda" if torch.cuda.is_available() else "cpu"


class DLRM_Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb_l = nn.ModuleList(nn.EmbeddingBag(n, m_spa, mode="sum", sparse=True) for n in ln_emb)
        self.bot_l = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, m_spa), nn.ReLU())
        self.top_l = nn.Sequential(nn.Linear(m_spa + 6, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())

    def forward(self, dense_x, lS_o, lS_i):
        x = self.bot_l(dense_x)
        ly = [e(i, o) for e, i, o in zip(self.emb_l, lS_i, lS_o, strict=True)]
        T = torch.cat([x, *ly], dim=1).view((batch, -1, m_spa))
        Z = torch.bmm(T, torch.transpose(T, 1, 2))
        li = torch.tensor([i for i in range(4) for _ in range(i)])
        lj = torch.tensor([j for i in range(4) for j in range(i)])
        return self.top_l(torch.cat([x, Z[:, li, lj]], dim=1))


dlrm, loss_fn = DLRM_Net().to(device), nn.BCELoss(reduction="mean")
dense = [p for n, p in dlrm.named_parameters() if "emb" not in n]
optimizers = [torch.optim.SGD(dlrm.emb_l.parameters(), lr=0.1), torch.optim.Adagrad(dense, lr=0.05)]
for j in range(4):
    X = torch.tensor(np.random.rand(batch, 4).astype(np.float32))
    lS_o = [torch.arange(0, 3 * batch, 3) for _ in ln_emb]
    lS_i = [torch.tensor(np.random.randint(0, n, 3 * batch)) for n in ln_emb]
    T = torch.tensor(np.random.randint(0, 2, (batch, 1)).astype(np.float32))
    Z = dlrm(X.to(device), [S.to(device) for S in lS_o], [S.to(device) for S in lS_i])
    E = loss_fn(Z, T.to(device))
    for optimizer in optimizers:
        optimizer.zero_grad()
    E.backward()
    for optimizer in optimizers:
        optimizer.step()
    L = E.detach().cpu().numpy()
    print(f"loss {float(L):.17g}")
