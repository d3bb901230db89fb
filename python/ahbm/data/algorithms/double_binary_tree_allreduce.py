"""Double binary tree all-reduce, as NCCL's `tree`: two complementary trees over the nodes, and a chain inside each.

Each of two trees reduces half of the tile to its root and spreads the result from there. A node that has children in
one tree is a leaf of the other, so both together use every link in both directions. A tile is cut in chunks, which
follow each other: while one chunk goes down, later ones go up. Inside a node of `topology: nodes`, the ranks form a
chain that ends at the head, which takes part in the trees; so do the cubes of a SIP. A channel is a pair of trees
with a part of the tile of its own. Every channel has another head, so all network interfaces of a node work.

Parameters: `channels` (0: as many as ranks share a node, fewer where a channel had less than 4 KiB), `chunk_bytes` (0:
32 to 512 KiB by NCCL's rule); the protocol's `slice_bytes` is the least of both. All participants end with equal bits.

Cost of m bytes in chunks of c over d = ceil(log2 n) + k - 1 levels, for n nodes of k participants: 2 d (alpha + beta c)
+ 2 beta (m - c) where a link carries one chunk at a time; a participant sends no more than 2 m bytes for all n.
Source: Sanders, Speck and Traff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009;
Jeaugey, "Massively scale your deep learning training with NCCL 2.4", 2019; NCCL, src/graph/trees.cc.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ahbm._core import Peer, RecvFuture, Tl

COLLECTIVE = "all_reduce"

CHANNEL_BYTES = 4096
"""Least bytes of a channel, as for NCCL's LL: 512 threads of 8 bytes."""
NEAR, FAR = 4, 8
"""Chunks of a stream that a link carries at once inside a node of ranks, and between nodes (NCCL_STEPS); else 1."""


def kernel_args(
    world_size: int,
    n_elem: int,
    *,
    cube_w: int = 4,
    cube_h: int = 4,
    op: str = "sum",
    dtype: str = "f16",
    node_size: int = 1,
    channels: int = 0,
    chunk_bytes: int = 0,
    slice_bytes: int = 0,
) -> tuple[object, ...]:
    if channels < 0 or chunk_bytes < 0:
        raise ValueError("channels and chunk_bytes are 0 or more")
    return (n_elem, cube_w * cube_h, world_size, op, dtype, node_size, channels, chunk_bytes, slice_bytes)


def binary_tree(n: int, i: int) -> tuple[int, list[int]]:
    """Parent (-1: none) and children of member i of n: leaves are the odd ones."""
    if i == 0:
        return -1, [1 << ((n - 1).bit_length() - 1)] if n > 1 else []
    bit = i & -i
    up = i ^ bit | bit << 1
    low = high = bit >> 1
    while high and i + high >= n:
        high >>= 1
    return up if up < n else i ^ bit, ([i - low] if low else []) + ([i + high] if high else [])


def double_tree(n: int, i: int, second: bool) -> tuple[int, list[int]]:
    """The second tree is the mirror of the first, or the first one shifted where n is odd."""
    if not second:
        return binary_tree(n, i)
    up, down = binary_tree(n, (i - 1) % n if n % 2 else n - 1 - i)
    back = [(each + 1) % n if n % 2 else n - 1 - each for each in (up, *down)]
    return -1 if up < 0 else back[0], back[1:]


def level_of(n: int, i: int, second: bool) -> int:
    """Steps to the root."""
    up = double_tree(n, i, second)[0]
    return 0 if up < 0 else 1 + level_of(n, up, second)


def chunk_of(nbytes: int, levels: int, fewest: int) -> int:
    """Bytes of a chunk by NCCL's rule: the more levels, the more chunks fill them."""
    chunk = 1 << 19
    for share, least in ((8, 1 << 17), (4, 1 << 16), (1, fewest)):
        while nbytes < chunk * levels * share and chunk > least:
            chunk //= 2
    return chunk


