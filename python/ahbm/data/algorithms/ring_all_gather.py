"""Ring all-gather: every chunk travels once round the ring and is stored at each stop.

In place: the buffer holds n chunks of `n_elem` elements; rank r's contribution stands at chunk r; afterwards all
chunks are filled.

Parameters, with which it is what NCCL runs (`nccl_ring_all_gather`): `channels` are rings for a part of every chunk each.
Every second one goes the other way round; with ranks that share nodes, all go one way, and each leaves the nodes at
another rank. 0: two, or as many as ranks share a node, fewer where a message had less than 4 KiB. A message is cut in
`slices`, of which one travels while the next one is stored. It has at most `chunk_bytes`: a channel with more goes round
several times. 0: no limit.

Cost for chunks of m bytes: (n-1) (alpha + m beta); bandwidth-optimal. Of s slices, a step takes the longer of beta m and
alpha + beta m/s.
Source: Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication: theory, practice, and experience",
2007; NCCL, src/device/all_gather.h (`runRing`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ahbm._core import Peer, RecvFuture, Tl

COLLECTIVE = "all_gather"

MESSAGE_BYTES = 4096
"""Least bytes of a channel's messages, as for NCCL's LL: 512 threads of 8 bytes."""


def kernel_args(
    world_size: int,
    n_elem: int,
    *,
    cube_w: int = 4,
    cube_h: int = 4,
    dtype: str = "f16",
    node_size: int = 1,
    channels: int = 1,
    slices: int = 1,
    chunk_bytes: int = 0,
) -> tuple[object, ...]:
    if channels < 0 or slices < 1 or chunk_bytes < 0:
        raise ValueError("channels and chunk_bytes are 0 or more, slices 1 or more")
    return (n_elem, world_size, dtype, node_size, channels, slices, chunk_bytes)


def ring_all_gather(
    t_ptr: int,
    n_elem: int,
    n: int,
    dtype: str,
    node_size: int,
    channels: int,
    slices: int,
    chunk_bytes: int,
    sip_rank: int,
    sip_topo_kind: int,
    sip_topo_w: int,
    sip_topo_h: int,
    *,
    tl: Tl,
) -> None:
    if tl.program_id(axis=0) != 0:
        return
    element = tl.itemsize(dtype)
    most = node_size if node_size > 1 else 2
    channels = channels or max(1, min(most, n_elem * element // MESSAGE_BYTES))

    def ring(channel: int) -> Iterator[None]:
        """The steps of a channel, one message after the other; others go on in between."""
        turn = channel if node_size > 1 else 0
        way = -1 if channel % 2 and node_size == 1 else 1
        begin, end = n_elem * channel // channels, n_elem * (channel + 1) // channels
        cuts = slices * (max(1, -(-(end - begin) * element // chunk_bytes)) if chunk_bytes else 1)
        me = way * (sip_rank // node_size * node_size + (sip_rank - turn) % node_size)

        def rank(i: int) -> int:
            """The rank at a place of the ring."""
            i = way * i % n
            return i // node_size * node_size + (i + turn) % node_size

        right, left = tl.peer(sip=rank(me + 1)), tl.peer(sip=rank(me - 1))
        coming: list[RecvFuture | None] = [None] * slices
        for lap in range(0, cuts, slices):
            for step in range(n):
                for part in range(slices):
                    first = begin + (end - begin) * (lap + part) // cuts
                    length = begin + (end - begin) * (lap + part + 1) // cuts - first
                    if length:
                        at = t_ptr + (rank(me - step) * n_elem + first) * element
                        future = coming[part]
                        if not step:
                            value = tl.load(at, shape=(length,), dtype=dtype)
                        elif future is None:
                            value = tl.recv(dir=left, shape=(length,), dtype=dtype)
                        else:
                            value = tl.wait(future)
                        if step:
                            tl.store(at, value)
                        if step < n - 1:
                            # Of several messages each is posted before its like is sent: no slot is waited for.
                            if channels * slices > 1:
                                coming[part] = tl.recv_async(dir=left, shape=(length,), dtype=dtype)
                            tl.send(dir=right, src=value)
                    yield

    running = [ring(channel) for channel in range(channels)]
    while running:
        running = [steps for steps in running if next(steps, steps) is None]


kernel = ring_all_gather
