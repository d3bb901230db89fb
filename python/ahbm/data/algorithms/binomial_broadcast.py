"""Binomial-tree broadcast: in every round each rank that has the data sends it to one that has not.

In place: `n_elem` elements; afterwards every rank holds the root's. Ranks are counted from the root.

Cost for m bytes: ceil(log2 n) (alpha + m beta).
Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ahbm._core import Peer, Tl

COLLECTIVE = "broadcast"


def kernel_args(
    world_size: int, n_elem: int, *, cube_w: int = 4, cube_h: int = 4, root: int = 0, dtype: str = "f16"
) -> tuple[object, ...]:
    return (n_elem, world_size, root, dtype)


def binomial_broadcast(
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

    def peer(i: int) -> Peer:
        return tl.peer(sip=(i + root) % n)

    # The subtree below me holds me .. me + reach - 1; its children sit at me + 1, 2, 4, ...
    reach = me & -me if me else 1 << (n - 1).bit_length()
    if me:
        data = tl.recv(dir=peer(me - reach), shape=(n_elem,), dtype=dtype)
    else:
        data = tl.load(t_ptr, shape=(n_elem,), dtype=dtype)
    distance = reach // 2
    while distance:  # the deepest subtree first
        if me + distance < n:
            tl.send(dir=peer(me + distance), src=data)
        distance //= 2
    if me:
        tl.store(t_ptr, data)


kernel = binomial_broadcast
