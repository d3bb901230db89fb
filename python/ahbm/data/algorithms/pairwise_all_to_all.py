"""Pairwise-exchange all-to-all: in round k, ranks i and j with i + j = k (mod n) swap chunks.

In place: the buffer holds n chunks of `n_elem` elements; chunk j goes to rank j, and afterwards chunk j holds what
rank j sent. Both partners of a swap free the very chunk they fill, so no second buffer is needed; a rank that is its
own partner sits the round out.

Where `shares` is given, rank i has only `shares[i][j]` elements for rank j. There are no rounds then, in which all
would wait for the longest: a rank sends to all, and then receives from all, as libraries group sends and receives.

Cost for chunks of m bytes: n (alpha + m beta), one partner at a time.
Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005; the
pairing is the round-robin tournament.
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
    shares: tuple[tuple[int, ...], ...] | None = None,
) -> tuple[object, ...]:
    return (n_elem, world_size, dtype, shares)


def pairwise_all_to_all(
    t_ptr: int,
    n_elem: int,
    n: int,
    dtype: str,
    shares: tuple[tuple[int, ...], ...] | None,
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

    if shares is not None:
        for step in range(1, n):
            peer = (me + step) % n
            if gives := shares[me][peer]:
                tl.send(dir=tl.peer(sip=peer), src=tl.load(t_ptr + peer * chunk_bytes, shape=(gives,), dtype=dtype))
        for step in range(1, n):
            peer = (me - step) % n
            if takes := shares[peer][me]:
                tl.store(t_ptr + peer * chunk_bytes, tl.recv(dir=tl.peer(sip=peer), shape=(takes,), dtype=dtype))
        return
    for step in range(n):
        partner = (step - me) % n
        if partner != me:
            chunk = t_ptr + partner * chunk_bytes
            tl.send(dir=tl.peer(sip=partner), src=tl.load(chunk, shape=(n_elem,), dtype=dtype))
            tl.store(chunk, tl.recv(dir=tl.peer(sip=partner), shape=(n_elem,), dtype=dtype))


kernel = pairwise_all_to_all
