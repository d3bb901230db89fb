"""The computer that this runs on."""

from __future__ import annotations

import ctypes
import os
import sys


class _Memory(ctypes.Structure):
    """MEMORYSTATUSEX of sysinfoapi.h."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load_percent", ctypes.c_uint32),
        *((name, ctypes.c_uint64) for name in ("total", "free", "page_total", "page_free", "virtual", "virtual_free")),
        ("extended_free", ctypes.c_uint64),
    )


def memory_bytes() -> int:
    """Bytes of memory that the computer has. Raises OSError where the system does not say."""
    if sys.platform != "win32":
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    status = _Memory(length=ctypes.sizeof(_Memory))
    if not ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        raise ctypes.WinError()
    return int(status.total)


def processors() -> int:
    """Processors that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
