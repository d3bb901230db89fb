"""Ring reduce: partial results pass along the ring in chunks to the root, one rank after the other.

In place: `n_elem` elements; afterwards the root holds the reduction. The rank behind the root begins, and every other
one adds its own part. A rank reduces a chunk while the next one comes.

Parameter: `chunk_bytes`, the most that a message has; as NCCL's, by default 512 KiB.

Cost for m bytes in chunks of c bytes: (n-1) (alpha + beta c) + beta (m - c), and the additions of m bytes.
Source: Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication: theory, practice, and experience",
2007; NCCL, src/device/reduce.h (`runRing`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ahbm._core import Tl

COLLECTIVE = "reduce"


def kernel_args(
    world_size: int,
    n_elem: int,
    *,
    cube_w: int = 4,
    cube_h: int = 4,
    op: str = "sum",
    dtype: str = "f16",
    root: int = 0,
    chunk_bytes: int = 524288,
) -> tuple[object, ...]:
    if chunk_bytes < 1:
        raise ValueError("chunk_bytes is 1 or more")
    return (n_elem, world_size, op, dtype, root, chunk_bytes)


def ring_reduce(
    t_ptr: int,
    n_elem: int,
    n: int,
    op: str,
    dtype: str,
    root: int,
    chunk_bytes: int,
    sip_rank: int,
    sip_topo_kind: int,
    sip_topo_w: int,
    sip_topo_h: int,
    *,
    tl: Tl,
) -> None:
    if tl.program_id(axis=0) != 0:
        return
    place = (sip_rank - root - 1) % n
    element = tl.itemsize(dtype)
    most = max(1, chunk_bytes // element)
    for first in range(0, n_elem, most):
        at, shape = t_ptr + first * element, (min(most, n_elem - first),)
        value = tl.load(at, shape=shape, dtype=dtype)
        if place:
            value = tl.combine(tl.recv(dir=tl.peer(sip=(sip_rank - 1) % n), shape=shape, dtype=dtype), value, op)
        if place < n - 1:
            tl.send(dir=tl.peer(sip=(sip_rank + 1) % n), src=value)
        else:
            tl.store(at, value / n if op == "avg" else value)


kernel = ring_reduce
