"""Data beside tensors that have none (`--fake`): what steers a script is computed, and only the rest is invented.

A tensor without data may have its data beside it: a storage of the host that the tensor's own storage knows, so that
views share it and what writes the one writes the other. Small tensors of numbers and tensors of integers that are made
of nothing, or of tensors with data, have data; everything that comes from a model has none. `sizes` invents what a
script then asks for.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor

from ahbm.torch.device import gpu_only, marks

_DATA = "_ahbm_data"
_ADDRESS = "_ahbm_address"
_free = [1 << 46]
"""The next address that no storage has."""
_copying = [False]
"""Whether `copy.deepcopy` copies a tensor without data."""
INTEGERS, NUMBERS = 1 << 22, 1 << 18
"""Elements up to which tensors of integers, and of numbers, have data that is computed from other data."""
MADE_INTEGERS, MADE_NUMBERS = 1 << 20, 1 << 12
"""The same of those that are made of nothing."""
_empty: Any = torch.ops.aten.empty_strided.default


class _Real(threading.local):
    on = False


real = _Real()
"""`on`: what the calling thread makes has data, wherever it is said to be."""


_lock = threading.RLock()


class Faking:
    """torch's fake kernels, one thread at a time, with tensors that say where they are in truth."""

    __slots__ = ("mode",)

    def __init__(self, mode: Any) -> None:
        self.mode = mode

    def __enter__(self) -> None:
        _lock.acquire()
        marks.honest[0] = threading.get_ident()
        self.mode.__enter__()

    def __exit__(self, *error: Any) -> None:
        try:
            self.mode.__exit__(*error)
        finally:
            marks.honest[0] = 0
            _lock.release()


def hollow(x: Any) -> bool:
    """Whether a tensor has no data of its own."""
    return isinstance(x, FakeTensor)


def is_known(x: Any) -> bool:
    """Whether a tensor has data, its own or beside it, of a size that is computed with."""
    if not isinstance(x, FakeTensor):
        return True
    held = marks.storage(x)
    return held is not None and _DATA in held.__dict__ and x.numel() <= limit(x.dtype)


def data(x: Any) -> torch.Tensor | None:
    """The data of a tensor, as a tensor that shares it; None where there is none."""
    if not isinstance(x, FakeTensor):
        return x.detach() if isinstance(x, torch.Tensor) else None
    held = marks.storage(x)
    beside = None if held is None else held.__dict__.get(_DATA)
    if beside is None:
        return None
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        seen: torch.Tensor = torch._C.TensorBase.set_(
            _nothing[x.dtype], beside, x.storage_offset(), tuple(x.shape), x.stride()
        )
    return seen


class _Nothing(dict[torch.dtype, Any]):
    """A new empty tensor of a type."""

    def __getitem__(self, dtype: torch.dtype) -> Any:
        """Made outside of all modes."""
        return torch._C._VariableFunctions.empty(0, dtype=dtype, device="cpu")


_nothing = _Nothing()


def attach(x: Any, found: torch.Tensor) -> None:
    """Gives a tensor without data that of another one of its size, which may become its own."""
    held = marks.storage(x)
    if held is None or not isinstance(x, FakeTensor):
        return
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        if _DATA in held.__dict__:
            into = data(x)
            if into is not None:
                into.copy_(found)
            return
        alike = found.stride() == x.stride() and found.storage_offset() == x.storage_offset()
        if not alike or found.dtype is not x.dtype or marks.bare(found.untyped_storage()).type != "cpu":
            like = torch._C._VariableFunctions.empty_strided(tuple(x.shape), x.stride(), dtype=x.dtype, device="cpu")
            if x.storage_offset():
                return
            found = like.copy_(found)
        held.__dict__[_DATA] = found.untyped_storage()


def attach_storage(held: Any, beside: Any) -> None:
    """Gives a storage without data that of the host's."""
    held.__dict__[_DATA] = beside


def beside(held: Any) -> Any:
    """The data of a storage; None where there is none."""
    return held.__dict__.get(_DATA)


def drop(x: Any) -> None:
    """What a tensor holds is no longer known."""
    held = marks.storage(x)
    if held is not None:
        forget(held)


def forget(held: Any) -> None:
    """What a storage holds is no longer known."""
    held.__dict__.pop(_DATA, None)


def hollowed(mode: Any, found: torch.Tensor) -> Any:
    """A tensor of a size, whose data is beside it. Shares nothing with other tensors."""
    with Faking(mode):
        out = _empty(tuple(found.shape), found.stride(), dtype=found.dtype, device=torch.device("cpu"))
    attach(out, found)
    return out


def limit(dtype: torch.dtype) -> int:
    return NUMBERS if dtype.is_floating_point or dtype.is_complex else INTEGERS


def made_limit(dtype: torch.dtype) -> int:
    return MADE_NUMBERS if dtype.is_floating_point or dtype.is_complex else MADE_INTEGERS


def with_data(arg: Any) -> Any:
    """Arguments with the data of their tensors in their place."""
    if isinstance(arg, torch.Tensor):
        return data(arg)
    if type(arg) in (list, tuple):
        return type(arg)(with_data(one) for one in arg)
    return arg


