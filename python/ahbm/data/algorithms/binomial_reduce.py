"""Binomial-tree reduce: the broadcast tree run backwards, every rank adding its children's results to its own.

In place: `n_elem` elements; afterwards the root holds the reduction, the other ranks what they held before. Ranks
are counted from the root.

Cost for m bytes: ceil(log2 n) (alpha + m beta) and as many additions of m bytes.
Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ahbm._core import Peer, Tl

COLLECTIVE = "reduce"
LARGEST = 4 << 30
"""Bytes of the largest message: the memory of a PE holds one of every child."""


def kernel_args(
    world_size: int,
    n_elem: int,
    *,
    cube_w: int = 4,
    cube_h: int = 4,
    root: int = 0,
    op: str = "sum",
    dtype: str = "f16",
) -> tuple[object, ...]:
    return (n_elem, world_size, root, op, dtype)


def binomial_reduce(
    t_ptr: int,
    n_elem: int,
    n: int,
    root: int,
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
    me = (sip_rank - root) % n

    def peer(i: int) -> Peer:
        return tl.peer(sip=(i + root) % n)

    # The subtree below me holds me .. me + reach - 1; its children sit at me + 1, 2, 4, ...
    reach = me & -me if me else 1 << (n - 1).bit_length()
    most = LARGEST // tl.itemsize(dtype)
    for first in range(0, n_elem, most):
        shape = (min(most, n_elem - first),)
        piece = t_ptr + first * tl.itemsize(dtype)
        acc = tl.load(piece, shape=shape, dtype=dtype)
        distance = 1
        while distance < reach:  # the shallowest subtree answers first
            if me + distance < n:
                acc = tl.combine(acc, tl.recv(dir=peer(me + distance), shape=shape, dtype=dtype), op)
            distance *= 2
        if me:
            tl.send(dir=peer(me - reach), src=acc)
        else:
            tl.store(piece, acc / n if op == "avg" else acc)


kernel = binomial_reduce
