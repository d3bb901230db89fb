"""The user's tensors as flat memory that a collective can work on.

NumPy arrays are taken as they are. Torch CPU tensors, and anything else that shows its memory through `numpy()` or
`__array__`, are viewed, never imported: this package does not depend on torch. NumPy has no bf16 and no
8-bit floats of its own, so they travel as `uint16` and `uint8` bits beside their names.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ahbm.errors import DistributedError, UnsupportedError

DTYPE_NAMES: dict[str, str] = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2",
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


BITS = {"bf16": "uint16", "f8e4m3": "uint8", "f8e5m2": "uint8"}
"""The kernels' name of a dtype that NumPy does not have -> the NumPy dtype of its bits."""


@lru_cache(maxsize=256)
def kernel_dtype(dtype: np.dtype[Any]) -> str | None:
    """The kernels' name of a dtype in this computer's byte order, None for others; NumPy spells `dtype.name` anew each
    time."""
    return DTYPE_NAMES.get(dtype.name) if dtype.isnative else None


_MEMORY: Any = ctypes.c_char * sys.maxsize
"""All memory from an address on: NumPy takes as much of it as an array asks for."""


def memory_of(tensor: Any, shape: int | tuple[int, ...], dtype: np.dtype[Any], strides: Any = None) -> NDArray[Any]:
    """An array over the memory of a dense torch CPU tensor, which must have `shape` elements of `dtype`.

    `Tensor.numpy()` would forbid for good that the tensor is resized. This array allows it: while it is in use, nobody
    may resize the tensor; afterwards it does not matter. The array keeps the tensor's storage, not the tensor, for a
    tensor may get another storage (`x.data = y`).

    Raises DistributedError (AHBM-X130) for a tensor whose storage was freed by `resize_(0)`.
    """
    address = tensor.data_ptr()
    if not address and tensor.numel():
        raise DistributedError(
            "AHBM-X130",
            f"a tensor of {tensor.numel()} elements has no memory",
            hint="its storage was resized to 0: give it memory first",
        )
    memory = _MEMORY.from_address(address)
    memory.owner = tensor.untyped_storage()
    return np.ndarray(shape, dtype, memory, strides=strides)


@dataclass(frozen=True)
class Hollow:
    """Stands for a flat array where there are no data: what the elements of a tensor without memory are."""

    size: int
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Bytes that the elements would take."""
        return self.size * self.dtype.itemsize

    def __getitem__(self, part: slice) -> Hollow:
        return Hollow(len(range(*part.indices(self.size))), self.dtype)


@dataclass(eq=False, slots=True)
class Flat:
    """A user's tensor as a flat array of elements, in C order, that can be assigned back."""

    tensor: Any
    array: NDArray[Any] | Hollow
    """Shares the tensor's memory where that is contiguous; types of `BITS` appear as their bits."""
    dtype: str
    """The kernels' name of the element type, e.g. `"f16"`."""
    restore: Callable[[NDArray[Any]], object] | None = None
    """Takes the elements to the tensor; None where they are its memory."""
    shape: tuple[int, ...] | None = None
    """The tensor's, where ranks must agree on it; None: on its number of elements alone."""
    view: NDArray[Any] | None = None
    """The memory that the elements were copied from; None where `array` is it."""
    taken: Callable[[], NDArray[Any]] | None = None
    """Copies the elements from `view` anew."""
    _span: tuple[int, int] | None = None

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.array.size

    @property
    def memory(self) -> NDArray[Any] | Hollow:
        """The user's memory, as it lies."""
        return self.array if self.view is None else self.view

    @property
    def span(self) -> tuple[int, int]:
        """The addresses of the first byte of the memory and of the one behind it; (0, 0) for none."""
        if self._span is None:
            self._span = _span(self.memory)
        return self._span

    def refresh(self) -> None:
        """Takes the elements as they are now, to where the array is."""
        if self.taken is not None and not isinstance(self.array, Hollow):
            self.array[...] = self.taken()

    def writable(self) -> None:
        """Raises DistributedError (AHBM-X130) for a tensor some of whose elements are one place in memory."""
        if self.view is not None and _overlaps(self.view):
            raise DistributedError(
                "AHBM-X130",
                f"elements of a tensor of shape {self.view.shape} share memory (strides of {self.view.strides} bytes), "
                "and a collective writes its result into it",
                hint="pass a copy: x = x.clone() in torch, x = x.copy() in NumPy",
            )

    def copy(self) -> NDArray[Any] | Hollow:
        """The elements in memory of their own."""
        return self.array if isinstance(self.array, Hollow) else self.array.copy()

    def room(self, size: int) -> NDArray[Any] | Hollow:
        """`size` zeros of the same type; hollow if the elements are."""
        return (Hollow if isinstance(self.array, Hollow) else np.zeros)(size, self.array.dtype)

    def into(self, buffer: NDArray[Any] | Hollow, start: int) -> None:
        """Writes the elements to `buffer[start:]`."""
        if not isinstance(buffer, Hollow):
            buffer[start : start + self.array.size] = self.array

    def assign(self, values: NDArray[Any] | Hollow) -> None:
        """Writes `values`, as many elements, into the tensor; nothing to do where they are its memory already."""
        if isinstance(values, Hollow) or isinstance(self.array, Hollow):
            return
        if self.restore is not None:
            self.restore(values)
        elif values is not self.array:
            self.array[...] = values


