"""Ring all-reduce as NCCL runs it: `ring_allreduce` in channels and slices.

The participants (every cube of every SIP) form one ring. In n-1 steps each chunk travels once round it, gathering
contributions; in n-1 more the finished chunks travel round again. All participants end with the same bits.

Parameters: `channels` are rings with a part of the tile each. Every second one goes the other way round; with ranks
that share nodes, all go one way, and each leaves the nodes at another rank. 0: two, or as many as ranks share a node,
fewer where a message had less than 4 KiB. A message of a chunk is cut in `slices` of 32 KiB or more, of which one
travels while the next is reduced. A chunk has at most `chunk_bytes` (0: any): a channel with more goes round again.

Cost for tiles of m bytes and n participants: 2 (n-1) alpha + 2 m beta (n-1)/n; bandwidth-optimal. Of s slices, a step
takes the longer of beta m/n and alpha + beta m/(n s).
Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009; NCCL,
src/device/all_reduce.h (`runRing`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice, pairwise, product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ahbm._core import Handle, Peer, RecvFuture, Tl

COLLECTIVE = "all_reduce"

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
    return (n_elem, cube_w * cube_h, world_size, op, dtype, node_size, channels, slices, chunk_bytes)


def nccl_ring_allreduce(
    t_ptr: int,
    n_elem: int,
    cubes: int,
    n_sips: int,
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
    cube = tl.program_id(axis=1)
    n = n_sips * cubes
    element = tl.itemsize(dtype)
    tile = t_ptr + cube * n_elem * element
    node = node_size * cubes
    most = node_size if node_size > 1 else 2
    channels = channels or max(1, min(most, n_elem * element // (MESSAGE_BYTES * n)))
    message = n_elem * element // (channels * n)
    slices = max(1, min(slices, min(message, chunk_bytes or message) // SLICE_BYTES))

    local = sip_rank % node_size * cubes + cube
    cut = [n_elem * channel // channels for channel in range(channels + 1)]
    laps = [-(-(b - a) * element // (chunk_bytes * n)) if chunk_bytes else 1 for a, b in pairwise(cut)]
    # A ring of so many messages between nodes takes a step in `pace` / n of the time of a message inside.
    pace = n + (n // node * (CROSSING - 1) if 1 < node < n else 0)
    ahead = CROSSING * n // pace

    def turn_of(channel: int) -> int:
        return channel * cubes if node_size > 1 else 0

    def ring(channel: int) -> Iterator[None]:
        """The steps of a channel, one message after the other; others go on in between."""
        turn, way = turn_of(channel), -1 if channel % 2 and node_size == 1 else 1
        begin, end, rounds = cut[channel], cut[channel + 1], laps[channel]
        me = sip_rank * cubes + cube
        me = way * (me // node * node + (me - turn) % node)

        def peer(i: int) -> Peer:
            i = way * i % n
            i = i // node * node + (i + turn) % node
            return tl.peer(sip=i // cubes, cube=i % cubes)

        right, left = peer(me + 1), peer(me - 1)

        def bounds(lap: int, c: int, part: int) -> tuple[int, int]:
            """First element and length of a slice of chunk c; lengths differ by at most one and may be 0."""
            at, cuts = (lap * n + c % n) * slices + part, max(1, rounds) * n * slices
            first = begin + (end - begin) * at // cuts
            return first, begin + (end - begin) * (at + 1) // cuts - first

        def load(*chunk: int) -> Handle | None:
            first, length = bounds(*chunk)
            return tl.load(tile + first * element, shape=(length,), dtype=dtype) if length else None

        def send(value: Handle | None) -> None:
            if value is not None:  # empty slices send no message
                tl.send(dir=right, src=value)

        steps = product(range(rounds), range(1, 2 * n - 1), range(slices))
        coming: deque[RecvFuture | int] = deque()

        def expect(count: int) -> None:
            """Posts what comes next. Of several messages each is posted before it is sent: no slot is waited for."""
            for lap, step, part in islice(steps, count):
                length = bounds(lap, me - step, part)[1]
                posted = length and channels * slices > 1
                coming.append(tl.recv_async(dir=left, shape=(length,), dtype=dtype) if posted else length)

        def take() -> Handle | None:
            expected = coming.popleft()
            if not isinstance(expected, int):
                return tl.wait(expected)
            return tl.recv(dir=left, shape=(expected,), dtype=dtype) if expected else None

        def store(value: Handle | None, *chunk: int) -> None:
            if value is not None:
                tl.store(tile + bounds(*chunk)[0] * element, value)

        if channels > 1 and pace > n and (local - turn) % node == 0:
            for _ in range(ahead):  # it is further behind
                expect(slices)
                if channels > most:
                    yield
        for lap in range(rounds):
            for step in range(2 * n - 1):
                for part in range(slices):
                    c = me - step
                    value = take() if step else load(lap, c, part)
                    if 0 < step < n:
                        mine = load(lap, c, part)
                        value = None if value is None or mine is None else tl.combine(value, mine, op)
                    if step == n - 1 and op == "avg" and value is not None:
                        value = value / n
                    if step >= n - 1:
                        store(value, lap, c, part)
                    if step < 2 * n - 2:
                        expect(1)
                        send(value)
                    yield

    rings, order = [ring(channel) for channel in range(channels)], []
    for channel in range(channels):
        place = int((local - turn_of(channel)) % node) if channels > 1 else 0
        units = range(laps[channel] * (2 * n - 1))
        order += [(step * pace - place * (pace - n), channel) for step in units]
    for _ in range(ahead if channels > most and pace > n else 0):
        # Rings that enter the node at one rank share its queue: they post in the order in which the others send.
        for channel in range(channels):
            if (local - turn_of(channel)) % node == 0:
                next(rings[channel])
    for _, channel in sorted(order):
        for _ in range(slices):
            next(rings[channel])


kernel = nccl_ring_allreduce
