"""DDP with sparse gradients of an embedding, and all_reduces of sparse tensors: the numbers, to their last bits."""

from __future__ import annotations

import hashlib
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def digest(*tensors: torch.Tensor) -> str:
    return hashlib.sha256(b"".join(x.detach().contiguous().numpy().tobytes() for x in tensors)).hexdigest()[:16]


def numbers(backend: str) -> list[str]:
    """What a rank computes: losses and parameters of three steps, and sums of sparse tensors of several types."""
    dist.init_process_group(backend)
    rank = dist.get_rank()
    draw = torch.Generator().manual_seed(7)
    # Dense gradients would be added in another order than gloo's.
    net = torch.nn.Embedding(50, 8, sparse=True)
    with torch.no_grad():
        for x in net.parameters():
            x.copy_(torch.randn(x.shape, generator=draw))
    net = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    told = []
    for step in range(3):
        words = (torch.arange(24).reshape(6, 4) * (rank + 2) + step) % 50
        loss = net(words).square().mean(dim=(1, 2)).sum()
        optimizer.zero_grad()
        loss.backward()
        assert net.module.weight.grad.is_sparse
        optimizer.step()
        told.append(f"{loss.item()!r} {digest(*net.parameters())}")
    for dtype in (torch.float32, torch.float64, torch.int64, torch.int8):
        count = 5 * rank + 1
        draw = torch.Generator().manual_seed(rank)
        at = torch.randint(0, 9, (2, count), generator=draw)
        values = (torch.randn(count, 3, generator=draw) * 10).to(dtype)
        x = torch.sparse_coo_tensor(at, values, (9, 9, 3))
        dist.all_reduce(x)
        told.append(f"{dtype} {x._nnz()} {x.is_coalesced()} {digest(x.indices(), x.values())}")
    dist.destroy_process_group()
    return told


if __name__ == "__main__":
    result = numbers(sys.argv[1])
    # torchrun's ranks have no buffers: what is written in one call stands together.
    sys.stdout.write("".join(f"{os.environ['RANK']}: {line}\n" for line in result))
    sys.stdout.flush()
    os._exit(0)  # a thread of gloo's may hold a tensor when the interpreter ends
