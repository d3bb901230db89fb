"""In the style of BERT's pre-training: masked tokens, a mask of padding, nn.TransformerEncoder with dropout."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
vocab, mask_id, pad_id = 60, 1, 0


class Bert(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.tokens, self.positions, self.types = (
            nn.Embedding(vocab, dim, padding_idx=0),
            nn.Embedding(16, dim),
            nn.Embedding(2, dim),
        )
        layer = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.1, activation="gelu", batch_first=True)
        self.encoder, self.norm = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.LayerNorm(dim)
        self.pooler, self.nsp = nn.Linear(dim, dim), nn.Linear(dim, 2)

    def forward(self, ids, types, padding):
        positions = torch.arange(ids.size(1), device=ids.device).expand_as(ids)
        x = self.norm(self.tokens(ids) + self.positions(positions) + self.types(types))
        x = self.encoder(x, src_key_padding_mask=padding)
        return x @ self.tokens.weight.T, self.nsp(torch.tanh(self.pooler(x[:, 0])))


model = Bert().cuda()
no_decay = [p for n, p in model.named_parameters() if "bias" in n or "norm" in n]
decay = [p for n, p in model.named_parameters() if not ("bias" in n or "norm" in n)]
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.01}, {"params": no_decay, "weight_decay": 0}], lr=1e-3
)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 3))
for step in range(4):
    ids = torch.randint(2, vocab, (6, 16))
    lengths = torch.randint(8, 17, (6,))
    ids[torch.arange(16)[None] >= lengths[:, None]] = pad_id
    masked = (torch.rand(6, 16) < 0.15) & (ids != pad_id)
    masked[:, 2] = True
    labels, ids = ids.masked_fill(~masked, -100).cuda(), ids.masked_fill(masked, mask_id).cuda()
    types, following = torch.zeros_like(ids), torch.randint(0, 2, (6,)).cuda()
    logits, pooled = model(ids, types, ids == pad_id)
    loss = F.cross_entropy(logits.view(-1, vocab), labels.view(-1), ignore_index=-100) + F.cross_entropy(
        pooled, following
    )
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    print(f"loss {loss.item():.17g}")
