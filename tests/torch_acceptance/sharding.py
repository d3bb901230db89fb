"""FSDP2's communication: which collectives it makes, and the numbers that come of them.

The upstream suite, `test_fully_shard_comm`, is not in the wheel. Each job returns the losses of rank 0, the gradients
of its shards and the counts of collectives, as `CommDebugMode` sees them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter
from torch.distributed.tensor.debug import CommDebugMode

WIDTH, LAYERS, STEPS = 8, 3, 2


class Own(AllGather, ReduceScatter):
    """A communication of the user's own; counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def allocate(self, size: Any, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: Any, input_tensor: Any, group: Any, *op: Any, **given: Any) -> Any:
        self.calls += 1
        op = op or tuple(given.pop(name) for name in ("op",) if name in given)
        call = dist.reduce_scatter_tensor if op else dist.all_gather_into_tensor
        return call(output_tensor, input_tensor, *op, group=group, **given)


def sharded(mesh: Any = None, **policy: Any) -> Any:
    """The same layers on every rank, each sharded, and the whole."""
    torch.manual_seed(7)
    net = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    mesh = mesh or init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (*net, net):
        fully_shard(layer, mesh=mesh, **policy)
    return net


def trained(net: Any, before: Callable[[int], None] = lambda step: None) -> list[float]:
    """Backward passes whose gradients add up; `before` is told their number."""
    generator = torch.Generator().manual_seed(dist.get_rank())
    losses: list[float] = []
    with CommDebugMode() as seen:
        for step in range(STEPS):
            before(step)
            loss = net(torch.randn(4, WIDTH, generator=generator)).float().square().mean()
            loss.backward()
            losses.append(loss.item())
    grads = [p.grad.to_local().flatten() for p in net.parameters() if p.grad is not None]
    counts = {str(name): count for name, count in seen.get_comm_counts().items()}
    assert counts, "CommDebugMode has seen nothing"
    return [*losses, *torch.cat(grads).tolist(), *(float(counts[name]) for name in sorted(counts))]


def plain() -> list[float]:
    return trained(sharded())


def kept_after_forward() -> list[float]:
    return trained(sharded(reshard_after_forward=False))


def partly_resharded_after_forward() -> list[float]:
    return trained(sharded(reshard_after_forward=dist.get_world_size()))


def kept_after_backward() -> list[float]:
    net = sharded()

    def before(step: int) -> None:
        net.set_reshard_after_backward(step == STEPS - 1)

    return trained(net, before)


def manual() -> list[float]:
    """Parameters are gathered and let go by hand."""
    net = sharded(reshard_after_forward=False)

    def before(_: int) -> None:
        net.unshard(async_op=True).wait()
        net.reshard()

    return trained(net, before)


def bf16() -> list[float]:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return trained(sharded(mp_policy=policy))


def reduced_in_bf16() -> list[float]:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    return trained(sharded(mp_policy=policy))


def accumulated() -> list[float]:
    """Only the last backward pass reduces gradients."""
    net = sharded()
    return trained(net, lambda step: net.set_requires_gradient_sync(step == STEPS - 1))


def divided() -> list[float]:
    """By a power of two, so that it is the same before and after the sum: gloo cannot multiply first (PREMUL_SUM)."""
    net = sharded()
    for module in net.modules():
        module.set_reduce_scatter_divide_factor(4.0)
        module.set_force_sum_reduction_for_comms(dist.get_backend() == "gloo")
    return trained(net)


def only_sums() -> list[float]:
    net = sharded()
    for module in net.modules():
        module.set_gradient_divide_factor(5.0)
        module.set_force_sum_reduction_for_comms(True)
    return trained(net)


def own_collectives() -> list[float]:
    net, own = sharded(), Own()
    for module in net.modules():
        module.set_custom_all_gather(own)
        module.set_custom_reduce_scatter(own)
    return [*trained(net), float(own.calls)]


def hybrid() -> list[float]:
    """Replicas of shards; the last backward pass alone reduces among replicas."""
    net = sharded(init_device_mesh("cpu", (dist.get_world_size(), 1), mesh_dim_names=("replicate", "shard")))
    return trained(net, lambda step: net.set_requires_all_reduce(step == STEPS - 1))


def prefetched() -> list[float]:
    net = sharded()
    for here, ahead in pairwise(net):
        here.set_modules_to_forward_prefetch([ahead])
        ahead.set_modules_to_backward_prefetch([here])
    return trained(net)


JOBS: dict[str, Callable[[], list[float]]] = {
    f"fsdp2_{job.__name__}": job
    for job in (
        *(plain, kept_after_forward, partly_resharded_after_forward, kept_after_backward, manual),
        *(bf16, reduced_in_bf16, accumulated, divided, only_sums, own_collectives, hybrid, prefetched),
    )
}
