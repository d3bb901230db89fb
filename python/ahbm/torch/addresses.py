"""Between addresses and groups of MSCCL++ scripts and torch's tensors and groups."""

from __future__ import annotations

import functools
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch.multiprocessing.reductions import StorageWeakRef

from ahbm.errors import DistributedError
from ahbm.mscclpp import memory
from ahbm.ranks.groups import ProcessGroup as Members
from ahbm.ranks.lobby import TIMEOUT_S
from ahbm.torch.backend import Form
from ahbm.torch.place import Place
from ahbm.torch.places import options
from ahbm.torch.processes import open_place

met: list[tuple[Place, Any]] = []
"""The places of groups that scripts have made without torch, oldest first, and the stores in which they met."""


def tensor_of(array: NDArray[Any], dtype: str) -> torch.Tensor | None:
    """The bytes of `array` as a tensor of the dtype of this name; a rest is left out. None: there is no such dtype."""
    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype):
        return None
    whole = array.size // kind.itemsize * kind.itemsize
    return torch.from_numpy(array[:whole]).view(kind)


def note_addresses() -> None:
    """From now on, the memory of a CPU tensor may be used by the address that `Tensor.data_ptr` tells."""
    tells = torch.Tensor.data_ptr

    @functools.wraps(tells)
    def data_ptr(tensor: torch.Tensor) -> int:
        address: int = tells(tensor)
        if address and tensor.is_cpu:
            storage = tensor.untyped_storage()
            lives = StorageWeakRef(storage)
            memory.register(storage.data_ptr(), storage.nbytes(), lambda: not lives.expired())
        return address

    torch.Tensor.data_ptr = data_ptr


def place_of(group: Any) -> tuple[Place, Members]:
    """The place and members behind one of torch's groups. Raises DistributedError (AHBM-X101) for another backend's."""
    if not isinstance(group, Form):
        raise DistributedError("AHBM-X101", f"{group!r} is no group of backend ahbm")
    return group._place, group.members


def meet(host: str, port: int, rank: int, size: int) -> tuple[Place, Members]:
    """A world of `size` ranks that meet at an address, as which rank 0 listens. Raises as `init_process_group`."""
    timeout = timedelta(seconds=TIMEOUT_S)
    try:
        store = dist.TCPStore(host, port, size, rank == 0, timeout)
    except (RuntimeError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise DistributedError("AHBM-X122", f"the ranks do not meet at {host}:{port}: {reason}") from error
    ranks = list(range(size))
    opts = SimpleNamespace(group_rank=rank, timeout=timeout, store=store)
    place = open_place(options(None).sized(size), opts, ranks)
    met.append((place, store))
    place.root = place.group("WORLD", ranks)
    return place, place.root
