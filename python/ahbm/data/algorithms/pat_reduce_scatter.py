"""PAT reduce-scatter: parallel aggregated trees, `pat_all_gather` backwards.

Chunk r comes to rank r along a binomial tree: in the step of distance d = 2^k, the smallest first, every rank sends
what it has of the chunks whose owner is an odd multiple of d away to the rank d nearer to them, which adds its own
part. So the first steps, in which a rank has many chunks, go to neighbours, and what goes far goes alone. A step
sends its chunks one behind the other to one partner, without a wait between them.

In place: the buffer holds n chunks of `n_elem` elements; afterwards chunk r of rank r is the reduction of all chunks
r. Any number of ranks. Every chunk is reduced in an order that depends on the number of ranks alone.

Cost for chunks of m bytes and n ranks: ceil(log2 n) alpha + (n-1) m beta.
Source: Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale", 2025 (NCCL 2.23).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ahbm._core import Handle, RecvFuture, Tl

COLLECTIVE = "reduce_scatter"


def kernel_args(
    world_size: int, n_elem: int, *, cube_w: int = 4, cube_h: int = 4, op: str = "sum", dtype: str = "f16"
) -> tuple[object, ...]:
    return (n_elem, world_size, op, dtype)


def pat_reduce_scatter(
    t_ptr: int,
    n_elem: int,
    n: int,
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
    me = sip_rank
    chunk_bytes = n_elem * tl.itemsize(dtype)
    distances = [1 << k for k in range((n - 1).bit_length())]

    def sent(distance: int) -> range:
        """How far the owners of the chunks of a step are behind, for the rank that sends them."""
        return range(distance, n, 2 * distance)

    # All receives are posted before the first send: nobody waits for a slot.
    coming: dict[tuple[int, int], RecvFuture] = {
        (far - distance, distance): tl.recv_async(dir=tl.peer(sip=(me + distance) % n), shape=(n_elem,), dtype=dtype)
        for distance in distances
        for far in sent(distance)
    }

    def reduced(far: int) -> Handle:
        """The rank's own part of the chunk whose owner is so far behind, and what has come for it, nearest first."""
        acc = tl.load(t_ptr + (me - far) % n * chunk_bytes, shape=(n_elem,), dtype=dtype)
        for distance in distances:
            if (far, distance) in coming:
                acc = tl.combine(acc, tl.wait(coming[far, distance]), op)
        return acc

    for distance in distances:
        for far in sent(distance):
            tl.send(dir=tl.peer(sip=(me - distance) % n), src=reduced(far))
    result = reduced(0)
    tl.store(t_ptr + me * chunk_bytes, result / n if op == "avg" else result)


kernel = pat_reduce_scatter
