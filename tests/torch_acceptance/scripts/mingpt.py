"""In the style of PyTorch's examples, minGPT-ddp: a small GPT with DDP, autocast, a scaler, workers and snapshots."""

import math
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class CharDataset(Dataset):
    def __init__(self, text: str, block_size: int) -> None:
        letters = sorted(set(text))
        self.data = [letters.index(letter) for letter in text]
        self.block_size, self.vocab_size = block_size, len(letters)

    def __len__(self) -> int:
        return len(self.data) - self.block_size

    def __getitem__(self, at: int) -> tuple[torch.Tensor, torch.Tensor]:
        chunk = torch.tensor(self.data[at : at + self.block_size + 1])
        return chunk[:-1], chunk[1:]


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads, self.c_attn, self.c_proj = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.register_buffer("mask", torch.tril(torch.ones(length, length)).view(1, 1, length, length))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.size()
        q, k, v = (
            part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in self.c_attn(x).split(c, dim=2)
        )
        att = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        att = F.softmax(att.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf")), dim=-1)
        return self.c_proj((att @ v).transpose(1, 2).contiguous().view(b, t, c))


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, length: int) -> None:
        super().__init__()
        self.ln1, self.ln2, self.attn = nn.LayerNorm(dim), nn.LayerNorm(dim), Attention(dim, heads, length)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim), nn.Dropout(0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, vocab: int, length: int, dim: int = 48, heads: int = 3, layers: int = 2) -> None:
        super().__init__()
        self.tok_emb, self.pos_emb = nn.Embedding(vocab, dim), nn.Parameter(torch.zeros(1, length, dim))
        self.blocks = nn.Sequential(*(Block(dim, heads, length) for _ in range(layers)))
        self.ln_f, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab, bias=False)

    def forward(self, idx: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        device = idx.device
        t = torch.arange(idx.size(1), dtype=torch.long, device=device)
        x = self.tok_emb(idx) + self.pos_emb[:, t]
        logits = self.head(self.ln_f(self.blocks(x)))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def main() -> None:
    dist.init_process_group(backend="nccl")
    local_rank, rank = int(os.environ["LOCAL_RANK"]), int(os.environ["RANK"])
    torch.cuda.set_device(local_rank)
    torch.manual_seed(1337)
    data = CharDataset("to be, or not to be, that is the question: whether 'tis nobler in the mind to suffer" * 2, 16)
    model = GPT(data.vocab_size, 16).to(local_rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), fused=True)
    scaler = torch.cuda.amp.GradScaler()
    model = DDP(model, device_ids=[local_rank])
    loader = DataLoader(data, batch_size=16, pin_memory=True, num_workers=2, sampler=DistributedSampler(data))
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    for source, targets in loader:
        source, targets = source.to(local_rank, non_blocking=True), targets.to(local_rank, non_blocking=True)
        with torch.amp.autocast(device_type="cuda", dtype=torch.bfloat16):
            _, loss = model(source, targets)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        if rank == 0:
            print(f"loss {loss.item():.17g}")
    end.record()
    torch.cuda.synchronize()
    if rank == 0:
        print(f"{start.elapsed_time(end) >= 0}, {torch.cuda.max_memory_allocated() >= 0}")
        with tempfile.TemporaryDirectory() as folder:
            torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, f"{folder}/gpt.pt")
            kept = torch.load(f"{folder}/gpt.pt", map_location="cpu")
            model.module.load_state_dict(kept["model"])
            optimizer.load_state_dict(kept["optimizer"])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
