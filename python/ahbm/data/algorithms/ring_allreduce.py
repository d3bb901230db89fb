"""Ring all-reduce: reduce-scatter, then all-gather, over n chunks of the tile.

The participants (every cube of every SIP) form one ring. In n-1 steps each chunk travels once round it, gathering
contributions; in n-1 more steps the finished chunks travel round again. Each chunk is reduced in one fixed order, so
all participants end with the same bits.

Cost for tiles of m bytes and n participants: 2 (n-1) alpha + 2 m beta (n-1)/n; bandwidth-optimal.
Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ahbm._core import Handle, Peer, Tl

COLLECTIVE = "all_reduce"


def kernel_args(
    world_size: int, n_elem: int, *, cube_w: int = 4, cube_h: int = 4, op: str = "sum", dtype: str = "f16"
) -> tuple[object, ...]:
    return (n_elem, cube_w * cube_h, world_size, op, dtype)


def ring_allreduce(
    t_ptr: int,
    n_elem: int,
    cubes: int,
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
    n = n_sips * cubes
    me = sip_rank * cubes + cube
    element = tl.itemsize(dtype)
    tile = t_ptr + cube * n_elem * element

    def peer(i: int) -> Peer:
        return tl.peer(sip=i % n // cubes, cube=i % n % cubes)

    right, left = peer(me + 1), peer(me - 1)

    def bounds(c: int) -> tuple[int, int]:
        """First element and length of chunk c; lengths differ by at most one and may be 0."""
        first = n_elem * (c % n) // n
        return first, n_elem * (c % n + 1) // n - first

    def load(c: int) -> Handle | None:
        first, length = bounds(c)
        return tl.load(tile + first * element, shape=(length,), dtype=dtype) if length else None

    def store(c: int, chunk: Handle | None) -> None:
        if chunk is not None:
            tl.store(tile + bounds(c)[0] * element, chunk)

    def shift(outgoing: Handle | None, c: int) -> Handle | None:
        """Pass a chunk on to the right and take chunk c from the left; empty chunks send no message."""
        if outgoing is not None:
            tl.send(dir=right, src=outgoing)
        length = bounds(c)[1]
        return tl.recv(dir=left, shape=(length,), dtype=dtype) if length else None

    current = load(me)
    for step in range(1, n):
        arrived, mine = shift(current, me - step), load(me - step)
        current = None if arrived is None or mine is None else tl.combine(arrived, mine, op)
    if op == "avg" and current is not None:
        current = current / n

    store(me + 1, current)
    for step in range(n - 1):
        current = shift(current, me - step)
        store(me - step, current)


kernel = ring_allreduce
