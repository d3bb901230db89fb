"""Element types: the kernels' dtypes as NumPy arrays, and the numbers in them."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ahbm.errors import ConfigError, UnsupportedError


class Element(NamedTuple):
    """One element type. NumPy has no bf16, f8e4m3 and f8e5m2: their bits are stored, in unsigned integers."""

    name: str
    storage: np.dtype[Any]
    exact: int
    """Integers up to this magnitude, and their sums up to it, are exact."""
    epsilon: float
    """Spacing of the numbers just above 1; 0 for integers."""
    exponents: tuple[int, int] = (0, 0)
    """Powers of two between which numbers of the type are far from its limits, and beyond those of narrower types."""

    @property
    def is_float(self) -> bool:
        """True for floating point."""
        return self.epsilon > 0

    @property
    def narrow(self) -> bool:
        """True for floating point of less than four bytes."""
        return self.is_float and self.storage.itemsize < 4

    @property
    def signed(self) -> bool:
        """True where negative numbers exist."""
        return self.is_float or self.storage.kind == "i"

    def encode(self, values: NDArray[Any]) -> NDArray[Any]:
        """Numbers as stored elements, rounded to nearest even."""
        # Differences of narrower integers may wrap around.
        if self.name == "f16" and values.dtype == np.int64 and values.size > MANY:
            low, high = int(values.min()), int(values.max())
            if high - low < MANY:
                # NumPy converts the half type one number at a time.
                found: NDArray[Any] = np.arange(low, high + 1).astype(self.storage)[values - low]
                return found
        if self.name in _EIGHTHS:
            return _eighth(self.name).encode(values)
        if self.name != "bf16":
            return values.astype(self.storage)
        bits = values.astype(np.float32).view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)

    def decode(self, stored: NDArray[Any]) -> NDArray[Any]:
        """Stored elements as numbers: float64, or the integer type itself."""
        if self.name == "bf16":
            return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        if self.name in _EIGHTHS:
            numbers: NDArray[Any] = _eighth(self.name).numbers[stored]
            return numbers
        if self.name == "f16" and stored.size > MANY:
            found: NDArray[Any] = _halves()[stored.view(np.uint16)]
            return found
        return stored.astype(np.float64) if self.is_float else stored


MANY = 1 << 16
"""More numbers of the half type than there are different ones are looked up."""


@cache
def _halves() -> NDArray[np.float64]:
    """Every number of the half type, by its bits."""
    return np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64)


_EIGHTHS = {"f8e4m3": (3, 7, 0x7F, 0x7E), "f8e5m2": (2, 15, 0x7C, 0x7C)}
"""Of the 8-bit floats: digits behind the point, the exponent's bias, how many positive numbers there are, and the bits
of what is too large: the largest number, and infinity, as in torch."""


class _Eighth(NamedTuple):
    """See `_EIGHTHS`."""

    digits: int
    bias: int
    finite: int
    beyond: int
    numbers: NDArray[np.float64]
    """By bits."""

    def encode(self, values: NDArray[Any]) -> NDArray[np.uint8]:
        """Numbers as bits, rounded to nearest even, once."""
        x = values.astype(np.float64)
        finite = np.where(np.isfinite(x), np.abs(x), 0.0)
        exponent = np.maximum(np.frexp(finite)[1], 2 - self.bias)
        # `rint` rounds to even; the places of a number are those of the integer that it is in units of the last one.
        rounded = np.ldexp(np.rint(np.ldexp(finite, self.digits + 1 - exponent)), exponent - self.digits - 1)
        found = np.searchsorted(self.numbers[: self.finite], rounded)
        bits = np.where(np.isinf(x) | (found == self.finite), self.beyond, found)
        bits = np.where(np.isnan(x), 0x7F, bits | np.signbit(x) << 7)
        return bits.astype(np.uint8)


@cache
def _eighth(name: str) -> _Eighth:
    digits, bias, finite, beyond = _EIGHTHS[name]
    bits = np.arange(128)
    exponent, fraction = bits >> digits, bits & (1 << digits) - 1
    numbers = np.ldexp(
        (fraction + (exponent > 0) * (1 << digits)).astype(np.float64), np.maximum(exponent, 1) - bias - digits
    )
    numbers[finite:] = np.nan
    if beyond == finite:
        numbers[beyond] = np.inf
    return _Eighth(digits, bias, finite, beyond, np.concatenate([numbers, -numbers]))


COMBINE: dict[str, np.ufunc] = {
    "sum": np.add,
    "avg": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}
"""By reduction operator, what combines two numbers; an average is divided afterwards."""


def _float(name: str, storage: str, mantissa: int, exponents: tuple[int, int]) -> Element:
    return Element(name, np.dtype(storage), 1 << (mantissa + 1), 2.0**-mantissa, exponents)


def _integer(name: str) -> Element:
    storage = np.dtype(name[0] + str(int(name[1:]) // 8))
    return Element(name, storage, min(int(np.iinfo(storage).max), 1 << 24), 0.0)


ELEMENTS: dict[str, Element] = {
    element.name: element
    for element in (
        _float("f16", "f2", 10, (-4, 14)),
        _float("bf16", "u2", 7, (-100, 100)),
        _float("f32", "f4", 23, (-100, 100)),
        _float("f64", "f8", 52, (-900, 900)),
        _float("f8e4m3", "u1", 3, (-4, 6)),
        _float("f8e5m2", "u1", 2, (-12, 13)),
        *(_integer(f"{sign}{bits}") for sign in "iu" for bits in (8, 16, 32, 64)),
    )
}
"""Every element type by name."""


def element(dtype: str) -> Element:
    """The element type called `dtype`. Raises UnsupportedError (AHBM-U130)."""
    if dtype not in ELEMENTS:
        from ahbm.base.yaml_source import did_you_mean

        raise UnsupportedError(
            "AHBM-U130", f"no kernel computes with dtype {dtype!r}", hint=did_you_mean(dtype, ELEMENTS)
        )
    return ELEMENTS[dtype]


NCCL_TYPES = {
    "f16": "half",
    "bf16": "bfloat16",
    "f32": "float",
    "f64": "double",
    "f8e4m3": "f8e4m3",
    "f8e5m2": "f8e5m2",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
}
"""The kernels' name of a dtype -> nccl-tests' name."""


def parse_dtype(text: str) -> str:
    """A dtype by our name or nccl-tests'. Raises ConfigError (AHBM-C143)."""
    from ahbm.base.yaml_source import did_you_mean

    names = {**{nccl: ours for ours, nccl in NCCL_TYPES.items()}, **{ours: ours for ours in NCCL_TYPES}}
    if text not in names:
        raise ConfigError("AHBM-C143", f"unknown dtype {text!r}", hint=did_you_mean(text, names))
    return names[text]
