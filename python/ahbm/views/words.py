"""Numbers in words."""

from __future__ import annotations

SUBTITLE = "All times are simulated. GB/s is 1e9 bytes per second; busbw as nccl-tests counts it, one direction."
"""Of pages of sweeps."""


def time(ps: float) -> str:
    """A simulated time for people, with four digits."""
    for unit, name in ((1e9, "ms"), (1e6, "us"), (1e3, "ns")):
        if ps >= unit:
            return f"{ps / unit:.4g} {name}"
    return f"{ps:g} ps"


def size(nbytes: int) -> str:
    """A number of bytes for people; exact."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= unit and nbytes % unit == 0:
            return f"{nbytes // unit} {name}"
    return f"{nbytes:,} B"
