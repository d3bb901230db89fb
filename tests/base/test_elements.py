"""Numbers as stored elements and back, few of them and so many that they are looked up."""

from __future__ import annotations

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
