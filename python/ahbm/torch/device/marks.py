"""Which device a tensor says that it is on.

Every tensor lies in host memory, and so C++ knows it. A tensor that a script has put on a GPU has a mark: an attribute
of its storage, which all views of it have in common, and which ends with it. `Tensor.device` and the other properties
answer by the mark.
"""

from __future__ import annotations

import threading
from threading import get_ident
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ahbm.torch.device import memory

KIND = "cuda"
_BASE: Any = torch._C.TensorBase
on_host: Any = _BASE.is_cpu.__get__
"""Whether the memory of a tensor is the host's; marks have no say."""
_is_meta: Any = _BASE.is_meta.__get__
_storage_of: Any = _BASE.untyped_storage
_MARK = "_ahbm_device"
_PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor)


class Mark:
    """The device of a storage, and its bytes there, for as long as it lives."""

    __slots__ = ("counts", "index", "keeps", "use")

    def __init__(self, index: int, nbytes: int, counts: bool) -> None:
        """Raises torch.OutOfMemoryError where the device has not so much."""
        self.use: memory.Use | None = None
        self.keeps: Any = None
        """Marks of what a result that takes no memory is made of again where it is read."""
        self.index = index
        self.counts = counts
        _used[0] = True
        if nbytes:
            self.use = memory.of(index).allocate(nbytes)

    def resize(self, nbytes: int) -> None:
        """The storage has another size."""
        before, self.use = self.use, memory.of(self.index).allocate(nbytes) if nbytes else None
        if before is not None:
            memory.of(self.index).free(before)

    def __del__(self) -> None:
        if self.use is not None:
            memory.of(self.index).free(self.use)


def storage(x: Any) -> Any:
    """The storage of a tensor that is no wrapper (of a sparse one, that of its values); None where it has none."""
    try:
        return _storage_of(x)
    except (RuntimeError, NotImplementedError):
        members = members_of(x)
        return storage(members[-1]) if members else None


def members_of(x: Any) -> tuple[Any, ...]:
    """The tensors that a sparse tensor consists of: its indices, and last its values; none where it has no data."""
    layout = x.layout
    if layout not in SPARSE or _is_meta(x) or isinstance(x, FakeTensor):  # whose own look at them would ask again
        return ()
    with torch.no_grad():
        if layout is torch.sparse_coo:
            return x._indices(), x._values()
        if layout in (torch.sparse_csr, torch.sparse_bsr):
            return x.crow_indices(), x.col_indices(), x.values()
        return x.ccol_indices(), x.row_indices(), x.values()


SPARSE = {torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc}


def where(x: Any) -> int | None:
    """The number of the GPU that a tensor says it is on; None for the host."""
    if type(x) not in _PLAIN:
        inner = parts(x)
        if inner:
            return where(inner[0])
        if x.layout is torch.jagged:
            return None
    held = storage(x)
    if held is None:
        return getattr(x, _MARK, None)
    mark = held.__dict__.get(_MARK)
    if mark is None or (type(x) is torch.Tensor and _is_meta(x)):  # a look that a fake tensor's kernels take
        return None
    found: int = mark.index
    return found


def parts(x: Any) -> list[Any]:
    """The tensors that a wrapper holds, such as a DTensor's own."""
    if type(x) in _PLAIN or not is_traceable_wrapper_subclass(x):
        return []
    names, _ = x.__tensor_flatten__()
    return [part for name in names if isinstance(part := getattr(x, name), torch.Tensor)]


def put(x: Any, index: int | None, *, counts: bool = True) -> Any:
    """Marks the storage of a tensor (or takes its mark away); returns it. `counts`: it takes memory."""
    if inner := parts(x):
        for part in inner:
            put(part, index)
        return x
    if x.layout in SPARSE:
        members = members_of(x)
        for part in members:
            put(part, index)
        if not members:
            setattr(x, _MARK, index)
        return x
    held = storage(x)
    if held is not None:
        mark(held, index, counts=counts and (not _is_meta_storage(held) or getattr(x, "fake_mode", None) is fake[0]))
    return x


fake: list[Any] = [None]
"""The mode in which the device's tensors have no data. Those of other modes, such as torch's own while it finds out how
tensors are sharded, take no memory."""


def _is_meta_storage(held: Any) -> bool:
    found: bool = bare(held).type == "meta"
    return found


bare: Any = torch._C.StorageBase.device.__get__
"""Where a storage is in truth."""


