"""torch's operations as `ahbm.kernels` describes them: by names, shapes, types and strides alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ahbm.kernels import Flags, Kernel, Tensor, describe
from ahbm.kernels.attention import backend
from ahbm.kernels.touched import PUTS
from ahbm.torch.device import marks
from ahbm.torch.device.tf32 import in_tf32

KNOWN = 1 << 12
"""Different operations whose kernels are remembered."""
_PLAIN = {torch.Tensor, torch.nn.Parameter, FakeTensor}
_LISTS = {list, tuple}
_BACKENDS = {"cudnn": "cudnn", "flash": "flash", "efficient": "mem_efficient", "math": "math"}
"""torch's names of the backends of attention in its setters, those that it prefers on such a GPU first."""
_found: dict[Any, tuple[Kernel, ...]] = {}


def kernels(
    known: Any, args: Any, kwargs: Any, out: Any, given: Sequence[torch.Tensor], units: int
) -> tuple[Kernel, ...]:
    """The kernels of an operation that was given tensors and has made `out`. `known`: its `Kind`; `units`: SMs of the
    device."""
    if type(out) is FakeTensor and out.layout in marks.SPARSE:
        _store(known, given, out)
    key = (
        known,
        units,
        _signature(args),
        _signature(kwargs.items()) if kwargs else None,
        _signature((out,)),
        _repeated(given),
        _choices(known, given) if known.counts is not None else None,
    )
    try:
        found = _found.get(key)
    except TypeError:  # an argument that has no hash
        return _described(known, args, kwargs, out, units)
    if found is None:
        found = _described(known, args, kwargs, out, units)
        if known.name in PUTS and any(x.dtype in (torch.bool, torch.uint8) for x in given):
            return found  # by how many are true
        if len(_found) >= KNOWN:
            _found.clear()
        _found[key] = found
    return found


def _store(known: Any, given: Sequence[torch.Tensor], out: Any) -> None:
    """Keeps how much a sparse result without data stores: a row for each index, or what its operands store."""
    if known.name == "_embedding_bag_backward":
        grad, index = given[0], given[1]
        out._ahbm_stored = index.numel() * (grad.shape[-1] * grad.element_size() + index.element_size())
    else:
        stored = [getattr(x, "_ahbm_stored", 0) for x in given]
        if any(stored):
            out._ahbm_stored = max(stored)


def _signature(values: Any) -> tuple[Any, ...]:
    """What tells operations apart. Texts, numbers and types stand for themselves."""
    found: list[Any] = []
    for value in values:
        kind = type(value)
        if kind in _PLAIN:
            try:
                found.append((value.shape, value.dtype, value.stride()))
            except RuntimeError:  # no strides: sparse or nested
                shape = None if value.is_nested else value.shape
                found.append((shape, value.dtype, value.layout, whole(value)))
        elif kind in _LISTS:
            found.append(_signature(value))
        elif isinstance(value, torch.Tensor):
            found.append((value.shape, value.dtype, whole(value)))
        else:
            found.append(value)
    return tuple(found)


def _repeated(given: Sequence[torch.Tensor]) -> tuple[int, ...] | None:
    """Which tensors are which, where one is there twice."""
    if len(given) < 2:
        return None
    at: dict[int, int] = {}
    places = tuple([at.setdefault(id(x), i) for i, x in enumerate(given)])
    return None if len(at) == len(given) else places


def _choices(known: Any, given: Sequence[torch.Tensor]) -> Any:
    """What flags of torch choose for an operation that multiplies."""
    f32 = bool(given) and given[0].dtype in (torch.float32, torch.complex64)
    tf32 = in_tf32("conv" in known.name) if f32 else None
    return (tf32, _allowed()) if "attention" in known.name else tf32


