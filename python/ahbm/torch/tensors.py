"""Torch tensors as the flat arrays the emulator works on, and back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed import ReduceOp

from ahbm.base.arrays import Flat, Hollow, memory_of
from ahbm.base.collectives import BITWISE
from ahbm.base.elements import element
from ahbm.errors import DistributedError, UnsupportedError

NAMES: dict[torch.dtype, str] = {
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float8_e4m3fn: "f8e4m3",
    torch.float8_e5m2: "f8e5m2",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.bool: "u8",
    torch.complex64: "f32",
    torch.complex128: "f64",
}
"""Element types the emulator computes with; bool as bytes of 0 and 1, complex numbers as pairs."""

_STORED = {dtype: (name, element(name).storage) for dtype, name in NAMES.items()}
_BYTES = ("u8", np.dtype(np.uint8))
_UNCOMPUTED = (torch.float8_e4m3fn, torch.float8_e5m2)
"""Types that the emulator computes with and torch on a CPU does not."""
_KINDS: Any = ReduceOp.RedOpType
_OPS = {
    _KINDS.SUM: "sum",
    _KINDS.AVG: "avg",
    _KINDS.PRODUCT: "prod",
    _KINDS.MIN: "min",
    _KINDS.MAX: "max",
    _KINDS.BAND: "band",
    _KINDS.BOR: "bor",
    _KINDS.BXOR: "bxor",
    _KINDS.PREMUL_SUM: "sum",
}
"""By torch's kind itself: to ask a kind for its name takes longer than all else that `reduction` does."""
_BOOL_OPS = {"sum": "max", "max": "max", "bor": "max", "prod": "min", "min": "min", "band": "min", "bxor": "bxor"}


_on_host: Any = torch._C.TensorBase.is_cpu.__get__
"""Where the memory is, whatever device `ahbm.torch.device` has a tensor say that it is on."""


