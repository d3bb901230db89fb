"""Binomial-tree scatter: every rank receives the chunks of its subtree and hands each child the child's share.

In place: the buffer holds n chunks of `n_elem` elements; the root's are dealt out; afterwards rank r has its own at
chunk r (and those of its subtree beside it). Ranks are counted from the root.

Cost for chunks of m bytes: ceil(log2 n) alpha + (n-1) m beta.
Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ahbm._core import Peer, Tl

COLLECTIVE = "scatter"


def kernel_args(
    world_size: int, n_elem: int, *, cube_w: int = 4, cube_h: int = 4, root: int = 0, dtype: str = "f16"
) -> tuple[object, ...]:
    return (n_elem, world_size, root, dtype)


def binomial_scatter(
    t_ptr: int,
    n_elem: int,
    n: int,
    root: int,
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
    me = (sip_rank - root) % n
    chunk_bytes = n_elem * tl.itemsize(dtype)

    def peer(i: int) -> Peer:
        return tl.peer(sip=(i + root) % n)

    def runs(i: int, reach: int) -> list[tuple[int, int]]:
        """(address, elements) of the chunks of the subtree i .. i + reach - 1: two runs where it wraps past rank n."""
        first, count = (i + root) % n, min(reach, n - i)
        straight = min(count, n - first)
        parts = [(first, straight), (0, count - straight)]
        return [(t_ptr + chunk * chunk_bytes, length * n_elem) for chunk, length in parts if length]

    # The subtree below me holds me .. me + reach - 1; its children sit at me + 1, 2, 4, ... and reach as far.
    reach = me & -me if me else 1 << (n - 1).bit_length()
    if me:
        for address, length in runs(me, reach):
            tl.recv(dir=peer(me - reach), shape=(length,), dtype=dtype, mode="copy_to_dst", dst=address)
    distance = reach // 2
    while distance:  # the largest share first
        if me + distance < n:
            for address, length in runs(me + distance, distance):
                tl.send(dir=peer(me + distance), src=tl.ref(address, shape=(length,), dtype=dtype))
        distance //= 2


kernel = binomial_scatter
