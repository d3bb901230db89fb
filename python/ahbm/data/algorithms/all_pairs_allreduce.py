"""Hierarchical all-pairs all-reduce: every cube sums its share of the tiles in its SIP, and the SIPs sum the shares.

A tile has a share per cube, cut in pieces. A piece takes these steps:

1. scatter: every cube sends each other cube of its SIP what it holds of that cube's share, and adds what it gets;
2. between SIPs: those of a row send their sums to one of them, the keeper; the keepers of a column to one of them. The
   result goes back the same way. Keepers change with cube and piece, so all links carry as much;
3. gather: every cube sends the result to each other cube of its SIP.

Messages between cubes go along the rows of the mesh, then along the columns. The cubes are served along its diagonals:
near and far ones alternate, and no link gets many messages at once. While some pieces are between SIPs, others are
between cubes: a PE does the steps of all pieces in the order of their turns. A turn is a message to a cube. Each piece
is reduced in one place, so all participants end with the same bits.

Cost for tiles of m bytes, n participants and d dimensions of SIPs: 2 (1 + d) alpha + 2 beta m (n-1)/n, on average over
the participants; nobody can do with fewer bytes.
Source: all pairs as in Cowan et al., "MSCCLang: Microsoft Collective Communication Language", 2023, by level.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ahbm._core import Peer, RecvFuture, Tl

COLLECTIVE = "all_reduce"

SPLIT_BYTES = 16384
"""Shares from here on are cut in pieces; those of a smaller share are mostly set-up."""
GATHERED = (1, 1, 2)
"""Pieces in each message that gathers."""
KEEPERS = 64
"""SIPs that keep a piece where each has one cube."""
ARRIVED = 9
"""Turns until a message between cubes is there, on busy links."""


def kernel_args(
    world_size: int, n_elem: int, *, cube_w: int = 4, cube_h: int = 4, op: str = "sum", dtype: str = "f16"
) -> tuple[object, ...]:
    return (n_elem, cube_w, cube_h, world_size, op, dtype)


def all_pairs_allreduce(
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
    cubes, sip_w = cube_w * cube_h, sip_topo_w or n_sips
    (row, col), (sip_row, sip_col) = divmod(cube, cube_w), divmod(sip_rank, sip_w)
    element = tl.itemsize(dtype)
    tile = t_ptr + cube * n_elem * element
    share = -(-n_elem // cubes)
    # One cube per SIP gathers nothing: a piece per SIP, so that each keeps one.
    cuts = GATHERED if cubes > 1 else (1,) * min(n_sips, KEEPERS)
    messages = cuts if share * element >= SPLIT_BYTES else (1,)
    piece = -(-share // sum(messages))
    held: dict[object, Any] = {}
    coming: dict[object, RecvFuture] = {}
    steps: list[tuple[float, Callable[..., None], Any]] = []

    def beside(x: int, y: int) -> int:
        return (row + y) % cube_h * cube_w + (col + x) % cube_w

    diagonals = [(i % cube_w, i // cube_w + i % cube_w) for i in range(1, cubes)]
    pairs = [(beside(x, y), beside(-x, -y)) for x, y in diagonals]  # whom a turn sends to, and whom it hears
    sips: list[tuple[int, int, Callable[[int], Peer]]] = [  # dimensions: extent, own place, the PE at a place
        (sip_w, sip_col, lambda i: tl.peer(sip=sip_row * sip_w + i)),
        (n_sips // sip_w, sip_row, lambda i: tl.peer(sip=i * sip_w + sip_col)),
    ]

    def part(c: int, p: int, count: int = 1) -> tuple[int, int]:
        """Address and length of `count` pieces from p on of the share of cube c; lengths may be 0."""
        end = min((c + 1) * share, n_elem)
        first = min(c * share + p * piece, end)
        return tile + first * element, min(first + count * piece, end) - first

    def load(key: object, c: int, p: int, count: int = 1) -> None:
        at, length = part(c, p, count)
        held[key] = tl.load(at, shape=(length,), dtype=dtype) if length else None

    def expect(p: int, i: int, origin: Peer, length: int) -> None:
        if length:
            coming[p, i] = tl.recv_async(dir=origin, shape=(length,), dtype=dtype)

    def swap(key: object, p: int, i: int, length: int) -> None:
        if held[key] is not None:
            tl.send(dir=tl.peer(cube=pairs[i][0]), src=held[key])
        expect(p, i, tl.peer(cube=pairs[i][1]), length)

    def add(p: int, i: int) -> None:
        if (p, i) in coming:
            held[p] = tl.combine(held[p], tl.wait(coming.pop((p, i))), op)

    def keep(p: int, i: int, count: int) -> None:
        if (p, i) in coming:
            tl.store(part(pairs[i][1], p, count)[0], tl.wait(coming.pop((p, i))))

    def keeper(p: int, d: int) -> int:
        return (cube + p) // (1, sip_w)[d] % sips[d][0]

    def depth(p: int) -> int:
        """The first dimension in which another SIP keeps the piece; -1 for a piece without elements."""
        elsewhere = (d for d in (0, 1) if sips[d][1] != keeper(p, d))
        return next(elsewhere, 2) if own[p][1] else -1

    own = [part(cube, p) for p in range(sum(messages))]
    depths = [depth(p) for p in range(sum(messages))]

    def meet(p: int, d: int, back: bool) -> None:
        """Sends to the keeper, which expects it from the others of the dimension; `back`: the reverse."""
        extent, here, peer = sips[d]
        others = ((here + i) % extent for i in range(1, extent))
        for i, place in enumerate([keeper(p, d)] if depths[p] == d else others):
            if (depths[p] == d) != back:
                tl.send(dir=peer(place), src=held[p])
            else:
                expect(p, i, peer(place), own[p][1])

    def met(p: int, d: int, back: bool) -> None:
        if back and depths[p] == d:
            held[p] = tl.wait(coming.pop((p, 0)))
        elif not back and depths[p] > d:
            for i in range(sips[d][0] - 1):
                add(p, i)
            if op == "avg" and d == 1:
                held[p] = held[p] / (n_sips * cubes)

    def settle(p: int) -> None:
        if held[p] is not None:
            tl.store(own[p][0], held[p])

    def at(turn: float, step: Callable[..., None], *args: object) -> None:
        steps.append((turn, step, args))

    bulk, arrived = len(pairs), ARRIVED if len(messages) > 1 else cubes
    first = 0
    for count in messages:
        spread = max((sum(messages) + first) * bulk, (first + count) * bulk + arrived + 4)
        for p in range(first, first + count):
            at(p * bulk + arrived + 0.5, load, p, cube, p)
            for i in range(bulk):
                at(p * bulk + i + 0.5, load, (p, i), pairs[i][0], p)
                at(p * bulk + i + 1, swap, (p, i), p, i, own[p][1])
                at(p * bulk + i + 1.5 + arrived, add, p, i)
            turn = (p + 1) * bulk + arrived + 0.7
            unit = (spread - 1.3 - turn) / (2 * (sips[0][0] + sips[1][0]))
            for d, back in ((0, False), (1, False), (1, True), (0, True)):
                after = turn + unit * sips[d][0]
                if depths[p] >= d:
                    at(turn, meet, p, d, back)
                    at(after, met, p, d, back)
                turn = after
            at(turn, settle, p)
        if pairs:
            at(spread - 0.6, load, first, cube, first, count)
        for i, (_, origin) in enumerate(pairs, 1):
            at(spread + i * count, swap, first, first, i - 1, part(origin, first, count)[1])
            at(spread + (i + arrived) * count + 0.5, keep, first, i - 1, count)
        first += count
    for _, step, args in sorted(steps, key=lambda planned: planned[0]):
        step(*args)


kernel = all_pairs_allreduce
