"""Scripts in the style of public ones, for GPUs: `fake_scripts.py STYLE FOLDER`; own code."""

import math
import os
import sys
import time
from contextlib import nullcontext

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

STYLE, FOLDER = sys.argv[1:3]


class GPT(nn.Module):
    def __init__(self, vocab: int, width: int, length: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.qkv, self.proj, self.norm = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        self.wte.weight = self.head.weight
        self.apply(self._init)
        self.length = length

    def _init(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)

    def forward(self, idx: torch.Tensor, targets: torch.Tensor | None = None):
        b, t = idx.size()
        x = self.wte(idx) + self.wpe(torch.arange(0, t, dtype=torch.long, device=idx.device))
        q, k, v = (y.view(b, t, 4, -1).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1 if self.training else 0)
        x = x + self.proj(y.transpose(1, 2).contiguous().view(b, t, -1))
        if targets is None:
            return self.head(x[:, [-1], :]), None
        logits = self.head(x)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

    @torch.no_grad()
    def generate(self, idx: torch.Tensor, count: int, top_k: int) -> torch.Tensor:
        for _ in range(count):
            logits, _ = self(idx[:, -self.length :])
            logits = logits[:, -1, :] / 0.8
            v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
            logits[logits < v[:, [-1]]] = -float("Inf")
            idx = torch.cat((idx, torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)), dim=1)
        return idx


def nano() -> None:
    """An evaluation, a checkpoint and its resumption, memory-mapped data, accumulation, a scaler, a rate by hand."""
    ddp = int(os.environ.get("RANK", -1)) != -1
    dist.init_process_group(backend="nccl")
    device = f"cuda:{os.environ['LOCAL_RANK']}"
    torch.cuda.set_device(device)
    master = dist.get_rank() == 0
    torch.manual_seed(1337 + dist.get_rank())
    torch.backends.cuda.matmul.allow_tf32 = True
    ctx = (
        torch.amp.autocast(device_type="cuda", dtype=torch.bfloat16)
        if torch.cuda.is_bf16_supported()
        else nullcontext()
    )
    length, batch = 64, 4

    def get_batch(split: str) -> tuple[torch.Tensor, torch.Tensor]:
        data = np.memmap(os.path.join(FOLDER, "tokens.bin"), dtype=np.uint16, mode="r")
        ix = torch.randint(len(data) - length, (batch,))
        x = torch.stack([torch.from_numpy((data[i : i + length]).astype(np.int64)) for i in ix])
        y = torch.stack([torch.from_numpy((data[i + 1 : i + 1 + length]).astype(np.int64)) for i in ix])
        return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)

    model = GPT(1000, 256, length).to(device)
    scaler = torch.amp.GradScaler("cuda", enabled=True)
    decay = [p for p in model.parameters() if p.dim() >= 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": [p for p in model.parameters() if p.dim() < 2]}], fused=True
    )
    model = torch.compile(model)
    model = DDP(model, device_ids=[int(os.environ["LOCAL_RANK"])])
    raw = model.module

    @torch.no_grad()
    def estimate_loss() -> dict[str, torch.Tensor]:
        out = {}
        model.eval()
        for split in ("train", "val"):
            losses = torch.zeros(2)
            for k in range(2):
                with ctx:
                    _, loss = model(*get_batch(split))
                losses[k] = loss.item()
            out[split] = losses.mean()
        model.train()
        return out

    best, it, resumed = 1e9, 0, False
    x, y = get_batch("train")
    t0 = time.time()
    while True:
        for group in optimizer.param_groups:
            group["lr"] = 6e-4 * 0.5 * (1 + math.cos(math.pi * it / 6))
        if it % 2 == 0 and master:
            losses = estimate_loss()
            print(f"step {it}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")
            if losses["val"] < best or True:
                best = losses["val"]
                state = {"model": raw.state_dict(), "optimizer": optimizer.state_dict(), "iter_num": it, "best": best}
                torch.save(state, os.path.join(FOLDER, "ckpt.pt"))
        if it == 3 and not resumed:
            found = torch.load(os.path.join(FOLDER, "ckpt.pt"), map_location=device)
            raw.load_state_dict({key.removeprefix("_orig_mod."): value for key, value in found["model"].items()})
            optimizer.load_state_dict(found["optimizer"])
            it, best, resumed = found["iter_num"], found["best"], True
        for micro in range(2):
            model.require_backward_grad_sync = micro == 1
            with ctx:
                _, loss = model(x, y)
                loss = loss / 2
            x, y = get_batch("train")
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        if master:
            print(f"iter {it}: loss {loss.item() * 2:.4f}, time {(time.time() - t0) * 1000:.2f}ms")
        it += 1
        if it > 5:
            break
    raw.eval()
    print(raw.generate(torch.zeros((1, 1), dtype=torch.long, device=device), 4, 20)[0].tolist())
    assert ddp and resumed
    dist.destroy_process_group()


