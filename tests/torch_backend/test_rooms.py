"""Memory that rank 0's process uses again."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install .[torch]")

from ahbm.torch import rooms
from ahbm.torch.rooms import LARGE, Rooms

F32 = np.dtype(np.float32)
WHOLE = slice(0, LARGE)


def test_what_the_next_does_not_fill_is_zero() -> None:
    kept = Rooms()
    first = kept.take(LARGE, F32, WHOLE)
    first[:] = 7
    kept.put(first)
    second = kept.take(LARGE, F32, slice(5, LARGE - 3))
    assert np.shares_memory(first, second)
    assert not second[:5].any() and not second[-3:].any() and (second[5:-3] == 7).all()
    assert not np.shares_memory(second, kept.take(LARGE, F32, WHOLE))
    kept.put(second)
    assert kept.take(2 * LARGE, np.dtype(np.float16), slice(0, 0)).any() == np.False_


def test_little_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "KEPT", 10 * LARGE)
    kept = Rooms()
    small, huge = np.zeros(LARGE // 8, F32), np.zeros(4 * LARGE, F32)
    for array in (small, huge):
        kept.put(array)
        assert not np.shares_memory(array, kept.take(array.size, F32, slice(0, array.size)))
    given = [np.zeros(size * LARGE // 4, F32) for size in (4, 3, 2, 4)]
    for array in given:
        kept.put(array)
    found = [kept.take(array.size, F32, slice(0, array.size)) for array in given]
    assert sum(any(np.shares_memory(x, y) for y in given) for x in found) == 3
    assert np.shares_memory(given[3], found[0])
