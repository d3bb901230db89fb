"""Ring all-gather: every chunk travels once round the ring and is stored at each stop.

In place: the buffer holds n chunks of `n_elem` elements; rank r's contribution stands at chunk r; afterwards all
chunks are filled.

Cost for chunks of m bytes: (n-1) (alpha + m beta); bandwidth-optimal.
Source: Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication: theory, practice, and experience",
2007.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ahbm._core import Tl

COLLECTIVE = "all_gather"


def kernel_args(
    world_size: int, n_elem: int, *, cube_w: int = 4, cube_h: int = 4, dtype: str = "f16"
) -> tuple[object, ...]:
    return (n_elem, world_size, dtype)


def ring_all_gather(
    t_ptr: int,
    n_elem: int,
    n: int,
    dtype: str,
    sip_rank: int,
    sip_topo_kind: int,
    sip_topo_w: int,
    sip_topo_h: int,
    *,
    tl: Tl,
) -> None:
    if tl.program_id(axis=0) != 0:
        return
    me = sip_rank
    chunk_bytes = n_elem * tl.itemsize(dtype)

    current = tl.load(t_ptr + me * chunk_bytes, shape=(n_elem,), dtype=dtype)
    for step in range(1, n):
        tl.send(dir=tl.peer(sip=(me + 1) % n), src=current)
        current = tl.recv(dir=tl.peer(sip=(me - 1) % n), shape=(n_elem,), dtype=dtype)
        tl.store(t_ptr + (me - step) % n * chunk_bytes, current)


kernel = ring_all_gather