def flat(tensor: torch.Tensor) -> Flat:
    """`tensor` flat. Types that no kernel computes with become bytes, which can be moved but not reduced.

    The elements of a meta or fake tensor are `Hollow`. Raises UnsupportedError (AHBM-U150) for any other whose
    elements are not plain memory of this process, DistributedError (AHBM-X130) for one whose memory was freed.
    """
    x = tensor.detach() if tensor.requires_grad or type(tensor) is not torch.Tensor else tensor
    plain = x.layout is torch.strided and not x.is_nested
    if not (plain and _on_host(x) and type(x) is torch.Tensor):
        if plain and _has_no_data(x):
            name, storage = _STORED.get(x.dtype, _BYTES)
            return Flat(tensor, Hollow(x.numel() * x.element_size() // storage.itemsize, storage), name)
        kind = f"{type(tensor).__name__} on {x.device} with layout {'nested' if x.is_nested else x.layout}"
        raise UnsupportedError("AHBM-U150", f"{kind}: the emulator takes dense CPU tensors", hint=_remedy(x))
    shared = x.is_contiguous() and not x.is_conj() and not x.is_neg()
    name, storage = _STORED.get(x.dtype, _BYTES)
    if shared:
        return Flat(tensor, memory_of(x, x.numel() * x.element_size() // storage.itemsize, storage), name)
    size = x.element_size()
    view = memory_of(x, tuple(x.shape), np.dtype(f"V{size}"), tuple(size * stride for stride in x.stride()))
    take = partial(_take, x, storage)
    return Flat(tensor, take(), name, partial(_restore, tensor), None, view, take)


def _take(x: torch.Tensor, storage: np.dtype[Any]) -> NDArray[Any]:
    """The elements of `x`, however they lie, in memory of their own."""
    x = x.clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()
    return memory_of(x, x.numel() * x.element_size() // storage.itemsize, storage)


def _remedy(x: torch.Tensor) -> str:
    """What makes a tensor that is refused one that is not."""
    if x.is_nested:
        return "pass its parts, one call each: x.unbind()"
    if x.layout is not torch.strided:
        dense = "make it dense first: x = x.to_dense()"
        return f"{dense}; all_reduce (SUM) takes sparse COO tensors" if x.layout is torch.sparse_coo else dense
    return "move it to the host first: x = x.cpu()" if not _on_host(x) else "pass a plain tensor"


def _has_no_data(x: torch.Tensor) -> bool:
    return x.is_meta or isinstance(x, FakeTensor)


def hollow(arg: Any) -> bool:
    """Whether a tensor without data is among the arguments of a call."""
    if isinstance(arg, torch.Tensor):
        return _has_no_data(arg)
    return isinstance(arg, (list, tuple)) and any(map(hollow, arg))


def tracked(arg: Any) -> bool:
    """Whether a tensor that requires a gradient is among the arguments of a call."""
    if isinstance(arg, torch.Tensor):
        return bool(arg.requires_grad)
    return isinstance(arg, (list, tuple)) and any(map(tracked, arg))


def _restore(tensor: torch.Tensor, elements: NDArray[Any]) -> None:
    plain = tensor.detach()
    plain.copy_(_typed(elements, plain))


def _typed(array: NDArray[Any], like: torch.Tensor) -> torch.Tensor:
    """`array`, made by `flat` for a tensor such as `like`, as a tensor of its shape and dtype."""
    if like.dtype is torch.bfloat16:
        array = array.view(np.int16)
    values = torch.from_numpy(array)
    if like.is_complex():
        return torch.view_as_complex(values.reshape(-1, 2)).reshape(like.shape)
    return values.view(like.dtype).reshape(like.shape)


def reduction(op: Any, tensor: torch.Tensor) -> tuple[str, Any]:
    """The emulator's name of a ReduceOp on `tensor`'s dtype, and what to multiply the tensor by first (None: nothing).

    Raises UnsupportedError (AHBM-U151) for an operator that the dtype does not have.
    """
    kind = getattr(op, "op", op)
    name = _operator(kind, tensor.dtype)
    factor = None
    if name == "sum" and kind == _KINDS.PREMUL_SUM:
        factor = op.factor if hasattr(op, "factor") else op.__getstate__()[1]
    return name, factor


@lru_cache(len(_OPS) * len(NAMES))
def _operator(kind: Any, dtype: torch.dtype) -> str:
    name = _OPS.get(kind)
    if dtype is torch.bool and name in _BOOL_OPS:
        return _BOOL_OPS[name]
    if (
        dtype not in NAMES
        or dtype is torch.bool
        or name is None
        or (dtype.is_complex and name not in ("sum", "avg"))
        or (dtype.is_floating_point and name in BITWISE)
    ):
        hint = "convert to a number first" if dtype is torch.bool else "reduce in another dtype"
        raise UnsupportedError("AHBM-U151", f"{kind.name} is not defined on {dtype}", hint=hint)
    return name


def scaled(x: Flat, factor: Any) -> Flat:
    """A copy of `x`, times `factor` in the tensor's dtype; `x` itself where there is no factor, or nothing to scale."""
    if factor is None or isinstance(x.array, Hollow):
        return x
    plain = x.tensor.detach()

    def take() -> NDArray[Any]:
        wide = plain.float() if plain.dtype in _UNCOMPUTED else plain
        array = flat((wide * factor).to(plain.dtype).contiguous()).array
        assert not isinstance(array, Hollow)
        return array

    memory = x.memory
    assert not isinstance(memory, Hollow)
    return Flat(x.tensor, take(), x.dtype, None, None, memory, take)


def same(flats: Sequence[Flat], what: str) -> None:
    """Raises DistributedError (AHBM-X130) unless all have one dtype."""
    dtypes = {x.tensor.dtype for x in flats}
    if len(dtypes) > 1:
        message = ", ".join(sorted(map(str, dtypes)))
        raise DistributedError("AHBM-X130", f"{what}: tensors of different dtypes: {message}")


def sized(x: Flat, size: int, what: str) -> None:
    """Raises DistributedError (AHBM-X130) unless `x` has `size` elements."""
    if x.size != size:
        raise DistributedError("AHBM-X130", f"{what} has {x.size} elements, not {size}")
