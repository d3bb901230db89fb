"""One process as one rank of many (`--ranks N`), and tensors without data (`--fake`)."""

from __future__ import annotations

import math
import os
from typing import Any

import torch
import torch.distributed as dist

from ahbm.base.logs import notice
from ahbm.errors import UnsupportedError

WORLD = "AHBM_WORLD"
"""Environment variable: the number of ranks that one process stands for, and which of them it is."""
FAKE = "AHBM_FAKE"


def wanted() -> tuple[int, int] | None:
    """The rank and the number of ranks that this process plays; None where it is one of real ones."""
    asked = os.environ.get(WORLD)
    if not asked:
        return None
    ranks, _, rank = asked.partition(":")
    return int(rank or 0), int(ranks)


def refuse_hosts() -> None:
    """Raises UnsupportedError (AHBM-U156) where torchrun has started ranks on several hosts."""
    hosts = os.environ.get("GROUP_WORLD_SIZE") or "1"
    if hosts != "1":
        raise UnsupportedError(
            "AHBM-U156",
            f"ranks on {hosts} hosts: the emulator is in the process of rank 0, which others reach on one host",
            hint="run all ranks on this host, or --ranks N, one process that stands for all",
        )


def environment(devices: int) -> None:
    """Sets what torchrun would."""
    found = wanted()
    if found is None:
        return
    rank, ranks = found
    local = min(devices, ranks)
    facts = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank % local, "LOCAL_WORLD_SIZE": local}
    os.environ.update({key: f"{value}" for key, value in facts.items()})
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")


def initialize() -> Any:
    """`init_process_group` of one rank that stands for all."""
    from ahbm.torch.alone import init_alone

    found = wanted()
    assert found is not None
    notice(f"this process is rank {found[0]} of {found[1]} ranks like it")
    init_alone(*found)
    return dist.group.WORLD


def fake_mode() -> Any:
    """The mode in which tensors have no data; None where they have. See `values` and `sizes` for what is known of it
    after all, and what is invented."""
    if not os.environ.get(FAKE):
        return None
    from torch._subclasses.fake_tensor import FakeTensorMode

    from ahbm.torch.device import files, sizes, values

    sizes.skew()
    values.install()
    files.install()

    swaps = torch.utils.swap_tensors

    def swap_tensors(old: torch.Tensor, new: torch.Tensor) -> None:
        try:
            swaps(old, new)
        except RuntimeError:  # torch's fake mode has weak references to them, which swapping does not mind here
            old.__dict__, new.__dict__ = new.__dict__, old.__dict__
            torch._C._swap_tensor_impl(old, new)

    torch.utils.swap_tensors = swap_tensors
    return FakeTensorMode(allow_non_fake_inputs=True)


LARGE = 1 << 16
"""Elements from which on a tensor of integers of the host has no data, either."""


def is_large(args: Any, dtype: torch.dtype | None) -> bool:
    """Whether what a factory makes on the host has no data: a model may be larger than memory. All of a model has none,
    so that its parameters stay the same objects where they move."""
    size = args[0] if args else ()
    if not isinstance(size, list | tuple) or not size or not all(type(n) is int for n in size):
        return False
    return (dtype or torch.get_default_dtype()).is_floating_point or math.prod(size) >= LARGE

