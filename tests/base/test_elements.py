"""Numbers as stored elements and back, few of them and so many that they are looked up."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ahbm.base.elements import ELEMENTS, MANY


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i8", "u8", "f8"])
@pytest.mark.parametrize("size", [MANY, MANY + 1])
def test_many_halves_are_as_a_few(dtype: str, size: int) -> None:
    half = ELEMENTS["f16"]
    values = np.resize(np.array([-100, 100, 127, -128, 0, 1]), size).astype(dtype)
    stored = half.encode(values)
    assert np.array_equal(stored, values.astype(np.float16))
    assert np.array_equal(half.decode(stored), stored.astype(np.float64))


def test_every_half_is_read() -> None:
    stored = np.resize(np.arange(1 << 16, dtype=np.uint16), MANY + 1).view(np.float16)
    assert np.array_equal(ELEMENTS["f16"].decode(stored), stored.astype(np.float64), equal_nan=True)


@pytest.mark.parametrize(("dtype", "theirs"), [("f8e4m3", ml_dtypes.float8_e4m3fn), ("f8e5m2", ml_dtypes.float8_e5m2)])
def test_floats_of_8_bits_are_those_of_ml_dtypes(dtype: str, theirs: type) -> None:
    kind, bits = ELEMENTS[dtype], np.arange(256, dtype=np.uint8)
    numbers = bits.view(theirs).astype(np.float64)
    assert np.array_equal(kind.decode(bits), numbers, equal_nan=True)
    finite = np.sort(numbers[np.isfinite(numbers)])
    middles = (finite[1:] + finite[:-1]) / 2
    largest = finite[-1] + (finite[-1] - finite[-2]) / 2
    ends = np.array([np.nextafter(largest, 0), 1e-30, 0.0])
    x = np.concatenate([finite, middles, np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf), ends, -ends])
    ours, want = kind.encode(x), x.astype(theirs).view(np.uint8)
    # ml_dtypes rounds to f32 first.
    exact = x == x.astype(np.float32)
    assert exact.sum() > 400 and np.array_equal(ours[exact], want[exact])
    assert np.array_equal(kind.encode(middles), kind.encode(middles.astype(np.float32)))
    above = kind.decode(kind.encode(np.nextafter(middles, np.inf)))
    assert np.array_equal(above, finite[1:])
    # What is too large is not as in ml_dtypes, but as in torch.
    beyond = finite[-1] if dtype == "f8e4m3" else np.inf
    assert kind.decode(kind.encode(np.array([1e300, np.inf, -np.inf, 2 * finite[-1]]))).tolist() == [
        beyond,
        beyond,
        -beyond,
        beyond,
    ]
    assert np.isnan(kind.decode(kind.encode(np.array([np.nan]))))
