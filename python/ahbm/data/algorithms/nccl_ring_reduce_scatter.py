"""Ring reduce-scatter as NCCL runs it: `ring_reduce_scatter` in channels and slices.

In place: the buffer holds n chunks of `n_elem` elements; afterwards rank r has the reduction of all chunks r at chunk
r; its other chunks keep what they held.

Parameters: `channels` are rings for a part of every chunk each. Every second one goes the other way round; with ranks
that share nodes, all go one way, and each leaves the nodes at another rank. 0: two, or as many as ranks share a node,
fewer where a message had less than 4 KiB. A message is cut in `slices` of 32 KiB or more, of which one travels while
the next one is reduced. It has at most `chunk_bytes`: a channel with more goes round several times. 0: no limit.

Cost for chunks of m bytes: (n-1) (alpha + m beta) and n-1 additions of m bytes; bandwidth-optimal. Of s slices, a
step takes the longer of beta m and alpha + beta m/s.
Source: Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication: theory, practice, and experience",
2007; NCCL, src/device/reduce_scatter.h (`runRing`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice, pairwise, product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ahbm._core import Handle, RecvFuture, Tl

COLLECTIVE = "reduce_scatter"

MESSAGE_BYTES = 4096
"""Least bytes of a channel's messages, as for NCCL's LL: 512 threads of 8 bytes."""
SLICE_BYTES = 32768
"""Least bytes of a slice, as for NCCL's Simple."""
CROSSING = 6
"""Times that a message between nodes takes as long as one inside: rings take their turns accordingly."""


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
    slices: int = 2,
    chunk_bytes: int = 2097152,
) -> tuple[object, ...]:
    if channels < 0 or slices < 1 or chunk_bytes < 0:
        raise ValueError("channels and chunk_bytes are 0 or more, slices 1 or more")
    return (n_elem, world_size, op, dtype, node_size, channels, slices, chunk_bytes)


def nccl_ring_reduce_scatter(
    t_ptr: int,
    n_elem: int,
    n: int,
    op: str,
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
    message = n_elem * element // channels
    slices = max(1, min(slices, min(message, chunk_bytes or message) // SLICE_BYTES))

    cut = [n_elem * channel // channels for channel in range(channels + 1)]
    laps = [-(-(b - a) * element // chunk_bytes) if chunk_bytes else 1 for a, b in pairwise(cut)]
    # A ring of so many messages between nodes takes a step in `pace` / n of the time of a message inside.
    pace = n + (n // node_size * (CROSSING - 1) if 1 < node_size < n else 0)
    ahead = CROSSING * n // pace

    def turn_of(channel: int) -> int:
        return channel if node_size > 1 else 0

    def ring(channel: int) -> Iterator[None]:
        """The steps of a channel, one message after the other; others go on in between."""
        turn, way = turn_of(channel), -1 if channel % 2 and node_size == 1 else 1
        begin, end, cuts = cut[channel], cut[channel + 1], laps[channel] * slices
        me = way * (sip_rank // node_size * node_size + (sip_rank - turn) % node_size)

        def rank(i: int) -> int:
            """The rank at a place of the ring."""
            i = way * i % n
            return i // node_size * node_size + (i + turn) % node_size

        right, left = tl.peer(sip=rank(me + 1)), tl.peer(sip=rank(me - 1))

        def bounds(lap: int, part: int) -> tuple[int, int]:
            """First element and length of a slice of a chunk; lengths differ by at most one and may be 0."""
            at = lap * slices + part
            first = begin + (end - begin) * at // cuts
            return first, begin + (end - begin) * (at + 1) // cuts - first

        steps = product(range(laps[channel]), range(1, n), range(slices))
        coming: deque[RecvFuture | int] = deque()

        def expect(count: int) -> None:
            """Posts what comes next. Of several messages each is posted before it is sent: no slot is waited for."""
            for lap, _, part in islice(steps, count):
                length = bounds(lap, part)[1]
                posted = length and channels * slices > 1
                coming.append(tl.recv_async(dir=left, shape=(length,), dtype=dtype) if posted else length)

        def take() -> Handle | None:
            expected = coming.popleft()
            if not isinstance(expected, int):
                return tl.wait(expected)
            return tl.recv(dir=left, shape=(expected,), dtype=dtype) if expected else None

        if channels > 1 and pace > n and (sip_rank - turn) % node_size == 0:
            for _ in range(ahead):  # it is further behind
                expect(slices)
                if channels > most:
                    yield
        for lap in range(laps[channel]):
            for step in range(n):
                for part in range(slices):
                    first, length = bounds(lap, part)
                    # A chunk starts one rank behind its owner, so that it is complete there after n - 1 hops.
                    at = t_ptr + (rank(me - 1 - step) * n_elem + first) * element
                    arrived = take() if step else None
                    value = tl.load(at, shape=(length,), dtype=dtype) if length else None
                    if arrived is not None and value is not None:
                        value = tl.combine(arrived, value, op)
                    if step < n - 1:
                        expect(1)
                    if value is not None:  # empty slices send no message
                        if step < n - 1:
                            tl.send(dir=right, src=value)
                        else:
                            tl.store(at, value / n if op == "avg" else value)
                    yield

    rings, order = [ring(channel) for channel in range(channels)], []
    for channel in range(channels):
        place = int((sip_rank - turn_of(channel)) % node_size) if channels > 1 else 0
        order += [(step * pace - place * (pace - n), channel) for step in range(laps[channel] * n)]
    for _ in range(ahead if channels > most and pace > n else 0):
        # Rings that enter the node at one rank share its queue: they post in the order in which the others send.
        for channel in range(channels):
            if (sip_rank - turn_of(channel)) % node_size == 0:
                next(rings[channel])
    for _, channel in sorted(order):
        for _ in range(slices):
            next(rings[channel])


kernel = nccl_ring_reduce_scatter
