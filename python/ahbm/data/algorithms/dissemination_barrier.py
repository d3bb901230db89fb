"""Dissemination barrier: in round k every rank signals the one 2^k ahead and waits for the one 2^k behind.

After ceil(log2 n) rounds each rank has heard, directly or not, from all others. The one-element buffer is not
touched; the tokens are zeros.

Cost: ceil(log2 n) alpha.
Source: Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization", 1988.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ahbm._core import Tl

COLLECTIVE = "barrier"


def kernel_args(
    world_size: int, n_elem: int, *, cube_w: int = 4, cube_h: int = 4, dtype: str = "f16"
) -> tuple[object, ...]:
    return (n_elem, world_size, dtype)


def dissemination_barrier(
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
    token = tl.zeros((n_elem,), dtype)
    distance = 1
    while distance < n:
        tl.send(dir=tl.peer(sip=(sip_rank + distance) % n), src=token)
        tl.recv(dir=tl.peer(sip=(sip_rank - distance) % n), shape=(n_elem,), dtype=dtype)
        distance *= 2


kernel = dissemination_barrier
