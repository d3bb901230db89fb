"""NVLS all-gather: every rank stores its chunk at all others with a multicast, which the switch between them copies.

In place: the buffer holds n chunks of `n_elem` elements; rank r's contribution stands at chunk r; afterwards all
chunks are filled. Before it stores, everybody tells everybody that its buffer is free, and at the end that its chunk
has arrived. Machines whose switch does not reduce, and so does not copy, are refused (AHBM-U116).

Parameter: `chunk_bytes`, the most that one multicast carries.

Cost for chunks of m bytes and n ranks, alpha for a way through the switch: 3 alpha + (n-1) m beta. A rank sends m
bytes, where a ring sends (n-1) m.
Source: NCCL, src/device/all_gather.h (`NCCL_ALGO_NVLS`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ahbm._core import Tl

COLLECTIVE = "all_gather"
REDUCING_SWITCH = "all"


def kernel_args(
    world_size: int, n_elem: int, *, cube_w: int = 4, cube_h: int = 4, dtype: str = "f16", chunk_bytes: int = 131072
) -> tuple[object, ...]:
    if chunk_bytes < 1:
        raise ValueError("chunk_bytes is 1 or more")
    return (n_elem, world_size, dtype, chunk_bytes)


def nvls_all_gather(
    t_ptr: int,
    n_elem: int,
    n: int,
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
    me = sip_rank
    element = tl.itemsize(dtype)
    others = [(me + i) % n for i in range(1, n)]

    def meet() -> None:
        """Everybody has come here once this ends."""
        token = tl.zeros((1,), dtype=dtype)
        for sip in others:
            tl.send(dir=tl.peer(sip=sip), src=token)
        for future in [tl.recv_async(dir=tl.peer(sip=sip), shape=(1,), dtype=dtype) for sip in others]:
            tl.wait(future)

    meet()
    most = max(1, chunk_bytes // element)
    for first in range(0, n_elem, most):
        at = t_ptr + (me * n_elem + first) * element
        tl.multicast(at, tl.load(at, shape=(min(most, n_elem - first),), dtype=dtype), sips=others)
    tl.fence()
    meet()


kernel = nvls_all_gather