def compute(func: Any, args: Any, kwargs: Any, given: Any, out: Any, *, made: bool, beside: bool, writes: bool) -> None:
    """Does an operation whose operands have data, and gives its results theirs."""
    outs = [x for x in (out if isinstance(out, tuple | list) else (out,)) if isinstance(x, FakeTensor)]
    most = made_limit if made else limit
    small = all(x.numel() <= most(x.dtype) and x.layout is torch.strided and x.fake_device.type != "meta" for x in outs)
    if small and (outs or writes):
        try:
            does = gpu_only.find(func) or func
            found = does(*with_data(args), **{key: with_data(arg) for key, arg in kwargs.items()})
            reals = [x for x in (found if isinstance(found, tuple | list) else (found,)) if isinstance(x, torch.Tensor)]
        except (RuntimeError, NotImplementedError, IndexError, TypeError):
            small = False  # of values that were invented, or of a kernel that the host lacks
        else:
            mine = {id(x) for x in given}
            for x, one in zip(outs, reals, strict=False):
                if id(x) not in mine and x.shape == one.shape:
                    attach(x, one)
    if not small and writes and beside:
        for x in given:
            drop(x)


def shown(x: Any) -> torch.Tensor:
    """A tensor of the host with the data of another, invented where there is none."""
    from ahbm.torch.device import sizes

    found = data(x)
    return found if found is not None else sizes.known_or_invented(x)


def _read(x: Any) -> torch.Tensor:
    """What a script reads of a tensor, whole: where that is on a device it says so, and is waited for."""
    from ahbm.torch.device.meter import meter

    seen = shown(x)
    index = marks.where(x)
    if index is not None:
        meter.copy("_to_copy", x.nbytes)
        meter.synchronize()
    return seen


def _numpy(x: Any, *, force: bool = False) -> Any:
    index = marks.where(x)
    if x.requires_grad and not force:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    if index is not None and not force:
        raise TypeError(
            f"can't convert {x.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory "
            "first."
        )
    with torch._C._DisableTorchDispatch():
        return _read(x).numpy()


def _repr(x: Any, *, tensor_contents: Any = None) -> str:
    found = data(x)
    where = "" if (index := marks.where(x)) is None else f", device='{marks.KIND}:{index}'"
    if found is not None and found.numel() <= NUMBERS:
        with torch._C._DisableTorchDispatch():
            text = repr(found)
        body, kind, dtype = text.rpartition(", dtype=")
        return f"{body}{where}{kind}{dtype}" if kind else f"{text[:-1]}{where})"
    grad = ", requires_grad=True" if x.requires_grad else ""
    return f"tensor(<no data>{where}, size={tuple(x.shape)}, dtype={x.dtype}{grad})"


def _format(x: Any, spec: str) -> str:
    return format(x.item(), spec) if x.dim() == 0 and spec else str(x)


def _deepcopy(x: Any, memo: dict[int, Any]) -> Any:
    """`copy.deepcopy` of a tensor without data, which is of the same mode.

    torch copies all attributes of a tensor, and so the mode with its `StorageWeakRef`s: it copies their addresses and
    takes no reference, so that both free one, and memory that others have by then is written (torch 2.15)."""
    memo[id(x.fake_mode)] = x.fake_mode
    before, _copying[0] = _copying[0], True
    try:
        made = torch.Tensor.__deepcopy__(x, memo)  # clones what has no address
    finally:
        _copying[0] = before
    made.constant = None  # the mode does not know it as the copy's, and would not drop it where the copy is written
    return made


def _address(held: Any) -> int:
    """An address that a storage without data has to itself, for scripts that look for memory that tensors share."""
    if not held.nbytes():
        return 0
    found: int | None = held.__dict__.get(_ADDRESS)
    if found is None:
        found = held.__dict__[_ADDRESS] = _free[0]
        _free[0] += -(-held.nbytes() // 512) * 512
    return found


def _addresses(fake: Any) -> None:
    storages: Any = torch.UntypedStorage
    tells, holds = storages.data_ptr, torch.Tensor.untyped_storage

    def data_ptr(x: Any) -> int:
        if _copying[0] or not x.numel():
            return 0
        return _address(holds(x)) + int(x.storage_offset() * x.element_size())

    def untyped_storage(x: Any) -> Any:
        held = holds(x)
        _address(held)
        return held

    def of_storage(held: Any) -> int:
        address: int = _address(held) if _ADDRESS in held.__dict__ else tells(held)
        return address

    fake.data_ptr, fake.untyped_storage, storages.data_ptr = data_ptr, untyped_storage, of_storage


def install() -> None:
    """Has tensors without data answer scripts that read them."""
    fake: Any = FakeTensor
    _addresses(fake)
    fake.__repr__ = fake.__str__ = _repr
    fake.__format__ = _format
    fake.numpy = _numpy
    fake.tolist = lambda x: _read(x).tolist()
    fake.__array__ = lambda x, dtype=None, copy=None: _array(x, dtype)
    fake.__deepcopy__ = _deepcopy


def _array(x: Any, dtype: Any) -> Any:
    made = _numpy(x)
    return made if dtype is None else made.astype(np.dtype(dtype), copy=False)