def flat_host(tensor: object, *, writable: bool, what: str = "tensor") -> Flat:
    """A NumPy array, a torch CPU tensor or what else shows its memory, flat.

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
    if name in BITS:
        array = array.view(BITS[name])
    else:
        name = _only_bits(tensor) or name
    if array.flags.c_contiguous:
        return Flat(tensor, array.reshape(-1), name, None, array.shape)
    take = partial(_take, array)
    return Flat(tensor, take(), name, partial(_write, array), array.shape, array, take)


def _take(array: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(array).reshape(-1)


def _overlaps(array: NDArray[Any]) -> bool:
    """Whether two elements share memory."""
    axes = [(abs(stride), size) for stride, size in zip(array.strides, array.shape, strict=True) if size != 1]
    if array.size == 0:
        return False
    reach = array.itemsize
    for stride, size in sorted(axes):
        if stride < reach:
            break
        reach += stride * (size - 1)
    else:
        return False
    if any(not stride for stride, _ in axes):
        return True
    starts = np.zeros(1, np.int64)  # nested axes that may yet miss one another
    for stride, size in axes:
        starts = np.add.outer(starts, stride * np.arange(size)).ravel()
    starts.sort()
    return bool((np.diff(starts) < array.itemsize).any())


def _span(array: NDArray[Any] | Hollow) -> tuple[int, int]:
    if isinstance(array, Hollow) or not array.size:
        return 0, 0
    start: int = array.__array_interface__["data"][0]
    if array.ndim == 1 and array.strides[0] == array.itemsize:
        return start, start + array.nbytes
    reaches = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    return start + sum(min(each, 0) for each in reaches), start + sum(max(each, 0) for each in reaches) + array.itemsize


def _write(array: NDArray[Any], elements: NDArray[Any]) -> None:
    array[...] = elements.reshape(array.shape)


def _only_bits(tensor: object) -> str | None:
    """The kernels' name of the dtype of a tensor that NumPy can show the bits of only."""
    name = DTYPE_NAMES.get(str(getattr(tensor, "dtype", "")).rpartition(".")[2])
    return name if name in BITS else None


def _numpy_view(tensor: object, what: str) -> NDArray[Any]:
    if isinstance(tensor, np.ndarray):
        return tensor
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        view = _torch_view(tensor, torch)
        if view is not None:
            return view
    view, again = _foreign_view(tensor, what), _foreign_view(tensor, what)
    if view.size and not np.shares_memory(view, again):
        raise DistributedError(
            "AHBM-X130",
            f"{what} of type {type(tensor).__name__} gives out copies of its memory",
            hint="pass a NumPy array or a torch CPU tensor",
        )
    return view


def _torch_view(tensor: Any, torch: Any) -> NDArray[Any] | None:
    """None for a tensor that is not plain memory of this process."""
    plain = tensor.detach()
    dense = type(plain) is torch.Tensor and plain.is_cpu and plain.layout is torch.strided
    if not dense or plain.is_conj() or plain.is_neg():
        return None
    name = str(plain.dtype).removeprefix("torch.")
    try:
        dtype = np.dtype(BITS.get(DTYPE_NAMES.get(name, ""), name))
    except TypeError:
        return None
    strides = tuple(stride * dtype.itemsize for stride in plain.stride())
    return memory_of(plain, tuple(plain.shape), dtype, strides)


def _foreign_view(tensor: Any, what: str) -> NDArray[Any]:
    kind = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
    try:
        if hasattr(tensor, "detach"):
            tensor = tensor.detach()
        if hasattr(tensor, "numpy"):
            if bits := BITS.get(_only_bits(tensor) or ""):
                module = sys.modules[type(tensor).__module__.partition(".")[0]]
                return np.asarray(tensor.view(getattr(module, bits.removeprefix("u"))).numpy()).view(bits)
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
