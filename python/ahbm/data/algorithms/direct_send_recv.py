"""Point-to-point transfer: rank `src` sends `n_elem` elements from its memory straight into rank `dst`'s.

In place: `n_elem` elements; only the receiver's change. Every other rank does nothing.

Cost for m bytes: alpha + m beta.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ahbm._core import Tl

COLLECTIVE = "send_recv"


def kernel_args(
    world_size: int, n_elem: int, *, cube_w: int = 4, cube_h: int = 4, src: int = 0, dst: int = 1, dtype: str = "f16"
) -> tuple[object, ...]:
    return (n_elem, world_size, src, dst, dtype)


def direct_send_recv(
    t_ptr: int,
    n_elem: int,
    n: int,
    src: int,
    dst: int,
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
    if src == dst:
        return
    if sip_rank == src:
        tl.send(dir=tl.peer(sip=dst), src=tl.ref(t_ptr, shape=(n_elem,), dtype=dtype))
    elif sip_rank == dst:
        tl.recv(dir=tl.peer(sip=src), shape=(n_elem,), dtype=dtype, mode="copy_to_dst", dst=t_ptr)


kernel = direct_send_recv
