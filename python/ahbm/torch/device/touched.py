"""The bytes that a kernel touches, and the type that it calculates in."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ahbm.torch.device import marks

_OUT = {
    "embedding", "index_select", "index", "_unsafe_index", "gather", "take", "masked_select", "select_copy",
    "slice_copy", "narrow_copy", "diagonal_copy", "as_strided_copy", "unfold_copy",
}  # fmt: skip
"""Operations that read of their first operand what they make."""
_BAGS = {"_embedding_bag", "_embedding_bag_forward_only"}
_LOSSES = {"nll_loss_forward", "nll_loss2d_forward"}
"""Operations that read an element for each target."""
_LOSSES_BACK = {"nll_loss_backward", "nll_loss2d_backward"}
"""Operations that read the shape of their second operand alone."""
_BY_INDEX = {"scatter_", "scatter_add_", "scatter_reduce_", "put_"}
_BY_SOURCE = {"index_add_", "index_copy_", "index_reduce_"}
_PUTS = {"index_put_", "_index_put_impl_"}
_ADDING = {"scatter_add_", "scatter_reduce_", "index_add_", "index_reduce_"}
_PARTS = _OUT | _BAGS | _LOSSES | _LOSSES_BACK | _BY_INDEX | _BY_SOURCE | _PUTS | {"index_fill_"}
"""Operations that touch their operands in part."""

_precision: Callable[[str, str], str] | None = getattr(torch._C, "_get_fp32_precision_getter", None)


def arithmetic(name: str, dtype: torch.dtype) -> str:
    """The type that a kernel's operations are done in, as `Machine.kernel_ps` names it. torch's flags say which
    products of f32 are done in TF32."""
    if dtype.itemsize == 2:
        return "f16"
    if dtype.itemsize == 1:
        return "f8"
    if dtype in (torch.float64, torch.complex128):
        return "f64"
    return "tf32" if dtype in (torch.float32, torch.complex64) and _in_tf32("conv" in name) else "f32"


def _in_tf32(convolves: bool) -> bool:
    if os.environ.get("NVIDIA_TF32_OVERRIDE") == "0":
        return False
    if _precision is not None:
        return _precision("cuda", "conv" if convolves else "matmul") == "tf32"
    flags = torch.backends.cudnn if convolves else torch.backends.cuda.matmul
    return bool(flags.allow_tf32)


def whole(x: torch.Tensor) -> int:
    """The bytes of a tensor's elements, those that lie in one place counted once."""
    if x.layout is torch.strided:
        nbytes: int = x.nbytes
        if not nbytes or x.is_contiguous() or x.is_nested:
            return nbytes
        count = span = 1
        for size, stride in zip(x.size(), x.stride(), strict=True):
            if stride:
                count *= size
                span += (size - 1) * stride
        least: int = min(count, span) * x.element_size()
        return least
    members = marks.members_of(x)
    if members:
        return sum(map(whole, members))
    stated: int = x.numel() * x.element_size()
    return stated


def touched(known: Any, args: Any, kwargs: Any, out: Any, given: list[torch.Tensor]) -> int:
    """The bytes that a kernel reads and writes. `known`: its `Kind`; `given`: the tensors of its arguments in order."""
    read = given[known.overwrites :]
    if known.outs:
        made = [kwargs[name] for name in known.outs if name in kwargs]
        read = [x for x in read if not any(x is one for one in made)]
    if known.name in _PARTS:
        return _in_part(known.name, args, kwargs, out, read)
    nbytes = _all(read)
    if type(out) in (tuple, list):
        nbytes += _all(x for x in out if isinstance(x, torch.Tensor))
    elif isinstance(out, torch.Tensor):
        nbytes += whole(out)
    elif known.writes_operands and given:  # lists in place
        nbytes += _all(args[0]) if type(args[0]) in (list, tuple) else whole(given[0])
    return nbytes


def _all(xs: Iterable[torch.Tensor]) -> int:
    """Of several tensors, each counted once."""
    return sum(whole(x) for x in {id(x): x for x in xs}.values())


def _in_part(name: str, args: Any, kwargs: Any, out: Any, read: list[torch.Tensor]) -> int:
    """The bytes of operations that touch their first operand (or, backward, the second one) in part."""
    if name in _LOSSES_BACK:
        ignored = args[1]
        return _all(x for x in read if x is not ignored) + whole(out)
    table: torch.Tensor = args[0] if args else kwargs.get("self", kwargs.get("weight"))
    elements, times = _elements(name, table, args, kwargs, out)
    nbytes: int = _all(x for x in read if x is not table) + times * min(elements * table.element_size(), whole(table))
    if name in _OUT:
        return nbytes + whole(out)
    return nbytes + (_all(out) if name in _BAGS | _LOSSES else 0)


def _elements(name: str, table: torch.Tensor, args: Any, kwargs: Any, out: Any) -> tuple[int, int]:
    """How many elements of its first operand an operation touches, and how often: 2 where it reads and writes them."""
    if name in _OUT:
        return out.numel(), 1
    if name in _BAGS | _LOSSES:
        count: int = args[1].numel() * (table.size(-1) if name in _BAGS else 1)
        return count, 1
    adds = name in _ADDING or (name == "scatter_" and kwargs.get("reduce") is not None)
    if name in _PUTS or name == "put_":
        adds = bool(kwargs.get("accumulate", len(args) > 3 and args[3]))
        return _indexed(table, args[1]) if name in _PUTS else args[1].numel(), 1 + adds
    if name in _BY_SOURCE:
        return args[3].numel(), 1 + adds
    if name == "index_fill_" and table.dim():
        return args[2].numel() * (table.numel() // max(table.size(args[1]), 1)), 1
    return args[2].numel(), 1 + adds


def _indexed(x: torch.Tensor, indices: Any) -> int:
    """How many elements `x[indices]` has."""
    shapes, rest = [], list(x.shape)
    at = 0
    for index in indices:
        if index is None:
            at += 1
        elif index.dtype in (torch.bool, torch.uint8):
            hollow = isinstance(index, FakeTensor) or index.is_meta
            shapes.append((index.numel() if hollow else int(torch.count_nonzero(index)),))
            for _ in range(index.dim()):
                rest[at] = 1
                at += 1
        else:
            shapes.append(tuple(index.shape))
            rest[at] = 1
            at += 1
    count = 1
    for n in (*torch.broadcast_shapes(*shapes), *rest) if shapes else rest:
        count *= n
    return count
