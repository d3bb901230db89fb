"""Names from before `device=`: `torch.cuda.FloatTensor`, its storages, and storages that name a device."""

from __future__ import annotations

from typing import Any

import torch

from ahbm.torch.device import marks

_TYPES = {
    "Float": torch.float32,
    "Double": torch.float64,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Byte": torch.uint8,
    "Char": torch.int8,
    "Short": torch.int16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Bool": torch.bool,
}


def here() -> torch.device:
    """The current device."""
    return torch.device(marks.KIND, marks.current())


class _Kind(type):
    """The class of `torch.cuda.FloatTensor` and the like: what they make are tensors."""

    dtype: torch.dtype
    layout = torch.strided
    is_cuda = True
    is_sparse = False

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, torch.Tensor) and x.dtype is cls.dtype and marks.where(x) is not None

    def __call__(cls, *args: Any, device: Any = None) -> Any:
        host = getattr(torch, cls.__name__)
        given = [x.to("cpu") if isinstance(x, torch.Tensor) and marks.where(x) is not None else x for x in args]
        return host(*given).to(here() if device is None else device)

    def __repr__(cls) -> str:
        return f"<class 'torch.cuda.{cls.__name__}'>"


def named(dtype: Any) -> torch.dtype | None:
    """The element type of a class, or of the name of one, of the device; None: it is none of those."""
    if isinstance(dtype, _Kind):
        return dtype.dtype
    if isinstance(dtype, str) and dtype.startswith("torch.cuda.") and dtype.endswith("Tensor"):
        return _TYPES.get(dtype[len("torch.cuda.") : -len("Tensor")])
    return None


def install() -> None:
    """Puts all this in torch's place."""
    for name, dtype in _TYPES.items():
        setattr(torch.cuda, f"{name}Tensor", _Kind(f"{name}Tensor", (), {"dtype": dtype, "__module__": "torch.cuda"}))
    _storages()
    _default()


def _storages() -> None:
    storages: Any = torch.UntypedStorage
    makes = storages.__new__

    def __new__(cls: Any, *args: Any, device: Any = None, **kw: Any) -> Any:
        index = marks.index_of(device)
        if index is None:
            return makes(cls, *args, **kw) if device is None else makes(cls, *args, device=device, **kw)
        out = makes(cls, *args, device="cpu", **kw)
        marks.mark(out, index)
        return out

    storages.__new__ = __new__


def _default() -> None:
    """`torch.set_default_tensor_type`: the type of elements, and the device of what names none."""
    sets, makes = torch.set_default_tensor_type, torch.Tensor.__new__
    on_device = [False]

    def __new__(cls: Any, *args: Any, **kw: Any) -> Any:
        out = makes(cls, *args, **kw)
        return out.to(here()) if on_device[0] and cls is torch.Tensor and not kw else out

    def set_default_tensor_type(t: Any, /) -> None:
        dtype = named(t)
        if dtype is None:
            sets(t)
            if on_device[0]:
                on_device[0] = False
                torch.set_default_device(None)
                torch.Tensor.__new__ = makes
            return
        torch.set_default_dtype(dtype)
        torch.set_default_device(here())
        on_device[0] = True
        torch.Tensor.__new__ = __new__

    torch.set_default_tensor_type = set_default_tensor_type
