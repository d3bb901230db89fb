"""In the style of gpt-fast: a cache of keys and values, sampling of the best tokens, no optimizer."""

import torch
import torch.nn.functional as F
from torch import nn


class KVCache(nn.Module):
    def __init__(self, b, heads, length, dim):
        super().__init__()
        self.register_buffer("k", torch.zeros(b, heads, length, dim))
        self.register_buffer("v", torch.zeros(b, heads, length, dim))

    def update(self, pos, k, v):
        self.k[:, :, pos], self.v[:, :, pos] = k, v
        return self.k, self.v


class Block(nn.Module):
    def __init__(self, dim, heads, length):
        super().__init__()
        self.heads, self.norm, self.mlp_norm = heads, nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.wqkv, self.wo = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.w1, self.w2, self.w3 = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim), nn.Linear(dim, 2 * dim)
        self.cache = KVCache(2, heads, length, dim // heads)
        self.register_buffer("mask", torch.tril(torch.ones(length, length, dtype=torch.bool)))

    def forward(self, x, pos):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.wqkv(self.norm(x)).split(d, -1))
        k, v = self.cache.update(pos, k, v)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask[None, None, pos])
        x = x + self.wo(y.transpose(1, 2).reshape(b, t, d))
        h = self.mlp_norm(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class Transformer(nn.Module):
    def __init__(self, vocab=64, dim=32, heads=4, length=24):
        super().__init__()
        self.tok, self.out = nn.Embedding(vocab, dim), nn.Linear(dim, vocab, bias=False)
        self.layers = nn.ModuleList(Block(dim, heads, length) for _ in range(2))

    def forward(self, idx, pos):
        x = self.tok(idx)
        for layer in self.layers:
            x = layer(x, pos)
        return self.out(x)


def sample(logits, temperature=0.8, top_k=10):
    logits = logits[:, -1] / temperature
    v, _ = torch.topk(logits, top_k)
    logits = torch.where(logits < v[:, -1:], -float("inf"), logits)
    probs = F.softmax(logits, dim=-1)
    q = torch.empty_like(probs).exponential_(1)
    return torch.argmax(probs / q, dim=-1, keepdim=True).to(torch.long), probs


@torch.inference_mode()
def main():
    torch.manual_seed(1234)
    model = Transformer().to(device="cuda")
    model.eval()
    prompt = torch.randint(0, 64, (2, 6), device="cuda")
    pos = torch.arange(0, 6, device="cuda")
    token, probs = sample(model(prompt, pos))
    pos = torch.tensor([6], device="cuda")
    out = [token]
    for _ in range(12):
        token, probs = sample(model(token, pos))
        out.append(token)
        pos = pos + 1
        print(f"loss {-probs.max().log().item():.17g}")
    torch.cuda.synchronize()
    print(torch.cat(out, 1).tolist(), f"{torch.cuda.max_memory_allocated() / 1e9:.02f} GB")


main()
