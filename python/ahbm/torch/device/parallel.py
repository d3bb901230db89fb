"""One process on several devices: `nn.DataParallel`, `torch.cuda.comm` and `torch.cuda.nccl`.

Their cores in C++ want real GPUs. Here they are copies between tensors' devices, each timed as `x.to("cuda:1")` is: a
kernel that reads and writes its bytes at the bandwidth of the memory. Modules run one after the other, in the order of
their devices, so that every run is the same; their kernels are counted one after the other, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch.nn.parallel import DataParallel, DistributedDataParallel, parallel_apply

from ahbm.base.logs import notice
from ahbm.torch.device import marks
from ahbm.torch.replacing import replace

_OPERATORS: tuple[Callable[..., Any], ...] = (torch.add, torch.mul, torch.maximum, torch.minimum, torch.add)
"""By the numbers of NCCL: sum, product, max, min, mean."""
_MEAN = 4


def install() -> None:
    """Puts all this in torch's place."""
    _buckets()
    core: Any = torch._C
    core._broadcast = _broadcast
    core._broadcast_out = lambda tensor, out: tuple(each.copy_(tensor) for each in out)
    core._broadcast_coalesced = _broadcast_coalesced
    core._scatter = _scatter
    core._scatter_out = _scatter_out
    core._gather = lambda tensors, dim, destination: _gathered(tensors, dim, _device(destination))
    core._gather_out = lambda tensors, out, dim: out.copy_(_gathered(tensors, dim, out.device))
    core._nccl_all_reduce = _all_reduce
    core._nccl_reduce = lambda inputs, output, root=0, op=0, *_: output.copy_(_reduced(inputs, op, output.device))
    core._nccl_broadcast = lambda inputs, root=0, *_: _copy_all(inputs, [inputs[root]] * len(inputs))
    core._nccl_all_gather = _all_gather
    core._nccl_reduce_scatter = _reduce_scatter
    applies: Any = parallel_apply

    def in_order(
        modules: Sequence[Any], inputs: Sequence[Any], kwargs_tup: Any = None, devices: Any = None
    ) -> list[Any]:
        count = len(modules)
        if count != len(inputs):
            raise AssertionError(f"The number of modules {count} is not equal to the number of inputs {len(inputs)}")
        return [
            applies([modules[i]], [inputs[i]], kwargs_tup and [kwargs_tup[i]], devices and [devices[i]])[0]
            for i in range(count)
        ]

    in_order.__name__ = applies.__name__
    replace(applies, in_order)
    starts = DataParallel.__init__

    def start(self: Any, *args: Any, **kw: Any) -> None:
        starts(self, *args, **kw)
        if len(self.device_ids) > 1:
            notice(
                f"nn.DataParallel on {len(self.device_ids)} devices of one process: their kernels, and the copies "
                "between them, are counted one after the other"
            )

    DataParallel.__init__ = start


def _device(index: Any) -> torch.device:
    if isinstance(index, torch.device):
        return index
    if index is None:
        return torch.device(marks.KIND, marks.current())
    return torch.device("cpu") if index == "cpu" or index < 0 else torch.device(marks.KIND, index)


def _broadcast(tensor: torch.Tensor, devices: Sequence[int]) -> tuple[torch.Tensor, ...]:
    return tuple(tensor.to(_device(index)) for index in devices)


def _broadcast_coalesced(tensors: Sequence[torch.Tensor], devices: Sequence[int], buffer_size: int) -> list[Any]:
    # Of what is on its device already, autograd wants another object.
    return [[tensor.to(_device(index)).detach() for tensor in tensors] for index in devices]


def _scatter(
    tensor: torch.Tensor, devices: Sequence[int], chunk_sizes: Any, dim: int, streams: Any = None
) -> list[torch.Tensor]:
    parts = tensor.split(list(chunk_sizes), dim) if chunk_sizes else tensor.chunk(len(devices), dim)
    found = []
    for at, part in enumerate(parts):
        with (streams[at] if streams and streams[at] is not None else None) or nullcontext():
            found.append(part.contiguous().to(_device(devices[at])).detach())
    return found


def _scatter_out(tensor: torch.Tensor, out: Sequence[torch.Tensor], dim: int, streams: Any = None) -> Any:
    return _copy_all(out, tensor.split([each.size(dim) for each in out], dim))


def _gathered(tensors: Sequence[torch.Tensor], dim: int, device: torch.device) -> torch.Tensor:
    return torch.cat([tensor.to(device) for tensor in tensors], dim)


def _copy_all(out: Sequence[torch.Tensor], found: Sequence[torch.Tensor]) -> Any:
    for each, one in zip(out, found, strict=True):
        if each is not one:
            each.copy_(one)
    return out


def _reduced(inputs: Sequence[torch.Tensor], op: int, device: torch.device) -> torch.Tensor:
    total = inputs[0].to(device)
    for other in inputs[1:]:
        total = _OPERATORS[op](total, other.to(device))
    return total / len(inputs) if op == _MEAN else total


def _all_reduce(inputs: Sequence[torch.Tensor], outputs: Any, op: int = 0, *_: Any) -> None:
    _copy_all(outputs, [_reduced(inputs, op, each.device) for each in outputs])


def _all_gather(inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], *_: Any) -> None:
    whole = [torch.cat([each.to(out.device).flatten() for each in inputs]) for out in outputs]
    _copy_all(outputs, [found.view_as(out) for out, found in zip(outputs, whole, strict=True)])


def _reduce_scatter(inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], op: int = 0, *_: Any) -> None:
    parts = [_reduced(inputs, op, out.device).flatten().chunk(len(outputs))[at] for at, out in enumerate(outputs)]
    _copy_all(outputs, [part.view_as(out) for out, part in zip(outputs, parts, strict=True)])


def _buckets() -> None:
    """Hooks of DistributedDataParallel find the gradients, which C++ has laid together, where the parameters are."""
    parallel: Any = DistributedDataParallel
    registers = parallel.register_comm_hook

    @functools.wraps(registers)
    def register_comm_hook(self: Any, state: object, hook: Callable[..., Any]) -> None:
        @functools.wraps(hook)
        def placed(state: object, bucket: Any) -> Any:
            index = marks.where(bucket.parameters()[0])
            if index is not None:
                marks.put(bucket.buffer(), index)
            return hook(state, bucket)

        registers(self, state, placed)

    parallel.register_comm_hook = register_comm_hook
