"""Ring all-gather: every chunk travels once round the ring and is stored at each stop.

In place: the buffer holds n chunks of `n_elem` elements; rank r's contribution stands at chunk r; afterwards all
chunks are filled.

Where `shares` is given, chunk c has only its first `shares[0][c]` elements. Chunks then travel in pieces of the mean
length, so that a long one does not hold up the ring at every stop: a rank sends the next piece that it has, and takes
the next that comes.

Cost for chunks of m bytes: (n-1) (alpha + m beta); bandwidth-optimal.
Source: Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication: theory, practice, and experience",
2007.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ahbm._core import Tl

COLLECTIVE = "all_gather"


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


def ring_all_gather(
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

    left, right = tl.peer(sip=(me - 1) % n), tl.peer(sip=(me + 1) % n)
    if shares is not None:
        piece = max(1, -(-sum(shares[0]) // n))

        def pieces(c: int) -> list[tuple[int, int]]:
            start, length, size = t_ptr + c * chunk_bytes, shares[0][c], tl.itemsize(dtype)
            return [(start + at * size, min(piece, length - at)) for at in range(0, length, piece)]

        # In the order in which they pass: a chunk's way ends at the rank before its own.
        leaving = [each for step in range(n - 1) for each in pieces((me - step) % n)]
        arriving = [each for step in range(1, n) for each in pieces((me - step) % n)]
        own, sent, received = len(pieces(me)), 0, 0
        while sent < len(leaving) or received < len(arriving):
            if sent < min(len(leaving), own + received):
                at, length = leaving[sent]
                tl.send(dir=right, src=tl.load(at, shape=(length,), dtype=dtype))
                sent += 1
            if received < len(arriving):
                at, length = arriving[received]
                tl.store(at, tl.recv(dir=left, shape=(length,), dtype=dtype))
                received += 1
        return
    current = tl.load(t_ptr + me * chunk_bytes, shape=(n_elem,), dtype=dtype)
    for step in range(1, n):
        tl.send(dir=right, src=current)
        current = tl.recv(dir=left, shape=(n_elem,), dtype=dtype)
        tl.store(t_ptr + (me - step) % n * chunk_bytes, current)


kernel = ring_all_gather
