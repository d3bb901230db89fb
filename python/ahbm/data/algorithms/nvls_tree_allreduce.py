"""NVLS-tree all-reduce: the switch of every node reduces and copies, and double binary trees join the nodes.

Participant p of every node owns part p of the tile. It loads its part from all ranks of its node at once, reduced by the
node's switch. Participants of one number form two trees over the nodes, each for half of the part, as in
`double_binary_tree_allreduce`. The result is stored at all ranks of the node with a multicast. Parts are cut in chunks,
which follow each other. Before the first load the ranks of a node tell each other that their data is there, and at the
end that their results have arrived. Machines whose nodes' switches do not reduce are refused (AHBM-T019).

Parameter: `chunk_bytes` (0: by NCCL's rule, 32 to 512 KiB). Each chunk is reduced in one place, so all participants end
with the same bits.

Cost for tiles of m bytes, n nodes of k ranks, and chunks of c bytes: 5 alpha + m beta (1 + 1/k) inside a node, and
2 d (alpha + beta c) + 2 beta m/k over the nodes, with d = ceil(log2 n) and the alpha and beta of either network; the two
overlap but for the first and last chunk.
Source: NCCL, src/device/all_reduce.h (`NCCL_ALGO_NVLS_TREE`, 2.18) and src/graph/trees.cc.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ahbm._core import Handle, Peer, RecvFuture, Tl

COLLECTIVE = "all_reduce"


def kernel_args(
    world_size: int,
    n_elem: int,
    *,
    cube_w: int = 4,
    cube_h: int = 4,
    op: str = "sum",
    dtype: str = "f16",
    node_size: int = 1,
    chunk_bytes: int = 0,
) -> tuple[object, ...]:
    if chunk_bytes < 0:
        raise ValueError("chunk_bytes is 0 or more")
    if node_size == 1 and world_size > 1:
        raise ValueError("no node has several of the ranks: use topology nodes, and a group of whole nodes")
    return (n_elem, cube_w * cube_h, world_size, op, dtype, node_size, chunk_bytes)


def binary_tree(n: int, i: int) -> tuple[int, list[int]]:
    """Parent (-1: none) and children of member i of n: leaves are the odd ones."""
    if i == 0:
        return -1, [1 << ((n - 1).bit_length() - 1)] if n > 1 else []
    bit = i & -i
    up = i ^ bit | bit << 1
    low = bit >> 1
    children = [i - low] if low else []
    while low and i + low >= n:
        low >>= 1
    return up if up < n else i ^ bit, children + ([i + low] if low else [])


def double_tree(n: int, i: int, second: bool) -> tuple[int, list[int]]:
    """The second tree is the mirror of the first, or the first one shifted where n is odd."""
    if not second:
        return binary_tree(n, i)
    if n % 2:
        up, down = binary_tree(n, (i - 1) % n)
        return -1 if up < 0 else (up + 1) % n, [(child + 1) % n for child in down]
    up, down = binary_tree(n, n - 1 - i)
    return -1 if up < 0 else n - 1 - up, [n - 1 - child for child in down]


def chunk_of(nbytes: int, levels: int) -> int:
    """Bytes of a chunk by NCCL's rule: the more levels, the more chunks fill them."""
    chunk = 1 << 19
    for share, least in ((8, 1 << 17), (4, 1 << 16), (1, 1 << 15)):
        while nbytes < chunk * levels * share and chunk > least:
            chunk //= 2
    return chunk


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
    mates = [base + i for i in range(node_size)]
    others = [base + (sip_rank + i) % node_size for i in range(1, node_size)]

    def meet() -> None:
        """Everybody of the node has come here once this ends."""
        places = [(local + i) % within for i in range(1, within)]
        peers = [tl.peer(sip=base + place // cubes, cube=place % cubes) for place in places]
        token = tl.zeros((1,), dtype=dtype)
        for peer in peers:
            tl.send(dir=peer, src=token)
        for future in [tl.recv_async(dir=peer, shape=(1,), dtype=dtype) for peer in peers]:
            tl.wait(future)

    def rail(node: int) -> Peer:
        return tl.peer(sip=node * node_size + sip_rank % node_size, cube=cube)

    share = -(-n_elem // within)
    half = -(-share // 2)
    levels = max(1, (nodes - 1).bit_length())
    chunk = max(1, (chunk_bytes or chunk_of(half * element, levels)) // element)
    trees = [double_tree(nodes, node, second) for second in (False, True)]

    def part(tree: int, j: int) -> tuple[int, int]:
        """First byte and length of chunk j of a tree; lengths may be 0."""
        end = min(local * share + min((tree + 1) * half, share), n_elem)
        first = min(local * share + tree * half + j * chunk, end)
        return first * element, min(chunk, end - first)

    def reduced(at: int, length: int) -> Any:
        """Some elements of the tiles of all cubes of the node."""
        acc: Any = None
        for tile in tiles:
            if others:
                value = tl.load_reduce(tile + at, shape=(length,), sips=mates, dtype=dtype, op=op)
            else:
                value = tl.load(tile + at, shape=(length,), dtype=dtype)
            acc = value if acc is None else tl.combine(acc, value, op)
        return acc

    coming: dict[tuple[int, int], RecvFuture] = {}

    def spread(tree: int, j: int, value: Handle) -> None:
        for child in reversed(trees[tree][1]):
            tl.send(dir=rail(child), src=value)
        for tile in tiles:
            tl.store(tile + part(tree, j)[0], value)
            if others:
                tl.multicast(tile + part(tree, j)[0], value, sips=others)

    def gather(tree: int, j: int) -> None:
        (up, down), (at, length) = trees[tree], part(tree, j)
        arriving = [tl.recv_async(dir=rail(child), shape=(length,), dtype=dtype) for child in down]
        acc = reduced(at, length)
        for future in arriving:
            acc = tl.combine(acc, tl.wait(future), op)
        if up < 0:
            spread(tree, j, acc / (n_sips * cubes) if op == "avg" else acc)
        else:
            tl.send(dir=rail(up), src=acc)
            coming[tree, j] = tl.recv_async(dir=rail(up), shape=(length,), dtype=dtype)

    if within > 1:
        meet()
    # A chunk comes back after a way up and a way down: until then the next ones go up.
    count, lag = -(-half // chunk), 2 * levels
    for step in range(count + lag):
        for tree in (0, 1):
            if step < count and part(tree, step)[1]:
                gather(tree, step)
        for tree in (0, 1):
            if (tree, step - lag) in coming:
                spread(tree, step - lag, tl.wait(coming.pop((tree, step - lag))))
    tl.fence()
    if within > 1:
        meet()


kernel = nvls_tree_allreduce
