"""Five steps of a small transformer under each kind of parallelism; prints rank 0's losses as JSON.

As a script, `torchrun training.py BACKEND KIND...`, it is what gloo's losses come from.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from jobs import end
from torch import nn
from torch.distributed._composable.fsdp import fully_shard
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

WIDTH, WORDS, LENGTH, BATCH, STEPS = 16, 11, 6, 8, 5


class Block(nn.Module):
    """Attention and a two-layer perceptron, both with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.down(torch.relu(self.up(self.second(x))))


def model() -> nn.Sequential:
    """The same on every rank, whatever numbers were drawn before."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Embedding(WORDS, WIDTH), Block(), Block(), nn.Linear(WIDTH, WORDS))


def batches(rank: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Words and the words that follow."""
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(STEPS):
        words = torch.randint(WORDS, (BATCH, LENGTH + 1), generator=generator)
        yield words[:, :-1], words[:, 1:]


def loss_of(logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits.reshape(-1, WORDS), wanted.reshape(-1))


def train(net: nn.Module, rank: int) -> list[float]:
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    losses = []
    for words, wanted in batches(rank):
        optimizer.zero_grad()
        loss = loss_of(net(words), wanted)
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total, dist.ReduceOp.SUM)
        losses.append(total.item() / dist.get_world_size())
    return losses


def ddp() -> list[float]:
    # Buckets of a few KB, so that there are several.
    return train(DistributedDataParallel(model(), bucket_cap_mb=0.01), dist.get_rank())


def ddp_builtin(hook: dist.BuiltinCommHookType) -> list[float]:
    """With a communication hook of torch's that is C++."""
    net = DistributedDataParallel(model(), bucket_cap_mb=0.01)
    net._register_builtin_comm_hook(hook)
    return train(net, dist.get_rank())


def ddp_power(hook: Any) -> list[float]:
    """With a communication hook whose callbacks communicate; it starts in the third step. One bucket, for gloo hangs
    with several.
    """
    net = DistributedDataParallel(model())
    state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2, min_compression_rate=0.5)
    net.register_comm_hook(state, hook)
    return train(net, dist.get_rank())


def fsdp1(strategy: ShardingStrategy) -> list[float]:
    net = FullyShardedDataParallel(
        model(),
        sharding_strategy=strategy,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=torch.device("cpu"),
    )
    return train(net, dist.get_rank())


def fsdp2() -> list[float]:
    net: Any = model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in net:
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return train(net, dist.get_rank())


def tensor_parallel() -> list[float]:
    net = model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in (net[1], net[2]):
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return train(net, 0)


def pipeline() -> list[float]:
    """Two stages on the first two ranks."""
    rank = dist.get_rank()
    stages = dist.new_group([0, 1])
    if rank > 1:
        return []
    whole = model()
    part = nn.Sequential(*([whole[0], whole[1]] if rank == 0 else [whole[2], whole[3]]))
    schedule = ScheduleGPipe(PipelineStage(part, rank, 2, torch.device("cpu"), group=stages), 4, loss_fn=loss_of)
    optimizer = torch.optim.SGD(part.parameters(), 0.1)
    losses = []
    for words, wanted in batches(0):
        optimizer.zero_grad()
        found: list[torch.Tensor] = []
        if rank == 0:
            schedule.step(words)
        else:
            schedule.step(target=wanted, losses=found)
        optimizer.step()
        mean = torch.stack(found).mean() if found else torch.zeros(())
        dist.broadcast(mean.detach(), 1, group=stages)
        losses.append(mean.item())
    return losses


KINDS: dict[str, Callable[[], list[float]]] = {
    "ddp": ddp,
    "ddp_allreduce": functools.partial(ddp_builtin, dist.BuiltinCommHookType.ALLREDUCE),
    "ddp_fp16": functools.partial(ddp_builtin, dist.BuiltinCommHookType.FP16_COMPRESS),
    "ddp_power": functools.partial(ddp_power, powerSGD_hook.powerSGD_hook),
    "fsdp1": functools.partial(fsdp1, ShardingStrategy.FULL_SHARD),
    "fsdp1_grad_op": functools.partial(fsdp1, ShardingStrategy.SHARD_GRAD_OP),
    "fsdp2": fsdp2,
    "tensor_parallel": tensor_parallel,
    "pipeline": pipeline,
}


def main() -> None:
    dist.init_process_group(sys.argv[1])
    losses = {kind: KINDS[kind]() for kind in sys.argv[2:] or KINDS}
    if dist.get_rank() == 0:
        print(json.dumps(losses))
    dist.destroy_process_group()
    if sys.argv[1] == "gloo":
        end()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
