"""Memory behind addresses: the buffers that programs allocate, and tensors whose addresses they have asked for."""

from __future__ import annotations

import ctypes
import math
import re
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ahbm.base.arguments import whole
from ahbm.errors import DistributedError

_lock = threading.Lock()
_live: dict[int, _Range] = {}
"""By first address."""


@dataclass(frozen=True)
class _Range:
    nbytes: int
    alive: Callable[[], bool]
    """Whether the memory is still there."""


def register(address: int, nbytes: int, alive: Callable[[], bool]) -> None:
    """Memory of `nbytes` bytes from `address` on may be used as long as `alive()`."""
    with _lock:
        if len(_live) >= 256:
            for start in [start for start, known in _live.items() if not known.alive()]:
                del _live[start]
        _live[address] = _Range(nbytes, alive)


def at(address: int, nbytes: int, what: str) -> tuple[NDArray[np.uint8], int]:
    """The `nbytes` bytes at `address`, and their offset in the memory that they are part of.

    Raises DistributedError (AHBM-X130) unless they lie inside of live memory.
    """
    address, nbytes = whole(what, address, 0, 2**64 - 1), whole(f"{what} size", nbytes, 0, 2**63 - 1)
    with _lock:
        known = list(_live.items())
    for start, memory in known:
        if start <= address and address + nbytes <= start + memory.nbytes and memory.alive():
            there: Any = (ctypes.c_char * nbytes).from_address(address)
            return np.ndarray(nbytes, np.uint8, there), address - start
    raise DistributedError(
        "AHBM-X130",
        f"{what}: {nbytes} bytes at address {address:#x} lie in no RawGpuBuffer and in no CPU tensor that is known",
        hint="pass RawGpuBuffer.data(), GpuBuffer.data.ptr, or tensor.data_ptr() under python -m ahbm.torch",
    )


class RawGpuBuffer:
    """`nbytes` bytes of host memory, zeros at first; alive as long as the object or a tensor made of it is.

    Raises ConfigError (AHBM-C129) for what is no number of bytes.
    """

    def __init__(self, nbytes: int) -> None:
        self._memory = np.zeros(whole("nbytes", nbytes, 0, 2**48), np.uint8)
        memory = weakref.ref(self._memory)
        register(self.data(), self._memory.nbytes, lambda: memory() is not None)

    def data(self) -> int:
        """The address of the first byte."""
        return int(self._memory.ctypes.data)

    def bytes(self) -> int:
        """The size in bytes."""
        return self._memory.nbytes

    def nelems(self) -> int:
        """The size in elements, which are bytes."""
        return self._memory.size

    def device_id(self) -> int:
        """0: the host."""
        return 0

    def to_dlpack(self, data_type: str, shape: Sequence[int] = (), strides: Sequence[int] = ()) -> Any:
        """The memory as what `torch.utils.dlpack.from_dlpack` takes. Needs torch.

        `data_type` is a torch dtype's name; `shape` and `strides` are elements, by default one axis over all memory.
        Raises DistributedError (AHBM-X130) for a type that torch does not have and a shape that does not fit.
        """
        from ahbm.torch.addresses import tensor_of

        name = re.sub(r"^torch\.", "", str(data_type))
        tensor = tensor_of(self._memory, name)
        if tensor is None:
            raise DistributedError("AHBM-X130", f"to_dlpack: {data_type!r} is no dtype of torch")
        steps = list(strides) or [math.prod(shape[at + 1 :]) for at in range(len(shape))]
        last = sum((size - 1) * step for size, step in zip(shape, steps, strict=False)) if all(shape) else -1
        if len(steps) != len(shape) or min([*shape, *steps, 0]) < 0 or (shape and last >= tensor.numel()):
            message = f"to_dlpack: shape {list(shape)} and strides {list(strides)} do not fit {tensor.numel()} elements"
            raise DistributedError("AHBM-X130", message)
        return tensor.as_strided(list(shape), steps) if shape else tensor


@dataclass(frozen=True)
class Pointer:
    """The address of an array."""

    ptr: int


class GpuBuffer(np.ndarray[Any, Any]):
    """Zeros of `shape` elements in the memory of a `RawGpuBuffer`: a NumPy array that tells its address as CuPy's do.

    `order` is "C" or "F", `strides` are bytes. Raises ConfigError (AHBM-C129) for a shape with an axis that is not
    positive, TypeError and ValueError as `numpy.ndarray`.
    """

    def __new__(
        cls, shape: int | Sequence[int], dtype: Any = float, strides: Sequence[int] | None = None, order: str = "C"
    ) -> GpuBuffer:
        """The array."""
        axes = [shape] if isinstance(shape, int) else list(shape)
        sizes = tuple(whole("shape", size, 1, 2**48) for size in axes)
        kind = np.dtype(dtype)
        if kind.hasobject:
            raise TypeError(f"GpuBuffer of {kind}: objects are no data")
        memory = RawGpuBuffer(math.prod(sizes) * kind.itemsize)._memory
        steps = None if strides is None else tuple(strides)
        return super().__new__(cls, sizes, kind, memory, 0, steps, order)  # type: ignore[arg-type]

    @property
    def data(self) -> Pointer:  # type: ignore[override]
        """`data.ptr` is the address of the first element."""
        return Pointer(self.ctypes.data)

    def get(self) -> NDArray[Any]:
        """A copy as a plain NumPy array."""
        return np.array(self)

    def set(self, values: NDArray[Any]) -> None:
        """Copies `values`, of the same shape, into it. Raises ValueError for another shape."""
        if np.shape(values) != self.shape:
            raise ValueError(f"GpuBuffer.set: shape {np.shape(values)} for {self.shape}")
        self[...] = values
