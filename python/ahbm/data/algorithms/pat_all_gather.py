"""PAT all-gather: parallel aggregated trees, the steps of Bruck's algorithm with the farthest partner first.

Chunk r goes from rank r along a binomial tree: in the step of distance d = 2^k, the largest first, every rank sends
the chunks that it has to the rank d further. So a chunk with a long way ahead goes there alone, and what travels in
the last steps, where a rank has many chunks, goes to neighbours. A step sends its chunks one behind the other to one
partner, without a wait between them. No chunk reaches a rank twice.

In place: the buffer holds n chunks of `n_elem` elements; rank r's contribution stands at chunk r; afterwards all
chunks are filled. Any number of ranks.

Cost for chunks of m bytes and n ranks: ceil(log2 n) alpha + (n-1) m beta.
Source: Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale", 2025 (NCCL 2.23); Bruck
et al., "Efficient algorithms for all-to-all communications in multiport message-passing systems", 1997.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ahbm._core import Handle, RecvFuture, Tl

COLLECTIVE = "all_gather"


def kernel_args(
    world_size: int, n_elem: int, *, cube_w: int = 4, cube_h: int = 4, dtype: str = "f16"
) -> tuple[object, ...]:
    return (n_elem, world_size, dtype)


def pat_all_gather(
    t_ptr: int,
    n_elem: int,
    n: int,
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
    distances = [1 << k for k in reversed(range((n - 1).bit_length()))]

    def sent(distance: int) -> range:
        """How far the chunks of a step have come, those that a rank sends; they are so much further afterwards."""
        return range(0, n - distance, 2 * distance)

    # All receives are posted before the first send: nobody waits for a slot.
    coming: dict[int, RecvFuture] = {
        far + distance: tl.recv_async(dir=tl.peer(sip=(me - distance) % n), shape=(n_elem,), dtype=dtype)
        for distance in distances
        for far in sent(distance)
    }
    held: dict[int, Handle] = {0: tl.load(t_ptr + me * chunk_bytes, shape=(n_elem,), dtype=dtype)}
    for distance in distances:
        for far in sent(distance):
            if far not in held:
                held[far] = tl.wait(coming[far])
                tl.store(t_ptr + (me - far) % n * chunk_bytes, held[far])
            tl.send(dir=tl.peer(sip=(me + distance) % n), src=held[far])
    for far, future in coming.items():
        if far not in held:
            tl.store(t_ptr + (me - far) % n * chunk_bytes, tl.wait(future))


kernel = pat_all_gather
