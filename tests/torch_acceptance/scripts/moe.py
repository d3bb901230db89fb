"""In the style of Mixtral in transformers: a router, the best two of the experts, a loss that balances them."""

import torch
import torch.nn.functional as F
from torch import nn


class SparseMoe(nn.Module):
    def __init__(self, dim, ffn, num_experts, top_k):
        super().__init__()
        self.num_experts, self.top_k = num_experts, top_k
        self.gate = nn.Linear(dim, num_experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, ffn), nn.SiLU(), nn.Linear(ffn, dim)) for _ in range(num_experts)
        )

    def forward(self, hidden_states):
        b, s, d = hidden_states.shape
        hidden_states = hidden_states.view(-1, d)
        router_logits = self.gate(hidden_states)
        routing_weights = F.softmax(router_logits, dim=1, dtype=torch.float)
        routing_weights, selected = torch.topk(routing_weights, self.top_k, dim=-1)
        routing_weights /= routing_weights.sum(dim=-1, keepdim=True)
        final = torch.zeros((b * s, d), dtype=hidden_states.dtype, device=hidden_states.device)
        expert_mask = F.one_hot(selected, num_classes=self.num_experts).permute(2, 1, 0)
        for expert_idx in range(self.num_experts):
            idx, top_x = torch.where(expert_mask[expert_idx])
            current = self.experts[expert_idx](hidden_states[None, top_x].reshape(-1, d))
            final.index_add_(0, top_x, current * routing_weights[top_x, idx, None])
        load = torch.bincount(selected.flatten(), minlength=self.num_experts).float() / selected.numel()
        balance = self.num_experts * (load * F.softmax(router_logits, -1).mean(0)).sum()
        return final.reshape(b, s, d), balance


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(64, 24), nn.Linear(24, 64)
        self.layers = nn.ModuleList(SparseMoe(24, 48, 4, 2) for _ in range(2))

    def forward(self, x):
        h, aux = self.embed(x), 0.0
        for layer in self.layers:
            out, balance = layer(h)
            h, aux = h + out, aux + balance
        return self.head(h), aux


torch.manual_seed(2)
model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(4):
    tokens = torch.randint(0, 64, (4, 17), device="cuda")
    logits, aux = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) + 0.01 * aux
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss {loss.item():.17g}")
