"""Binomial-tree all-reduce: reduce to participant 0, then broadcast from it, whole tiles.

In round k of the reduction every participant whose bit k is its lowest set bit sends its partial result to the one
with that bit cleared; the broadcast runs the same tree backwards. One reduction order, so all end with the same bits.

Cost for tiles of m bytes and n participants (every cube of every SIP): 2 ceil(log2 n) (alpha + m beta). Good for
small tiles on networks where distant peers are cheap.
Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
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


def tree_allreduce(
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
    tile = t_ptr + cube * n_elem * tl.itemsize(dtype)

    def peer(i: int) -> Peer:
        return tl.peer(sip=i // cubes, cube=i % cubes)

    def receive(i: int) -> Handle:
        return tl.recv(dir=peer(i), shape=(n_elem,), dtype=dtype)

    # The subtree below me holds the participants me .. me + reach - 1; its children sit at me + 1, 2, 4, ...
    reach = me & -me if me else 1 << (n - 1).bit_length()
    children = [me + (1 << k) for k in range(reach.bit_length() - 1) if me + (1 << k) < n]

    acc = tl.load(tile, shape=(n_elem,), dtype=dtype)
    for child in children:
        acc = tl.combine(acc, receive(child), op)
    if me:
        tl.send(dir=peer(me - reach), src=acc)
        acc = receive(me - reach)
    elif op == "avg":
        acc = acc / n
    for child in reversed(children):  # the deepest subtree first
        tl.send(dir=peer(child), src=acc)
    tl.store(tile, acc)


kernel = tree_allreduce
