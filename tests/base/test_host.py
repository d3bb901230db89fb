"""The computer that this runs on."""

from __future__ import annotations

import ctypes

from ahbm.base import host


def test_memory_is_what_the_system_says() -> None:
    assert host.memory_bytes() > 1 << 28


def test_the_structure_for_windows_has_its_size() -> None:
    assert ctypes.sizeof(host._Memory) == 64 and host._Memory.total.offset == 8