def mark(held: Any, index: int | None, *, counts: bool = True) -> None:
    """Marks a storage; `counts`: it takes memory of the device."""
    facts = held.__dict__
    known = facts.get(_MARK)
    if index is None:
        facts.pop(_MARK, None)
    elif known is None or known.index != index:
        facts[_MARK] = Mark(index, _nbytes(held) if counts else 0, counts)


def keep(x: Any, given: list[Any]) -> None:
    """What a result is made of lives as long as it does."""
    held = storage(x)
    known = None if held is None else mark_of(held)
    if known is not None and not known.counts:
        known.keeps = [found for one in given if (held := storage(one)) is not None and (found := mark_of(held))]


def count(x: Any) -> None:
    """A tensor takes memory of its device from now on, if it has not so far."""
    for part in parts(x) or [x]:
        held = storage(part)
        known = None if held is None else mark_of(held)
        if known is not None and known.use is None and not known.counts:
            known.counts = True
            known.resize(_nbytes(held))


def mark_of(held: Any) -> Mark | None:
    """The mark of a storage."""
    found: Mark | None = held.__dict__.get(_MARK)
    return found


def resized(held: Any) -> None:
    """A storage has got another size."""
    known = held.__dict__.get(_MARK)
    if known is not None and known.counts:
        known.resize(_nbytes(held))


def of_storage(held: Any) -> int | None:
    """The device of a storage."""
    known = getattr(held, "__dict__", {}).get(_MARK)
    return None if known is None else known.index


def _nbytes(held: Any) -> int:
    size = held.nbytes()
    return size if type(size) is int else 0


def index_of(device: Any) -> int | None:
    """The number of a GPU: of "cuda", "cuda:1", a torch.device or a number; None for what is no GPU."""
    if device is None or type(device) is bool:
        return None
    if type(device) is int:
        return device
    if isinstance(device, str):
        if not device.startswith(KIND):
            return None
        device = torch.device(device)
    if isinstance(device, torch.device) and device.type == KIND:
        return current() if device.index is None else device.index
    return None


def current() -> int:
    """The current device of the calling thread."""
    return _now.index


class _Current(threading.local):
    index = 0


_now = _Current()
_used = [False]


def used() -> bool:
    """Whether the script has used a device: a mesh of devices chooses the current one before that."""
    return _used[0]


def set_current(index: int) -> None:
    """Makes a device the current one."""
    _used[0] = True
    _now.index = index


_DEVICES = [torch.device(KIND, index) for index in range(64)]


honest = [0]
"""The thread whose tensors say for the moment where they are in truth; 0 where there is none."""


def _is_honest() -> bool:
    return bool(honest[0]) and honest[0] == get_ident()


class _Plain(threading.local):
    on = False


plain = _Plain()
"""Whether storages say for the calling thread, for the moment, where they are in truth."""


def _index_of_storage(held: Any) -> int | None:
    return None if plain.on else of_storage(held)


def _device(x: Any) -> torch.device:
    index = None if _is_honest() else where(x)
    if index is not None:
        return _DEVICES[index] if index < len(_DEVICES) else torch.device(KIND, index)
    found: torch.device = _BASE.device.__get__(x)
    return found


def install() -> None:
    """Makes tensors and storages answer by their marks."""
    tensor: Any = torch.Tensor
    tensor.device = property(_device)
    tensor.is_cuda = property(lambda x: not _is_honest() and where(x) is not None)
    tensor.is_cpu = property(lambda x: (_is_honest() or where(x) is None) and on_host(x))
    tensor.get_device = lambda x: -1 if (index := where(x)) is None else index
    resizes = torch.UntypedStorage.resize_

    def resize_(held: Any, size: int) -> Any:
        out = resizes(held, size)
        resized(held)
        return out

    storages: Any = torch.UntypedStorage
    storages.resize_ = resize_
    storages.device = property(
        lambda held: bare(held) if (i := _index_of_storage(held)) is None else torch.device(KIND, i)
    )
    storages.is_cuda = property(lambda held: _index_of_storage(held) is not None)
    fake = torch._subclasses.fake_tensor.FakeTensor
    tells = fake.device.fget

    def fake_device(x: Any) -> torch.device:
        found: torch.device = tells(x)
        index = None if found.type == "meta" or _is_honest() else where(x)
        return found if index is None else torch.device(KIND, index)

    fake.device = property(fake_device)
