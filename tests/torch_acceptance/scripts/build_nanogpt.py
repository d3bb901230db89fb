"""In the style of build-nanogpt's train_gpt2.py: DDP, shards of tokens, accumulation without needless synchronizing."""

import inspect
import math
import os
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.n_head = n_head

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for t in self.c_attn(x).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = (
            nn.LayerNorm(n_embd),
            CausalSelfAttention(n_embd, n_head),
            nn.LayerNorm(n_embd),
        )
        self.c_fc, self.gelu, self.c_proj = (
            nn.Linear(n_embd, 4 * n_embd),
            nn.GELU("tanh"),
            nn.Linear(4 * n_embd, n_embd),
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(self.gelu(self.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self, vocab_size=128, block_size=32, n_embd=48, n_head=3, n_layer=2):
        super().__init__()
        self.transformer = nn.ModuleDict(
            dict(
                wte=nn.Embedding(vocab_size, n_embd),
                wpe=nn.Embedding(block_size, n_embd),
                h=nn.ModuleList([Block(n_embd, n_head) for _ in range(n_layer)]),
                ln_f=nn.LayerNorm(n_embd),
            )
        )
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx, targets=None):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.transformer.wpe(pos) + self.transformer.wte(idx)
        for block in self.transformer.h:
            x = block(x)
        logits = self.lm_head(self.transformer.ln_f(x))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


class DataLoaderLite:
    def __init__(self, B, T, process_rank, num_processes):
        self.B, self.T, self.process_rank, self.num_processes = B, T, process_rank, num_processes
        shard = np.random.default_rng(7).integers(0, 128, 5000).astype(np.int32)
        self.tokens = torch.tensor(shard, dtype=torch.long)
        self.current_position = B * T * process_rank

    def next_batch(self):
        B, T = self.B, self.T
        buf = self.tokens[self.current_position : self.current_position + B * T + 1]
        self.current_position += B * T * self.num_processes
        return buf[:-1].view(B, T), buf[1:].view(B, T)


assert torch.cuda.is_available(), "for now i think we need CUDA for DDP"
init_process_group(backend="nccl")
ddp_rank, ddp_local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
ddp_world_size = int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(ddp_local_rank)
device = ddp_local_rank
master_process = ddp_rank == 0
torch.manual_seed(1337)
torch.set_float32_matmul_precision("high")
total_batch_size, B, T = 512, 4, 32
grad_accum_steps = total_batch_size // (B * T * ddp_world_size)
train_loader = DataLoaderLite(B, T, ddp_rank, ddp_world_size)
model = DDP(GPT().to(device), device_ids=[ddp_local_rank])
raw_model = model.module
use_fused = "fused" in inspect.signature(torch.optim.AdamW).parameters
optimizer = torch.optim.AdamW(raw_model.parameters(), lr=6e-4, betas=(0.9, 0.95), eps=1e-8, fused=use_fused)
for step in range(4):
    t0 = time.time()
    optimizer.zero_grad()
    loss_accum = 0.0
    for micro_step in range(grad_accum_steps):
        x, y = train_loader.next_batch()
        x, y = x.to(device), y.to(device)
        model.require_backward_grad_sync = micro_step == grad_accum_steps - 1
        with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
            logits, loss = model(x, y)
        loss = loss / grad_accum_steps
        loss_accum += loss.detach()
        loss.backward()
    dist.all_reduce(loss_accum, op=dist.ReduceOp.SUM)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for param_group in optimizer.param_groups:
        param_group["lr"] = 6e-4 * 0.5 * (1 + math.cos(math.pi * step / 8))
    optimizer.step()
    torch.cuda.synchronize()
    dt = time.time() - t0
    if master_process:
        print(f"step {step:5d} | loss: {loss_accum.item():.6f} | norm: {norm:.4f} | dt: {dt * 1000:.2f}ms")
        print(f"loss {loss_accum.item():.17g}")
destroy_process_group()
