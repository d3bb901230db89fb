"""Tensors without data, kernels, and what an operation is given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

Arg = Any
"""An argument of an operation: a `Tensor`, a number, a text, None, or a tuple of such."""

ITEMSIZES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "complex128": 16, "complex64": 8, "complex32": 4,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8, "bool": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
    "float4_e2m1fn_x2": 1, "quint8": 1, "qint8": 1, "qint32": 4, "quint4x2": 1, "quint2x4": 1, "bits8": 1,
}  # fmt: skip
"""Bytes of an element by torch's name of its type."""
FLOATS = {name for name in ITEMSIZES if name.startswith(("float", "bfloat", "complex"))}
HALVES = ("float16", "bfloat16")
MOST = (1 << 32) - 1


class Tensor(NamedTuple):
    """A tensor without data."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    """torch's name of the type."""
    strides: tuple[int, ...] | None = None
    """In elements; None: dense in the order of its axes."""
    again: bool = False
    """Whether it is the same tensor as an earlier argument."""
    true: int | None = None
    """Of a mask: how many of its elements are true; None: not known."""
    sparse: bool = False
    """Whether it is sparse: its shape is that of the rows that it stores."""

    @property
    def numel(self) -> int:
        """Its elements."""
        return prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return ITEMSIZES.get(self.dtype, 4)

    @property
    def step(self) -> tuple[int, ...]:
        """Its strides in elements."""
        return dense(self.shape) if self.strides is None else self.strides

    @property
    def nbytes(self) -> int:
        """The bytes of its elements, those that lie in one place counted once."""
        if self.strides is None:
            return self.numel * self.itemsize
        count = span = 1
        for size, stride in zip(self.shape, self.strides, strict=False):
            if not size:
                return 0
            if stride:
                count *= size
                span += (size - 1) * stride
        return min(count, span) * self.itemsize

    @property
    def is_dense(self) -> bool:
        """Whether its elements fill their place, in whatever order of its axes."""
        return self.nbytes == self.numel * self.itemsize and self.order is not None

    @property
    def order(self) -> tuple[int, ...] | None:
        """Its axes of more than one element from the slowest to the quickest; None where places are left out."""
        axes = [i for i, n in enumerate(self.shape) if n != 1]
        step = self.step
        axes.sort(key=lambda i: -step[i])
        at = 1
        for i in reversed(axes):
            if step[i] != at:
                return None
            at *= self.shape[i]
        return tuple(axes)

    @property
    def channels_last(self) -> bool:
        """Whether its second axis is the quickest one of at least three, as in torch's channels_last."""
        if len(self.shape) < 4 or self.strides is None or self.shape[1] == 1:
            return False
        return self.step[1] == 1 and prod(self.shape[2:]) > 1


def dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a tensor that is dense in the order of its axes."""
    found, at = [], 1
    for size in reversed(shape):
        found.append(at)
        at *= max(size, 1)
    return tuple(reversed(found))


class Kernel(NamedTuple):
    """One launch of a kernel."""

    kind: str
    """Its class (`ahbm_workload::Kind`), which says what its dimensions are."""
    dims: tuple[int, ...] = ()
    operations: int = 0
    nbytes: int = 0
    """Read and written, each once; 0 of what is done for the kernel beside it, such as counters that are cleared."""
    arithmetic: str = "f16"
    """The type of its operations, as `Machine.kernel_ps` names it."""


@dataclass(frozen=True)
class Flags:
    """What torch's flags and the device decide."""

    tf32_products: bool = False
    tf32_convolutions: bool = True
    attention: tuple[str, ...] = ("cudnn", "flash", "efficient", "math")
    """The backends of attention that are allowed, those that torch prefers first."""
    units: int = 132
    """Streaming multiprocessors."""


DEFAULT = Flags()


@dataclass
class Call:
    """An operation with its arguments in the order of its schema."""

    name: str
    args: tuple[Arg, ...]
    outs: tuple[Tensor, ...] | None = None
    """None: not known."""
    flags: Flags = DEFAULT
    operations: int | None = None
    """What torch counts; None: not known."""
    given: list[Tensor] = field(init=False)
    """All tensors among the arguments."""

    def __post_init__(self) -> None:
        self.given = list(tensors(self.args))

    def arg(self, at: int, default: Any = None) -> Any:
        """An argument by its place."""
        return self.args[at] if at < len(self.args) and self.args[at] is not None else default

    def tensor(self, at: int) -> Tensor | None:
        """The tensor in a place; None: there is none."""
        found = self.args[at] if at < len(self.args) else None
        return found if isinstance(found, Tensor) else None

    def need(self, at: int) -> Tensor:
        """The tensor in a place. Raises `Unknown` where there is none."""
        found = self.tensor(at)
        if found is None:
            raise Unknown(self.name)
        return found

    def number(self, at: int, default: float = 0) -> float:
        """A number by its place."""
        found = self.arg(at, default)
        return found if isinstance(found, int | float) else default

    def ints(self, at: int) -> tuple[int, ...]:
        """Integers by their place: of one as of a list; none where nothing is given."""
        found = self.arg(at, ())
        if isinstance(found, int):
            return (int(found),)
        return tuple(int(n) for n in found if isinstance(n, int)) if isinstance(found, tuple) else ()

    def mask(self, at: int, count: int) -> tuple[bool, ...]:
        """Which results are wanted, by a list of truth values: all where it does not say."""
        found = self.arg(at, ())
        if isinstance(found, tuple) and len(found) == count:
            return tuple(bool(each) for each in found)
        return (True,) * count

    @cached_property
    def in_place(self) -> bool:
        """Whether its first operand is written."""
        return self.name.endswith("_") and not self.name.endswith("__")

    @cached_property
    def out(self) -> Tensor | None:
        """Its first result, where that is known."""
        if self.outs:
            return self.outs[0]
        return self.tensor(0) if self.in_place else None

    def arithmetic(self, x: Tensor | None = None, *, convolves: bool = False, multiplies: bool = True) -> str:
        """The type of its operations. torch's flags say which products of f32 are done in TF32."""
        dtype = (x or (self.given[0] if self.given else Tensor(()))).dtype
        size = ITEMSIZES.get(dtype, 4)
        if dtype == "float64" or dtype == "complex128":
            return "f64"
        if size <= 2:
            return "f16" if size == 2 else "f8"
        if multiplies and dtype in ("float32", "complex64"):
            allowed = self.flags.tf32_convolutions if convolves else self.flags.tf32_products
            return "tf32" if allowed else "f32"
        return "f32"


class Unknown(Exception):
    """The operation's arguments are not those that its rule knows."""


def tensors(args: Iterable[Arg]) -> Iterator[Tensor]:
    """The tensors among arguments, in order."""
    for arg in args:
        if isinstance(arg, Tensor):
            yield arg
        elif isinstance(arg, tuple):
            yield from tensors(arg)


def broadcast(shapes: Iterable[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The shape that they broadcast to; None: they do not."""
    found: list[int] = []
    for shape in shapes:
        if len(shape) > len(found):
            found = [1] * (len(shape) - len(found)) + found
        for at, size in enumerate(reversed(shape), 1):
            if size != 1 and found[-at] != size:
                if found[-at] != 1:
                    return None
                found[-at] = size
    return tuple(found)


def kernel(kind: str, *dims: int, nbytes: int = 0, operations: int = 0, arithmetic: str = "f16") -> Kernel:
    """A kernel, its dimensions clipped to what a trace can write."""
    clipped = tuple(min(max(int(n), 0), MOST) for n in dims)
    return Kernel(kind, clipped, int(operations), max(int(nbytes), 0), arithmetic)
