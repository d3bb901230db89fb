"""NVLS-tree all-reduce: the switch of every node reduces and copies, and double binary trees join the nodes.

Participant p of every node owns part p of the tile. It loads its part from all ranks of its node at once, reduced by
the node's switch. Participants of one number form two trees over the nodes, each for half of the part, as in
`double_binary_tree_allreduce`. The result is stored at all ranks of the node with a multicast. Parts are cut in
chunks, which follow each other. Before the first load the ranks of a node tell each other that their data is there,
and at the end that their results have arrived. Machines whose nodes' switches do not reduce are refused (AHBM-U116).

Parameter: `chunk_bytes`. Each chunk is reduced in one place, so all participants end with the same bits.

Cost for tiles of m bytes, n nodes of k ranks, and chunks of c bytes: 5 alpha + m beta (1 + 1/k) inside a node, and 2
d (alpha + beta c) + 2 beta m/k over the nodes, with d = ceil(log2 n) and the alpha and beta of either network; the
two overlap but for the first and last chunk.
Source: NCCL, src/device/all_reduce.h (`NCCL_ALGO_NVLS_TREE`, 2.18) and src/graph/trees.cc.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ahbm._core import Peer, RecvFuture, Tl

COLLECTIVE = "all_reduce"
REDUCING_SWITCH = "node"


def kernel_args(
    world_size: int,
    n_elem: int,
    *,
    cube_w: int = 4,
    cube_h: int = 4,
    op: str = "sum",
    dtype: str = "f16",
    node_size: int = 1,
    chunk_bytes: int = 65536,
) -> tuple[object, ...]:
    if chunk_bytes < 1:
        raise ValueError("chunk_bytes is 1 or more")
    return (n_elem, cube_w * cube_h, world_size, op, dtype, node_size, chunk_bytes)


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
    if n % 2:
        up, down = binary_tree(n, (i - 1) % n)
        return -1 if up < 0 else (up + 1) % n, [(child + 1) % n for child in down]
    up, down = binary_tree(n, n - 1 - i)
    return -1 if up < 0 else n - 1 - up, [n - 1 - child for child in down]


def level_of(n: int, i: int, second: bool) -> int:
    """Steps to the root."""
    up = double_tree(n, i, second)[0]
    return 0 if up < 0 else 1 + level_of(n, up, second)


def nvls_tree_allreduce(
    t_ptr: int,
    n_elem: int,
    cubes: int,
    n_sips: int,
    op: str,
    dtype: str,
    node_size: int,
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
    element = tl.itemsize(dtype)
    tiles = [t_ptr + c * n_elem * element for c in range(cubes)]
    nodes, within = n_sips // node_size, node_size * cubes
    node, local = sip_rank // node_size, sip_rank % node_size * cubes + cube
    base = node * node_size
    others = [base + (sip_rank + i) % node_size for i in range(1, node_size)]

    def meet() -> None:
        """Everybody of the node has come here once this ends."""
        peers = [mate((local + i) % within) for i in range(1, within)]
        token = tl.zeros((1,), dtype=dtype)
        for peer in peers:
            tl.send(dir=peer, src=token)
        for future in [tl.recv_async(dir=peer, shape=(1,), dtype=dtype) for peer in peers]:
            tl.wait(future)

    def mate(place: int) -> Peer:
        return tl.peer(sip=base + place // cubes, cube=place % cubes)

    def rail(node: int) -> Peer:
        return tl.peer(sip=node * node_size + sip_rank % node_size, cube=cube)

    share = -(-n_elem // within)
    half = -(-share // 2)
    levels = (nodes - 1).bit_length()
    chunk = max(1, chunk_bytes // element)
    trees = [(*double_tree(nodes, node, second), level_of(nodes, node, second)) for second in (False, True)]

    def part(tree: int, j: int) -> tuple[int, int]:
        """First byte and length of chunk j of a tree; lengths may be 0."""
        end = min(local * share + min((tree + 1) * half, share), n_elem)
        first = min(local * share + tree * half + j * chunk, end)
        return first * element, min(chunk, end - first)

    def reduced(at: int, length: int) -> Any:
        acc, where, shape = None, [base + i for i in range(node_size)], (length,)
        for tile in tiles:
            value = tl.load_reduce(tile + at, shape, where, dtype, op) if others else tl.load(tile + at, shape, dtype)
            acc = value if acc is None else tl.combine(acc, value, op)
        return acc

    def expect(tree: int, j: int, up: bool) -> list[RecvFuture]:
        origins = trees[tree][1] if up else [trees[tree][0]]
        return [tl.recv_async(dir=rail(node), shape=(part(tree, j)[1],), dtype=dtype) for node in origins]

    def perform(tree: int, j: int, up: bool, coming: list[RecvFuture]) -> None:
        """A chunk on its way up, which turns at the root, or down."""
        (above, below, _), (at, length) = trees[tree], part(tree, j)
        if up:
            value = reduced(at, length)
            for future in coming:
                value = tl.combine(value, tl.wait(future), op)
            if above >= 0:
                tl.send(dir=rail(above), src=value)
                return
            value = value / (n_sips * cubes) if op == "avg" else value
        else:
            value = tl.wait(coming[0])
        for child in reversed(below):
            tl.send(dir=rail(child), src=value)
        for tile in tiles:
            tl.store(tile + at, value)
            if others:
                tl.multicast(tile + at, value, sips=others)

    if within > 1:
        meet()
    # Chunk j goes up through level l at time j + levels - l and down at time j + levels + l. What is sent at one time
    # is received at the next: two trees that use one queue agree on the order of their messages.
    events: dict[int, list[tuple[int, int, bool]]] = {}
    for tree, (above, _, level) in enumerate(trees):
        for j in range(-(-half // chunk)):
            if part(tree, j)[1]:
                events.setdefault(j + levels - level, []).append((tree, j, True))
                if above >= 0:
                    events.setdefault(j + levels + level, []).append((tree, j, False))
    # What a time needs is posted before the sends of the time before: nobody waits for a slot that nobody frees.
    order = [sorted(events[time]) for time in sorted(events)]
    posted = [[expect(*event) for event in order[0]]] if order else []
    for now, later in zip(order, [*order[1:], []], strict=False):
        posted.append([expect(*event) for event in later])
        for event, coming in zip(now, posted.pop(0), strict=True):
            perform(*event, coming)
    tl.fence()
    if within > 1:
        meet()


kernel = nvls_tree_allreduce
