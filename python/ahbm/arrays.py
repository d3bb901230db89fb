"""Whatever the user calls a tensor, as flat memory a collective can work on.

NumPy arrays are taken as they are. Torch CPU tensors, and anything else that shows its memory through `numpy()` or
`__array__`, are viewed, never imported: this package does not depend on torch. bf16 has no NumPy dtype of its own, so
it travels as `uint16` bits beside the name `"bf16"`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ahbm.errors import DistributedError, UnsupportedError

DTYPE_NAMES: dict[str, str] = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
}
"""NumPy's name of a dtype -> the kernels' name of it."""


@lru_cache(maxsize=256)
def kernel_dtype(dtype: np.dtype[Any]) -> str | None:
    """The kernels' name of a dtype in this computer's byte order, None for others; NumPy spells `dtype.name` anew each
    time."""
    return DTYPE_NAMES.get(dtype.name) if dtype.isnative else None


@dataclass(frozen=True)
class HostTensor:
    """A user's tensor seen as a NumPy array that shares its memory."""

    array: NDArray[Any]
    """Any shape and strides; bf16 appears as uint16."""
    dtype: str
    """The kernels' name of the element type, e.g. `"f16"`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape."""
        return self.array.shape

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.array.size

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.array.nbytes

    def flat(self) -> NDArray[Any]:
        """All elements in C order: a view where the memory is contiguous, else a copy (`assign` takes it back)."""
        return np.ascontiguousarray(self.array).reshape(-1)

    def assign(self, flat: NDArray[Any]) -> None:
        """Writes `flat` (same number of elements, C order) into the tensor; a no-op for a view made by `flat`."""
        if self.size and not (self.array.flags.c_contiguous and np.may_share_memory(flat, self.array)):
            self.array[...] = flat.reshape(self.array.shape)


def host_tensor(tensor: object, *, writable: bool, what: str = "tensor") -> HostTensor:
    """Views `tensor` as a `HostTensor`.

    Raises DistributedError (AHBM-X130) when its memory cannot be shared or, with `writable`, not be written, and
    UnsupportedError (AHBM-U130) for an element type no kernel computes with.
    """
    array = _numpy_view(tensor, what)
    if writable and not array.flags.writeable:
        raise DistributedError(
            "AHBM-X130",
            f"{what} is read-only, and a collective writes its result into it",
            hint="pass a copy: x = x.copy()",
        )
    name = kernel_dtype(array.dtype)
    if name is None:
        supported = ", ".join(DTYPE_NAMES.values())
        raise UnsupportedError(
            "AHBM-U130",
            f"{what} has dtype {array.dtype}, which no kernel computes with",
            hint=f"convert it to one of {supported}",
        )
    if name == "bf16":
        array = array.view(np.uint16)
    elif name == "u16" and _is_bfloat16(tensor):
        name = "bf16"
    return HostTensor(array, name)


def _is_bfloat16(tensor: object) -> bool:
    return str(getattr(tensor, "dtype", "")).endswith("bfloat16")


def _numpy_view(tensor: object, what: str) -> NDArray[Any]:
    if isinstance(tensor, np.ndarray):
        return tensor
    view, again = _foreign_view(tensor, what), _foreign_view(tensor, what)
    if view.size and not np.shares_memory(view, again):
        raise DistributedError(
            "AHBM-X130",
            f"{what} of type {type(tensor).__name__} gives out copies of its memory",
            hint="pass a NumPy array or a torch CPU tensor",
        )
    return view


def _foreign_view(tensor: Any, what: str) -> NDArray[Any]:
    kind = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
    try:
        if hasattr(tensor, "detach"):
            tensor = tensor.detach()
        if hasattr(tensor, "numpy"):
            if _is_bfloat16(tensor):
                module = sys.modules[type(tensor).__module__.partition(".")[0]]
                return np.asarray(tensor.view(module.int16).numpy()).view(np.uint16)
            return np.asarray(tensor.numpy())
        if hasattr(tensor, "__array__") and getattr(tensor, "shape", None) is not None and not np.isscalar(tensor):
            return np.asarray(tensor)
    except (TypeError, RuntimeError, BufferError) as error:
        raise DistributedError(
            "AHBM-X130",
            f"{what} of type {kind} does not show its memory: {error}",
            hint="move it to the host first, e.g. x = x.cpu()",
        ) from error
    raise DistributedError(
        "AHBM-X130",
        f"{what} is of type {kind}, not an array",
        hint="pass a NumPy array or a torch CPU tensor; scalars have no memory to write to",
    )
