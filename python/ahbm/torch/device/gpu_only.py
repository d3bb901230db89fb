"""Kernels that torch has for GPUs alone: results by their definition, on the host, and the time by their bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

aten = torch.ops.aten
_TABLE: dict[Any, Callable[..., Any]] = {}


def find(func: Any) -> Callable[..., Any] | None:
    """What calculates a kernel of a GPU; None: nothing does."""
    if not _TABLE:
        _TABLE.update(_table())
    return _TABLE.get(func)


def _table() -> dict[Any, Callable[..., Any]]:
    named: dict[str, Callable[..., Any]] = {
        "batch_norm_stats": _stats,
        "batch_norm_gather_stats": _gather,
        "batch_norm_gather_stats_with_counts": _gather,
        "batch_norm_elemt": _normalize,
        "batch_norm_backward_reduce": _reduce,
        "batch_norm_backward_elemt": _backward,
        "_fused_dropout": _dropout,
        "_masked_scale": lambda x, mask, scale: x * mask.to(x.dtype) * scale,
    }
    found = {getattr(aten, name).default: function for name, function in named.items()}
    found[aten.histc.default] = lambda x, *args, **kw: torch.histc(x.double(), *args, **kw).to(x.dtype)
    found[aten.mm.dtype] = lambda a, b, dtype: a.to(dtype) @ b.to(dtype)
    found[aten.bmm.dtype] = lambda a, b, dtype: torch.bmm(a.to(dtype), b.to(dtype))
    found[aten.addmm.dtype] = _added(torch.addmm)
    found[aten.baddbmm.dtype] = _added(torch.baddbmm)
    return found


def _added(product: Callable[..., Any]) -> Callable[..., Any]:
    def added(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype, **kw: Any) -> torch.Tensor:
        found: torch.Tensor = product(x.to(dtype), a.to(dtype), b.to(dtype), **kw)
        return found

    return added


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.float() if x.dtype in (torch.half, torch.bfloat16) else x


def _axes(x: torch.Tensor) -> list[int]:
    return [axis for axis in range(x.dim()) if axis != 1]


def _along(values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """One value for each channel, for a product with `x`."""
    return values.view(1, -1, *([1] * (x.dim() - 2)))


def _stats(x: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    variance, mean = torch.var_mean(_wide(x), _axes(x), correction=0)
    return mean, (variance + eps).rsqrt()


def _gather(
    x: torch.Tensor,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    momentum: float,
    eps: float,
    counts: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The statistics of all ranks' parts; `counts`: elements of each channel of each, or of all alike."""
    n = (
        counts.to(mean.dtype)
        if isinstance(counts, torch.Tensor)
        else torch.full(mean.shape[:1], counts, dtype=mean.dtype)
    )
    n = n.view(-1, 1)
    total = n.sum()
    whole = (mean * n).sum(0) / total
    squares = ((invstd.square().reciprocal() - eps) * n + (mean - whole).square() * n).sum(0)
    if running_mean is not None:
        running_mean.mul_(1 - momentum).add_(whole.to(running_mean.dtype), alpha=momentum)
    if running_var is not None:
        running_var.mul_(1 - momentum).add_((squares / (total - 1)).to(running_var.dtype), alpha=momentum)
    return whole, (squares / total + eps).rsqrt()


def _normalize(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    eps: float,
) -> torch.Tensor:
    out = (_wide(x) - _along(mean, x)) * _along(invstd, x)
    if weight is not None:
        out = out * _along(_wide(weight), x)
    if bias is not None:
        out = out + _along(_wide(bias), x)
    return out.to(x.dtype)


def _reduce(
    grad: torch.Tensor,
    x: torch.Tensor,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    weight: torch.Tensor | None,
    of_input: bool,
    of_weight: bool,
    of_bias: bool,
) -> Sequence[Any]:
    grad = _wide(grad)
    total = grad.sum(_axes(x))
    scaled = (grad * (_wide(x) - _along(mean, x))).sum(_axes(x))
    dtype = x.dtype if weight is None else weight.dtype
    return (
        total if of_input else None,
        scaled if of_input else None,
        (scaled * invstd).to(dtype) if of_weight else None,
        total.to(dtype) if of_bias else None,
    )


def _backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    weight: torch.Tensor | None,
    total: torch.Tensor,
    scaled: torch.Tensor,
    counts: torch.Tensor,
) -> torch.Tensor:
    n = counts.sum()
    centred = _wide(x) - _along(mean, x)
    found = _wide(grad) - _along(total / n, x) - centred * _along(invstd.square() * scaled / n, x)
    factor = invstd if weight is None else invstd * _wide(weight)
    return (found * _along(factor, x)).to(x.dtype)


def _dropout(x: torch.Tensor, keep: float, generator: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
    mask = torch.empty_like(x).bernoulli_(keep, generator=generator)
    return x * mask / keep, mask.to(torch.uint8)
