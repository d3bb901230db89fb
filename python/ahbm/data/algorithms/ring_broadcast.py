"""Ring broadcast: the data passes along the ring in chunks, one rank after the other.

In place: `n_elem` elements; afterwards every rank holds the root's. Ranks are counted from the root; the last one of
the ring sends nothing. A rank passes a chunk on while the next one comes.

Parameter: `chunk_bytes`, the most that a message has; as NCCL's, by default 512 KiB.

Cost for m bytes in chunks of c bytes: (n-1) (alpha + beta c) + beta (m - c).
Source: Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication: theory, practice, and experience",
2007; NCCL, src/device/broadcast.h (`runRing`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ahbm._core import Tl

COLLECTIVE = "broadcast"


def kernel_args(
    world_size: int,
    n_elem: int,
    *,
    cube_w: int = 4,
    cube_h: int = 4,
    root: int = 0,
    dtype: str = "f16",
    chunk_bytes: int = 524288,
) -> tuple[object, ...]:
    if chunk_bytes < 1:
        raise ValueError("chunk_bytes is 1 or more")
    return (n_elem, world_size, root, dtype, chunk_bytes)


def ring_broadcast(
    t_ptr: int,
    n_elem: int,
    n: int,
    root: int,
    dtype: str,
    chunk_bytes: int,
    sip_rank: int,
    sip_topo_kind: int,
    sip_topo_w: int,
    sip_topo_h: int,
    *,
    tl: Tl,
) -> None:
    if tl.program_id(axis=0) != 0 or n == 1:
        return
    place = (sip_rank - root) % n
    element = tl.itemsize(dtype)
    most = max(1, chunk_bytes // element)
    for first in range(0, n_elem, most):
        at, shape = t_ptr + first * element, (min(most, n_elem - first),)
        if place == 0:
            value = tl.load(at, shape=shape, dtype=dtype)
        else:
            value = tl.recv(dir=tl.peer(sip=(sip_rank - 1) % n), shape=shape, dtype=dtype)
        if place < n - 1:
            tl.send(dir=tl.peer(sip=(sip_rank + 1) % n), src=value)
        if place:
            tl.store(at, value)


kernel = ring_broadcast