def _allowed() -> tuple[str, ...]:
    core: Any = torch._C

    def on(name: str) -> bool:
        asks: Callable[[], bool] | None = getattr(core, f"_get_{name}_sdp_enabled", None)
        return asks is None or bool(asks())

    return tuple(name for name, setter in _BACKENDS.items() if on(setter))


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None) -> str:
    """The backend that torch would choose on a GPU, as `ahbm.kernels.attention.backend` names it."""
    hidden = None if mask is None else _tensor(mask)
    return backend(_tensor(q), _tensor(k), _tensor(v), hidden, Flags(attention=_allowed()))


def _described(known: Any, args: Any, kwargs: Any, out: Any, units: int) -> tuple[Kernel, ...]:
    count = known.counts
    operations = int(count(*args, **kwargs, out_val=out)) if count is not None else None
    name: str = known.name
    flags = Flags(
        tf32_products=operations is not None and in_tf32(False),
        tf32_convolutions="conv" in name and in_tf32(True),
        attention=_allowed() if "attention" in name else ("math",),
        units=units,
    )
    return describe(name, *arguments(known, args, kwargs, out), flags=flags, operations=operations)


def arguments(known: Any, args: Any, kwargs: Any, out: Any) -> tuple[tuple[Any, ...], tuple[Tensor, ...] | None]:
    """Arguments in the order of the operation's schema, and its results, without their data. Results that are given
    are no arguments."""
    seen: set[int] = set()
    counts = known.name in PUTS

    def argument(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            again = id(value) in seen
            seen.add(id(value))
            return _tensor(value, again=again, counts=counts)
        if type(value) in _LISTS or isinstance(value, torch.Size):
            return tuple([argument(each) for each in value])
        return str(value) if isinstance(value, torch.dtype | torch.device | torch.layout) else value

    placed = [argument(value) for value in args]
    for name, value in kwargs.items():
        if name in known.outs:
            continue
        at = known.places.get(name, len(placed))
        placed += [None] * (at + 1 - len(placed))
        placed[at] = argument(value)
    made = out if type(out) in _LISTS else (out,)
    outs = tuple([_tensor(x) for x in _leaves(made)])
    if not outs and known.writes_operands and known.writes:
        first = args[known.writes[0]] if known.writes[0] < len(args) else None
        return tuple(placed), tuple([_tensor(x) for x in _leaves((first,))]) or None
    return tuple(placed), outs or None


def _leaves(values: Any) -> list[torch.Tensor]:
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif type(value) in _LISTS:
            found += _leaves(value)
    return found


def bare(x: torch.Tensor) -> Tensor:
    """A tensor without its data."""
    return _tensor(x)


def _tensor(x: torch.Tensor, *, again: bool = False, counts: bool = False) -> Tensor:
    dtype = str(x.dtype)[6:]
    if x.layout is not torch.strided or x.is_nested:
        count = -(-whole(x) // x.element_size())
        columns = x.shape[-1] if x.layout is torch.sparse_coo and x.dim() > 1 and count % x.shape[-1] == 0 else 1
        return Tensor((count // max(columns, 1), columns), dtype, None, again, sparse=x.layout in marks.SPARSE)
    true = None
    if counts and x.dtype in (torch.bool, torch.uint8) and not (isinstance(x, FakeTensor) or x.is_meta):
        true = int(torch.count_nonzero(x))
    return Tensor(tuple(x.shape), dtype, None if x.is_contiguous() else tuple(x.stride()), again, true)


def whole(x: torch.Tensor) -> int:
    """The bytes of a tensor's elements, those that lie in one place counted once."""
    if x.layout is torch.strided and not x.is_nested:
        if x.is_contiguous():
            return int(x.nbytes)
        return Tensor(tuple(x.shape), str(x.dtype)[6:], tuple(x.stride())).nbytes if x.numel() else 0
    if x.is_nested:
        nbytes: int = x.nbytes
        return nbytes
    members = marks.members_of(x)
    if members:
        return sum(map(whole, members))
    stated: int = getattr(x, "_ahbm_stored", 0) or x.numel() * x.element_size()
    return stated