def double_binary_tree_allreduce(
    t_ptr: int,
    n_elem: int,
    cubes: int,
    n_sips: int,
    op: str,
    dtype: str,
    node_size: int,
    channels: int,
    chunk_bytes: int,
    slice_bytes: int,
    sip_rank: int,
    sip_topo_kind: int,
    sip_topo_w: int,
    sip_topo_h: int,
    *,
    tl: Tl,
) -> None:
    if tl.program_id(axis=0) != 0:
        return
    cube, element = tl.program_id(axis=1), tl.itemsize(dtype)
    chain, nodes = node_size * cubes, n_sips // node_size
    node, local = sip_rank // node_size, sip_rank % node_size * cubes + cube
    channels = channels or max(1, min(node_size, n_elem * element // (slice_bytes or CHANNEL_BYTES)))
    near, far = (NEAR, FAR) if node_size > 1 else (1, 1)

    def peer(node: int, place: int) -> Peer:
        """A participant of a node, whose chain goes round."""
        i = node * chain + place % chain
        return tl.peer(sip=i // cubes, cube=i % cubes)

    def ways(channel: int, second: bool) -> tuple[Peer | None, list[Peer], int]:
        """To the root, away from it, and the chunks that are on the way to the root."""
        head = channel * cubes
        place = (local - head) % chain
        level = level_of(nodes, node, second) * far + place * near
        behind = [peer(node, local + 1)] if place + 1 < chain else []
        if place:
            return peer(node, local - 1), behind, level
        up, down = double_tree(nodes, node, second)
        return None if up < 0 else peer(up, head), [peer(child, head) for child in down] + behind, level

    streams = [ways(channel, second) for channel in range(channels) for second in (False, True)]
    share = -(-n_elem // len(streams))
    cut = chunk_bytes or chunk_of(share * element, (nodes - 1).bit_length() + chain - 1, slice_bytes or 1 << 15)
    chunk = max(1, cut // element)

    def chunks_of(stream: int) -> list[tuple[int, int]]:
        """Address and length of each."""
        first, end, tile = stream * share, min((stream + 1) * share, n_elem), t_ptr + cube * n_elem * element
        return [(tile + at * element, min(chunk, end - at)) for at in range(first, end, chunk)]

    chunks = [chunks_of(stream) for stream in range(len(streams))]

    def expect(stream: int, j: int, up: bool) -> list[RecvFuture]:
        origins, shape = streams[stream][1] if up else [streams[stream][0]], (chunks[stream][j][1],)
        return [tl.recv_async(dir=origin, shape=shape, dtype=dtype) for origin in origins if origin is not None]

    def perform(stream: int, j: int, up: bool, coming: list[RecvFuture]) -> None:
        """A chunk on its way up, which turns at the root, or down."""
        (above, below, _), (at, length) = streams[stream], chunks[stream][j]
        if up:
            value: Any = tl.load(at, shape=(length,), dtype=dtype)
            for future in coming:
                value = tl.combine(value, tl.wait(future), op)
            if above is not None:
                tl.send(dir=above, src=value)
                return
            value = value / (nodes * chain) if op == "avg" else value
        else:
            value = tl.wait(coming[0])
        for child in reversed(below):
            tl.send(dir=child, src=value)
        tl.store(at, value)

    # Chunk j goes up through level l at time j - l and down at time j + l. What is sent over a link is received a fixed
    # time later, at most `far`: two streams that use one queue agree on the order of their messages, and with what is
    # due until then posted before each send, nobody waits for a slot that nobody frees.
    events: dict[int, list[tuple[int, int, bool]]] = {}
    for stream, (above, _, level) in enumerate(streams):
        for j, up in product(range(len(chunks[stream])), (True,) if above is None else (True, False)):
            events.setdefault(j - level if up else j + level, []).append((stream, j, up))
    times, ahead = sorted(events), 0
    posted: list[list[RecvFuture]] = []
    for number, time in enumerate(times):
        while ahead < len(times) and (ahead <= number + 1 or times[ahead] <= time + far):
            posted += [expect(*event) for event in sorted(events[times[ahead]])]
            ahead += 1
        for event in sorted(events[time]):
            perform(*event, posted.pop(0))


kernel = double_binary_tree_allreduce