def shards() -> None:
    """Shards of tokens, a loss that is averaged over ranks, a norm that is printed, a log."""
    dist.init_process_group(backend="nccl")
    rank, local, world = (int(os.environ[key]) for key in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    device = f"cuda:{local}"
    torch.cuda.set_device(device)
    tokens = torch.tensor(
        np.fromfile(os.path.join(FOLDER, "tokens.bin"), dtype=np.uint16).astype(np.int32), dtype=torch.long
    )
    B, T = 2, 32
    place = B * T * rank
    torch.set_float32_matmul_precision("high")
    model = DDP(GPT(1024, 128, T).to(device), device_ids=[local])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)
    for step in range(3):
        t0 = time.time()
        optimizer.zero_grad()
        total = 0.0
        for micro in range(2):
            buf = tokens[place : place + B * T + 1]
            x, y = buf[:-1].view(B, T).to(device), buf[1:].view(B, T).to(device)
            place += B * T * world
            if place + B * T * world + 1 > len(tokens):
                place = B * T * rank
            model.require_backward_grad_sync = micro == 1
            with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
                _, loss = model(x, y)
            loss = loss / 2
            total += loss.detach()
            loss.backward()
        dist.all_reduce(total, op=dist.ReduceOp.AVG)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        torch.cuda.synchronize()
        took = time.time() - t0
        if rank == 0:
            rate = B * T * 2 * world / took
            print(f"step {step:5d} | loss: {total.item():.6f} | norm: {norm:.4f} | tok/sec: {rate:.2f}")
            with open(os.path.join(FOLDER, "log.txt"), "a") as log:
                log.write(f"{step} train {total.item():.6f}\n")
    dist.destroy_process_group()


