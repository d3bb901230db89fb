"""Hierarchical all-reduce: cube rows, cube columns, SIPs, and back ("left-right alternating broadcast").

Every cube's tile (`n_elem` elements of `dtype` at `t_ptr + cube * tile bytes`) is one contribution; afterwards every
tile holds the reduction over all cubes of all SIPs. Five phases, each a line of neighbours that converges on, or
spreads from, the root cube at the centre of the mesh:

1. row reduce: W to E on the left of the root column, E to W on its right;
2. column reduce along the root column, from both ends;
3. exchange between the root cubes of the SIPs: whole tiles round a ring, round the rows and then the columns of a
   torus, or along the chains of a mesh and back;
4. column broadcast and 5. row broadcast, mirroring 2 and 1.

Cost for tiles of m bytes, a cw x ch cube mesh and S SIPs (w x h), alpha per hop and beta per byte: hops
2 (cw//2 + ch//2) + X, each (alpha + m beta), where X = S-1 on a ring, (w-1) + (h-1) on a torus and twice that on a
mesh. Latency-friendly; for large tiles the chunked `ring_allreduce` moves fewer bytes.
The order of the reduction differs from SIP to SIP on rings and tori, so inexact sums may differ in the last place.

Source: the module contract's reference algorithm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ahbm._core import Handle, Tl

SIP_TOPO_RING = 0
SIP_TOPO_TORUS = 1
SIP_TOPO_MESH = 2

TOPO_NAME_TO_KIND = {
    "ring_1d": SIP_TOPO_RING,
    "torus_2d": SIP_TOPO_TORUS,
    "mesh_2d_no_wrap": SIP_TOPO_MESH,
}

COLLECTIVE = "all_reduce"


def kernel_args(
    world_size: int, n_elem: int, *, cube_w: int = 4, cube_h: int = 4, op: str = "sum", dtype: str = "f16"
) -> tuple[object, ...]:
    return (n_elem, cube_w, cube_h, world_size, op, dtype)


def lrab_hierarchical_allreduce(
    t_ptr: int,
    n_elem: int,
    cube_w: int,
    cube_h: int,
    n_sips: int,
    op: str,
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
    cube = tl.program_id(axis=1)
    row, col = divmod(cube, cube_w)
    root_row, root_col = cube_h // 2, cube_w // 2
    tile_bytes = n_elem * tl.itemsize(dtype)

    def add_from(direction: str, acc: Handle) -> Handle:
        return tl.combine(acc, receive(direction), op)

    def receive(direction: str) -> Handle:
        return tl.recv(dir=direction, shape=(n_elem,), dtype=dtype)

    def reduce_line(acc: Handle, pos: int, root: int, size: int, low: str, high: str) -> Handle:
        """Both ends of a line send towards `root`, each stop adding its own part."""
        # The root is never nearer to the low end, so the message from there is the later one: wait for it first.
        if pos <= root and pos > 0:
            acc = add_from(low, acc)
        if pos >= root and pos < size - 1:
            acc = add_from(high, acc)
        if pos != root:
            tl.send(dir=high if pos < root else low, src=acc)
        return acc

    def broadcast_line(acc: Handle, pos: int, root: int, size: int, low: str, high: str) -> Handle:
        """The root's value travels to both ends; the longer side is served first."""
        if pos != root:
            acc = receive(high if pos < root else low)
        if pos <= root and pos > 0:
            tl.send(dir=low, src=acc)
        if pos >= root and pos < size - 1:
            tl.send(dir=high, src=acc)
        return acc

    def ring(acc: Handle, size: int, ahead: str, behind: str) -> Handle:
        """Every original value visits every place of the ring."""
        current = acc
        for _ in range(size - 1):
            tl.send(dir=ahead, src=current)
            current = receive(behind)
            acc = tl.combine(acc, current, op)
        return acc

    def chain(acc: Handle, pos: int, size: int, low: str, high: str) -> Handle:
        acc = reduce_line(acc, pos, size - 1, size, low, high)
        return broadcast_line(acc, pos, size - 1, size, low, high)

    def exchange(acc: Handle) -> Handle:
        if sip_topo_kind == SIP_TOPO_RING:
            return ring(acc, n_sips, "global_E", "global_W")
        if sip_topo_kind == SIP_TOPO_TORUS:
            acc = ring(acc, sip_topo_w, "global_E", "global_W")
            return ring(acc, sip_topo_h, "global_S", "global_N")
        if sip_topo_kind == SIP_TOPO_MESH:
            sip_row, sip_col = divmod(sip_rank, sip_topo_w)
            acc = chain(acc, sip_col, sip_topo_w, "global_W", "global_E")
            return chain(acc, sip_row, sip_topo_h, "global_N", "global_S")
        raise ValueError(f"unsupported topology kind {sip_topo_kind}")

    acc = tl.load(t_ptr + cube * tile_bytes, shape=(n_elem,), dtype=dtype)
    # With one cube (a lane of a host array) every line has length 1 and only the exchange is left.
    acc = reduce_line(acc, col, root_col, cube_w, "W", "E")
    if col == root_col:
        acc = reduce_line(acc, row, root_row, cube_h, "N", "S")
        if row == root_row:
            acc = exchange(acc)
            if op == "avg":
                acc = acc / (n_sips * cube_w * cube_h)
        acc = broadcast_line(acc, row, root_row, cube_h, "N", "S")
    acc = broadcast_line(acc, col, root_col, cube_w, "W", "E")
    tl.store(t_ptr + cube * tile_bytes, acc)


kernel = lrab_hierarchical_allreduce
