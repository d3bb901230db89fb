"""The computer that this runs on."""

from __future__ import annotations

import ctypes
import sys

import pytest

from ahbm.base import host


def test_memory_is_what_the_system_says() -> None:
    assert host.memory_bytes() > 1 << 28


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
def test_memory_is_no_more_than_the_process_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda what: (1 << 20, 1 << 20))
    assert host.memory_bytes() == 1 << 20


def test_the_structure_for_windows_has_its_size() -> None:
    assert ctypes.sizeof(host._Memory) == 64 and host._Memory.total.offset == 8