def cifar() -> None:
    """All data on the device, a file of its own, whitening by eigenvectors, cut-outs, an average of weights."""
    path = os.path.join(FOLDER, "data.pt")
    if not os.path.exists(path):
        images = torch.randint(0, 256, (512, 3, 32, 32), dtype=torch.uint8)
        images = images.to("cuda", dtype=torch.float16, memory_format=torch.channels_last)
        std, mean = torch.std_mean(images.float(), dim=(0, 2, 3))
        images = images.sub_(mean.half()[None, :, None, None]).div_(std.half()[None, :, None, None])
        torch.save({"images": images, "targets": torch.randint(0, 10, (512,), device="cuda")}, path)
    data = torch.load(path, map_location="cuda", weights_only=True)
    images, targets = data["images"], F.one_hot(data["targets"], 10).half()
    patches = images[:64].unfold(2, 2, 1).unfold(3, 2, 1).transpose(1, 3).reshape(-1, 12).float()
    values, vectors = torch.linalg.eigh(torch.cov(patches.T), UPLO="U")
    net = nn.Sequential(
        nn.Conv2d(3, 24, 2, bias=False), nn.GELU(), nn.Conv2d(24, 64, 3, padding="same", bias=False), nn.MaxPool2d(2),
        nn.BatchNorm2d(64), nn.GELU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(64, 10, bias=False),
    )  # fmt: skip
    net = net.cuda().half().to(memory_format=torch.channels_last)
    white = (vectors / values.sqrt().unsqueeze(0)).T.reshape(12, 3, 2, 2)
    net[0].weight.data[:] = torch.cat((white, -white)).half()
    net[0].weight.requires_grad = False
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1, momentum=0.9, nesterov=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=8)
    average = {name: x.clone() for name, x in net.state_dict().items()}

    def crop(x: torch.Tensor, size: int) -> torch.Tensor:
        corners = torch.randint(0, 32 - size + 1, (2, len(x)), device=x.device)
        rows = torch.arange(32, device=x.device)
        inside = (rows >= corners[0][:, None]) & (rows < corners[0][:, None] + size)
        mask = inside[:, None, :, None] & inside[:, None, None, :].expand(len(x), 1, 32, 32)
        return torch.where(mask, torch.zeros_like(x[:1]), x)

    for _ in range(2):
        order = torch.randperm(len(images), device="cuda")
        flipped = torch.where(torch.rand((len(images), 1, 1, 1), device="cuda") < 0.5, images, images.flip(-1))
        shuffled, labels = crop(flipped, 4)[order], targets[order]
        for start in range(0, len(images), 128):
            x, y = shuffled[start : start + 128], labels[start : start + 128]
            out = net(x)
            loss = F.cross_entropy(out, y, label_smoothing=0.2, reduction="none")
            accuracy = (out.detach().argmax(-1) == y.argmax(-1)).float().mean().item()
            loss.sum().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            scheduler.step()
            for name, x in net.state_dict().items():
                average[name].copy_(average[name] * 0.9 + x * 0.1)
        net.eval()
        with torch.no_grad():
            wrong = net(images[:100]).argmax(1) != data["targets"][:100]
            print(f"{loss.mean():.3f} {accuracy:.2f} {wrong.float().mean().item():.2f} {images[:100][wrong].shape[0]}")
        net.train()


class Experts(nn.Module):
    """Tokens go to the ranks that have their experts, and back."""

    def __init__(self, width: int, experts: int, k: int) -> None:
        super().__init__()
        self.count, self.k, self.world = experts, k, dist.get_world_size()
        self.router = nn.Linear(width, experts, bias=False)
        self.mine = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(experts // self.world))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, chosen = torch.topk(torch.sigmoid(self.router(x)), self.k, dim=-1)
        tokens = torch.histc(chosen.view(-1), bins=self.count, min=0, max=self.count)
        order = torch.argsort(chosen.view(-1), stable=True)
        with torch.no_grad():
            theirs = tokens.new_empty(tokens.shape[0])
            dist.all_to_all_single(theirs, tokens)
            sends = tokens.view(self.world, -1).sum(1).tolist()
            receives = theirs.view(self.world, -1).sum(1).tolist()
        given = x[order // self.k]
        assert sum(sends) == given.shape[0]
        got = Exchange.apply(given, sends, receives)
        here = theirs.view(self.world, -1).sum(0).tolist()
        parts = [expert(part) for expert, part in zip(self.mine, got.split(here), strict=True)]
        back = Exchange.apply(torch.cat(parts), receives, sends)
        return torch.zeros_like(x).scatter_add(0, (order // self.k)[:, None].expand(-1, x.shape[1]), back)


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor, sends: list[int], receives: list[int]) -> torch.Tensor:
        ctx.splits = sends, receives
        out = x.new_empty(sum(receives), x.shape[1])
        dist.all_to_all_single(out, x.contiguous(), receives, sends)
        return out

    @staticmethod
    def backward(ctx, grad: torch.Tensor):
        sends, receives = ctx.splits
        out = grad.new_empty(sum(sends), grad.shape[1])
        dist.all_to_all_single(out, grad.contiguous(), sends, receives)
        return out, None, None


def experts() -> None:
    """Experts of several ranks."""
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    net = Experts(512, 16, 2).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(3):
        loss = net(torch.randn(257, 512, device="cuda")).square().mean()
        loss.backward()
        for p in net.router.parameters():
            if p.grad is not None:
                dist.all_reduce(p.grad)
        optimizer.step()
        optimizer.zero_grad()
        print(f"loss {loss:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    {"nano": nano, "shards": shards, "cifar": cifar, "experts": experts}[STYLE]()
    print("all is there")
