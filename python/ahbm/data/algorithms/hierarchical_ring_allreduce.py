"""Hierarchical ring all-reduce: reduce-scatter inside each node, all-reduce on each rail, all-gather inside each node.

The k participants of a node (every cube of its SIPs; of the SIP, where the network has no nodes) form a ring, and so do
those of one number in their nodes, a rail. Three phases:

1. a ring reduce-scatter inside the node: participant p ends with the node's sum of one part of the tile;
2. a ring all-reduce of that part on the rail: reduce-scatter, then all-gather;
3. a ring all-gather inside the node.

Each part of a part is reduced in one fixed order, so all participants end with the same bits.

Cost for tiles of m bytes and n nodes of k participants: 2 (k-1) alpha + 2 m beta (k-1)/k inside a node, and
2 (n-1) alpha + 2 m/k beta (n-1)/n between nodes, with the alpha and beta of either network. A ring of all n k takes
2 (n k - 1) alpha, and sends 2 m bytes through each interface that leaves a node.
Source: Mikami et al., "Massively distributed SGD: ImageNet/ResNet-50 training in a flash", 2018 (2D-torus all-reduce);
Cho et al., "BlueConnect: decomposing all-reduce for deep learning on heterogeneous network hierarchy", 2019.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ahbm._core import Handle, Peer, Tl

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
) -> tuple[object, ...]:
    return (n_elem, cube_w * cube_h, world_size, op, dtype, node_size)


def hierarchical_ring_allreduce(
    t_ptr: int,
    n_elem: int,
    cubes: int,
    n_sips: int,
    op: str,
    dtype: str,
    node_size: int,
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
    tile = t_ptr + cube * n_elem * element
    nodes, within = n_sips // node_size, node_size * cubes
    node, local = sip_rank // node_size, sip_rank % node_size * cubes + cube

    def mate(i: int) -> Peer:
        """The participant i further round the node's ring."""
        place = (local + i) % within
        return tl.peer(sip=node * node_size + place // cubes, cube=place % cubes)

    def fellow(i: int) -> Peer:
        """The participant i further round the rail's ring."""
        return tl.peer(sip=(node + i) % nodes * node_size + sip_rank % node_size, cube=cube)

    def bounds(region: tuple[int, int], c: int, count: int) -> tuple[int, int]:
        """First element and length of one of `count` parts of a region; lengths may be 0."""
        first, length = region
        start, end = length * (c % count) // count, length * (c % count + 1) // count
        return first + start, end - start

    def load(part: tuple[int, int]) -> Handle | None:
        first, length = part
        return tl.load(tile + first * element, shape=(length,), dtype=dtype) if length else None

    def store(part: tuple[int, int], value: Handle | None) -> None:
        if value is not None:
            tl.store(tile + part[0] * element, value)

    def shift(outgoing: Handle | None, length: int, right: Peer, left: Peer) -> Handle | None:
        """Pass a part on to the right and take one from the left; empty parts send no message."""
        if outgoing is not None:
            tl.send(dir=right, src=outgoing)
        return tl.recv(dir=left, shape=(length,), dtype=dtype) if length else None

    def reduce_scatter(
        region: tuple[int, int], me: int, count: int, ring: tuple[Peer, Peer], last: bool
    ) -> tuple[int, int]:
        """The part of the region that this participant ends with; the last reduction divides."""
        current = load(bounds(region, me, count))
        for step in range(1, count):
            part = bounds(region, me - step, count)
            arrived, mine = shift(current, part[1], *ring), load(part)
            current = None if arrived is None or mine is None else tl.combine(arrived, mine, op)
        own = bounds(region, me + 1, count)
        if op == "avg" and last and current is not None:
            current = current / (n_sips * cubes)
        store(own, current)
        return own

    def all_gather(region: tuple[int, int], me: int, count: int, ring: tuple[Peer, Peer]) -> None:
        current = load(bounds(region, me + 1, count))
        for step in range(count - 1):
            part = bounds(region, me - step, count)
            current = shift(current, part[1], *ring)
            store(part, current)

    whole = own = (0, n_elem)
    if within > 1:
        own = reduce_scatter(whole, local, within, (mate(1), mate(-1)), nodes == 1)
    if nodes > 1:
        rail = fellow(1), fellow(-1)
        reduce_scatter(own, node, nodes, rail, True)
        all_gather(own, node, nodes, rail)
    if within > 1:
        all_gather(whole, local, within, (mate(1), mate(-1)))


kernel = hierarchical_ring_allreduce
