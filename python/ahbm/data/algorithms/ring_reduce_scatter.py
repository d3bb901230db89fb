"""Ring reduce-scatter: every chunk travels once round the ring, gathers contributions and ends at its owner.

In place: the buffer holds n chunks of `n_elem` elements; afterwards rank r has the reduction of all chunks r at
chunk r; its other chunks keep what they held.

Where `shares` is given, chunk c has only its first `shares[0][c]` elements. Chunks then travel in pieces of the mean
length, so that a long one does not hold up the ring at every stop: a rank sends the next piece that it has, and takes
the next that comes.

Cost for chunks of m bytes: (n-1) (alpha + m beta) and n-1 additions of m bytes; bandwidth-optimal.
Source: Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication: theory, practice, and experience",
2007.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ahbm._core import Handle, Tl

COLLECTIVE = "reduce_scatter"


def kernel_args(
    world_size: int,
    n_elem: int,
    *,
    cube_w: int = 4,
    cube_h: int = 4,
    op: str = "sum",
    dtype: str = "f16",
    shares: tuple[tuple[int, ...], ...] | None = None,
) -> tuple[object, ...]:
    return (n_elem, world_size, op, dtype, shares)


def ring_reduce_scatter(
    t_ptr: int,
    n_elem: int,
    n: int,
    op: str,
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

    def load(c: int) -> Handle:
        return tl.load(t_ptr + c % n * chunk_bytes, shape=(n_elem,), dtype=dtype)

    left, right = tl.peer(sip=(me - 1) % n), tl.peer(sip=(me + 1) % n)
    if shares is not None:
        piece = max(1, -(-sum(shares[0]) // n))

        def pieces(c: int) -> list[tuple[int, int]]:
            start, length, size = t_ptr + c * chunk_bytes, shares[0][c], tl.itemsize(dtype)
            return [(start + at * size, min(piece, length - at)) for at in range(0, length, piece)]

        leaving = [tl.load(at, shape=(length,), dtype=dtype) for at, length in pieces((me - 1) % n)]
        arriving = [(each, step == n - 1) for step in range(1, n) for each in pieces((me - 1 - step) % n)]
        sent = received = 0
        while sent < len(leaving) or received < len(arriving):
            if sent < len(leaving):
                tl.send(dir=right, src=leaving[sent])
                sent += 1
            if received < len(arriving):
                (at, length), last = arriving[received]
                arrived = tl.recv(dir=left, shape=(length,), dtype=dtype)
                total = tl.combine(arrived, tl.load(at, shape=(length,), dtype=dtype), op)
                if last:
                    tl.store(at, total / n if op == "avg" else total)
                else:
                    leaving.append(total)
                received += 1
        return
    # Chunk c starts at rank c + 1, so that after n - 1 hops it stands, complete, at rank c.
    current = load(me - 1)
    for step in range(1, n):
        tl.send(dir=right, src=current)
        arrived = tl.recv(dir=left, shape=(n_elem,), dtype=dtype)
        current = tl.combine(arrived, load(me - 1 - step), op)
    if op == "avg":
        current = current / n
    tl.store(t_ptr + me * chunk_bytes, current)


kernel = ring_reduce_scatter
