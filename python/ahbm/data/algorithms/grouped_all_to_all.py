"""Grouped all-to-all: every rank sends to all others at once, and then receives from all.

In place: the buffer holds n chunks of `n_elem` elements; chunk j goes to rank j, and afterwards chunk j holds what
rank j sent. Everything is on its way before anything is overwritten.

Cost for chunks of m bytes: alpha + (n - 1) m beta: no step waits for another one.
Source: NCCL's guide, "Point-to-point communication"; nccl-tests, src/alltoall.cu: sends and receives in one group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ahbm._core import Tl

COLLECTIVE = "all_to_all"


def kernel_args(
    world_size: int,
    n_elem: int,
    *,
    cube_w: int = 4,
    cube_h: int = 4,
    dtype: str = "f16",
) -> tuple[object, ...]:
    return (n_elem, world_size, dtype)


def grouped_all_to_all(
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
    for step in range(1, n):
        peer = (me + step) % n
        tl.send(dir=tl.peer(sip=peer), src=tl.load(t_ptr + peer * chunk_bytes, shape=(n_elem,), dtype=dtype))
    for step in range(1, n):
        peer = (me - step) % n
        tl.store(t_ptr + peer * chunk_bytes, tl.recv(dir=tl.peer(sip=peer), shape=(n_elem,), dtype=dtype))


kernel = grouped_all_to_all
