"""NVLS reduce-scatter: every rank loads its chunk from all ranks at once, reduced by the switch between them.

In place: the buffer holds n chunks of `n_elem` elements; afterwards chunk r of rank r is the reduction of all chunks
r. Before the first load everybody tells everybody that its data is there, and at the end that it has read. Machines
whose switch does not reduce are refused (AHBM-U116).

Parameter: `chunk_bytes`, the most that one load takes.

Cost for chunks of m bytes and n ranks, alpha for a way through the switch: 4 alpha + n m beta. A rank receives m
bytes, where a ring receives (n-1) m.
Source: NCCL, src/device/reduce_scatter.h (`NCCL_ALGO_NVLS`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ahbm._core import Tl

COLLECTIVE = "reduce_scatter"
REDUCING_SWITCH = "all"


def kernel_args(
    world_size: int,
    n_elem: int,
    *,
    cube_w: int = 4,
    cube_h: int = 4,
    op: str = "sum",
    dtype: str = "f16",
    chunk_bytes: int = 131072,
) -> tuple[object, ...]:
    if chunk_bytes < 1:
        raise ValueError("chunk_bytes is 1 or more")
    return (n_elem, world_size, op, dtype, chunk_bytes)


def nvls_reduce_scatter(
    t_ptr: int,
    n_elem: int,
    n: int,
    op: str,
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
        value = tl.load_reduce(at, shape=(min(most, n_elem - first),), sips=range(n), dtype=dtype, op=op)
        tl.store(at, value / n if op == "avg" else value)
    meet()


kernel = nvls_reduce_scatter
