"""Bidirectional ring all-reduce: every chunk is gathered from both sides of a ring, and spread to both sides.

The participants (every cube of every SIP) form one ring: a snake through the cube mesh of every SIP, and a snake
through the SIPs. Of n chunks of the tile, participant i reduces chunk i. The contributions to a chunk come from the
n//2 participants before and from the (n-1)//2 behind; each adds its own part on the way. The result travels back the
same ways. Two streams of messages run through each participant at all times, so one is on the wire while the other is
being read and added. Chunks of 8 KiB or more are gathered in halves, which makes four streams.

Each chunk is reduced in one place, so all participants end with the same bits.

Cost for tiles of m bytes and n participants: 2 (n//2) (alpha + 2 beta m/n) where a port carries one message at a time,
2 (n//2) (alpha + beta m/n) where the two neighbours have a port each. A participant sends 2 m (n-1)/n bytes, the least
that is possible; half as many rounds as `ring_allreduce`.
Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009, in both
directions at once; Jain and Sabharwal, "Optimal bucket algorithms for large MPI collectives on torus interconnects",
2010.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ahbm._core import Handle, Peer, RecvFuture, Tl

COLLECTIVE = "all_reduce"

SPLIT_BYTES = 8192
"""Chunks from here on are gathered in halves; a shorter message is mostly set-up."""


def kernel_args(
    world_size: int, n_elem: int, *, cube_w: int = 4, cube_h: int = 4, op: str = "sum", dtype: str = "f16"
) -> tuple[object, ...]:
    return (n_elem, cube_w, cube_h, world_size, op, dtype)


def bidirectional_ring_allreduce(
    t_ptr: int,
    n_elem: int,
    cube_w: int,
    cube_h: int,
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
    cubes = cube_w * cube_h
    n = n_sips * cubes
    sip_w = sip_topo_w or n_sips
    element = tl.itemsize(dtype)
    tile = t_ptr + cube * n_elem * element

    def snake(at: int, w: int) -> int:
        """Place `at` of a snake through rows of `w`, by row and column; and the reverse."""
        row, col = divmod(at, w)
        return row * w + (w - 1 - col if row % 2 else col)

    me = snake(sip_rank, sip_w) * cubes + snake(cube, cube_w)

    def peer(i: int) -> Peer:
        return tl.peer(sip=snake(i % n // cubes, sip_w), cube=snake(i % n % cubes, cube_w))

    ahead, behind = {1: peer(me + 1), -1: peer(me - 1)}, {1: peer(me - 1), -1: peer(me + 1)}
    reach = {1: n // 2, -1: (n - 1) // 2}
    halves = 2 if n_elem // n * element >= SPLIT_BYTES else 1
    ways = [way for way in (1, -1) if reach[way]]
    streams = [(half, way) for half in range(halves) for way in ways]

    def bounds(c: int, part: int, parts: int) -> tuple[int, int]:
        """First element and length of a part of chunk c; lengths may be 0."""
        at, cuts = c % n * parts + part, n * parts
        first = n_elem * at // cuts
        return first, n_elem * (at + 1) // cuts - first

    def load(c: int, part: int = 0, parts: int = 1) -> Handle | None:
        first, length = bounds(c, part, parts)
        return tl.load(tile + first * element, shape=(length,), dtype=dtype) if length else None

    def store(c: int, value: Handle | None, part: int = 0, parts: int = 1) -> None:
        if value is not None:
            tl.store(tile + bounds(c, part, parts)[0] * element, value)

    def shift(way: int, outgoing: Handle | None, c: int, part: int = 0, parts: int = 1) -> RecvFuture | None:
        """Passes a part on, and expects that of chunk c from the other side; empty parts send no message."""
        if outgoing is not None:
            tl.send(dir=ahead[way], src=outgoing)
        length = bounds(c, part, parts)[1]
        return tl.recv_async(dir=behind[way], shape=(length,), dtype=dtype) if length else None

    def add(arrived: RecvFuture | None, mine: Handle | None) -> Handle | None:
        return None if arrived is None or mine is None else tl.combine(tl.wait(arrived), mine, op)

    arriving: dict[tuple[int, int], RecvFuture | None] = {}
    for half, way in streams:
        c = me + way * reach[way]
        arriving[half, way] = shift(way, load(c, half, halves), c - way, half, halves)
    for step in range(1, n // 2):
        for half, way in streams:
            if step < reach[way]:
                c = me + way * (reach[way] - step)
                mine = load(c, half, halves)
                partial = add(arriving[half, way], mine)
                arriving[half, way] = shift(way, partial, c - way, half, halves)
    own = [load(me, half, halves) for half in range(halves)]
    for half in range(halves):
        for way in reversed(ways):  # the shorter way first: its message is there
            own[half] = add(arriving[half, way], own[half])
        value = own[half]
        store(me, value / n if op == "avg" and value is not None else value, half, halves)

    # What is spread is not added to: whole chunks, which are fewer messages.
    result = load(me)
    spread = {way: shift(way, result, me - way) for way in ways}
    for step in range(1, n // 2 + 1):
        for way in ways:
            future = spread[way]
            value = None if step > reach[way] or future is None else tl.wait(future)
            if step < reach[way]:
                spread[way] = shift(way, value, me - way * (step + 1))
            if step <= reach[way]:
                store(me - way * step, value)


kernel = bidirectional_ring_allreduce
