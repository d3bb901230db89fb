"""In the style of pygcn and PyTorch's examples, gcn and gat: a sparse matrix of edges, masks of nodes."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class GraphConv(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.kernel = nn.Parameter(torch.zeros(i, o))
        self.bias = nn.Parameter(torch.zeros(o))
        nn.init.xavier_normal_(self.kernel)

    def forward(self, x, adj):
        return torch.sparse.mm(adj, torch.mm(x, self.kernel)) + self.bias


class GraphAttention(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.W, self.a = nn.Parameter(torch.randn(i, o) * 0.1), nn.Parameter(torch.randn(2 * o, 1) * 0.1)

    def forward(self, h, adj):
        h = torch.mm(h, self.W)
        o = h.size(1)
        e = F.leaky_relu(torch.matmul(h, self.a[:o]) + torch.matmul(h, self.a[o:]).T, 0.2)
        attention = torch.where(adj.to_dense() > 0, e, torch.full_like(e, -9e15))
        return torch.matmul(F.dropout(F.softmax(attention, dim=1), 0.2, self.training), h)


class Net(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.gc1, self.gc2 = kind(12, 8), kind(8, 3)

    def forward(self, x, adj):
        x = F.dropout(F.relu(self.gc1(x, adj)), 0.1, self.training)
        return F.log_softmax(self.gc2(x, adj), dim=1)


torch.manual_seed(42)
rng = np.random.default_rng(42)
edges = torch.from_numpy(np.stack([rng.integers(0, 40, 160), rng.integers(0, 40, 160)]))
adj = torch.sparse_coo_tensor(edges, torch.ones(160) / 4, (40, 40)).coalesce().to("cuda")
features, labels = torch.rand(40, 12).cuda(), torch.randint(0, 3, (40,)).cuda()
idx = torch.randperm(40).to("cuda")
idx_train, idx_val = idx[:30], idx[30:]
for kind in (GraphConv, GraphAttention):
    model = Net(kind).to("cuda")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)
    for epoch in range(3):
        model.train()
        optimizer.zero_grad()
        output = model(features, adj)
        loss = F.nll_loss(output[idx_train], labels[idx_train])
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            acc = (model(features, adj)[idx_val].argmax(1) == labels[idx_val]).float().mean().item()
        print(f"loss {loss.item():.17g}")
        print(f"{epoch} {acc:.2f}")
