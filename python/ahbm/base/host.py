"""The computer that this runs on."""

from __future__ import annotations

import ctypes
import os
import sys

from ahbm.errors import BudgetError


class _Memory(ctypes.Structure):
    """MEMORYSTATUSEX of sysinfoapi.h."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load_percent", ctypes.c_uint32),
        *((name, ctypes.c_uint64) for name in ("total", "free", "page_total", "page_free", "virtual", "virtual_free")),
        ("extended_free", ctypes.c_uint64),
    )


def memory_bytes() -> int:
    """Bytes of memory that this process may have: the computer's, or fewer where `ulimit -v` says so.

    Raises OSError where the system does not say.
    """
    if sys.platform != "win32":
        import resource

        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        return whole if limit == resource.RLIM_INFINITY else min(whole, limit)
    status = _Memory(length=ctypes.sizeof(_Memory))
    if not ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        raise ctypes.WinError()
    return int(status.total)


def exhausted(error: MemoryError) -> BudgetError:
    """The error (AHBM-B301) for memory that was asked for and that there was not; `error` says how much, if NumPy's."""
    asked = str(error) or "no memory is left"
    return BudgetError(
        "AHBM-B301",
        f"the data do not fit: {asked[0].lower()}{asked[1:]}, this process may have {memory_bytes()} bytes",
        hint="--no-data (data=False) runs for the time; or take smaller sizes, or fewer at once",
    )


def processors() -> int:
    """Processors that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
