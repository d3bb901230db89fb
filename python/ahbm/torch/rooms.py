"""Memory in which rank 0's process works for other ranks."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGE = 1 << 20
"""Bytes of an array; smaller ones are left to the allocator, which keeps them anyway."""
KEPT = 1 << 30
"""Bytes that are kept at most."""


class Rooms:
    """Arrays that are free, for the next of equal size: pages that were touched once are several times as fast.
    Thread-safe."""

    def __init__(self) -> None:
        self._free: OrderedDict[int, list[NDArray[Any]]] = OrderedDict()
        """By their bytes, the sizes that were used last at the end."""
        self._bytes = 0
        self._lock = threading.Lock()

    def take(self, size: int, dtype: np.dtype[Any], filled: slice) -> NDArray[Any]:
        """An array of `size` elements, zero but for those that the caller will fill."""
        with self._lock:
            free = self._free.get(size * dtype.itemsize)
            room = free.pop() if free else None
            self._bytes -= 0 if room is None else room.nbytes
        if room is None:
            return np.zeros(size, dtype)
        array = room.view(dtype)
        array[: filled.start] = 0
        array[filled.stop :] = 0
        return array

    def put(self, array: NDArray[Any]) -> None:
        """`array`, which nobody uses any more; the sizes that were not used for long make room."""
        if not LARGE <= array.nbytes <= KEPT:
            return
        with self._lock:
            self._free.setdefault(array.nbytes, []).append(array)
            self._free.move_to_end(array.nbytes)
            self._bytes += array.nbytes
            while self._bytes > KEPT:
                size, free = next(iter(self._free.items()))
                if free:
                    self._bytes -= size
                    free.pop()
                else:
                    del self._free[size]
