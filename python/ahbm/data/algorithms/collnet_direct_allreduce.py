"""CollNet-direct all-reduce: ranks of a node reduce among each other, the spine reduces between the nodes.

Participant p of every node owns part p of the tile. Three phases:

1. every participant sends each other one of its node its part, and adds what it gets to its own;
2. participants of one number load from each other at once, reduced by the spine, each a piece of the part, and store
   the result at all of them with a multicast, of which the spine makes the copies;
3. every participant sends its part of the result to each other one of its node.

Before and after the second phase, those who share a part tell each other that they are there. Machines whose spine
does not reduce are refused (AHBM-U116).

Parameter: `chunk_bytes`, the most of a load or multicast. Each element is reduced in one place, so all participants
end with the same bits.

Cost for tiles of m bytes, n nodes of k ranks: 2 (alpha + m beta (k-1)/k) inside a node, and 5 alpha + (1 + 1/n) m/k
beta between nodes, with the alpha and beta of either network.
Source: NCCL, src/device/all_reduce.h (`NCCL_ALGO_COLLNET_DIRECT`); Graham et al., "Scalable hierarchical aggregation
protocol (SHArP)", 2016.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ahbm._core import Peer, Tl

COLLECTIVE = "all_reduce"
REDUCING_SWITCH = "rail"


def kernel_args(
    world_size: int,
    n_elem: int,
    *,
    cube_w: int = 4,
    cube_h: int = 4,
    op: str = "sum",
    dtype: str = "f16",
    node_size: int = 1,
    chunk_bytes: int = 131072,
) -> tuple[object, ...]:
    if chunk_bytes < 1:
        raise ValueError("chunk_bytes is 1 or more")
    return (n_elem, cube_w * cube_h, world_size, op, dtype, node_size, chunk_bytes)


def collnet_direct_allreduce(
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
    tile = t_ptr + cube * n_elem * element
    nodes, within = n_sips // node_size, node_size * cubes
    node, local = sip_rank // node_size, sip_rank % node_size * cubes + cube
    rails = [(sip_rank + i * node_size) % n_sips for i in range(1, nodes)]
    share = -(-n_elem // within)

    def mate(i: int) -> tuple[int, Peer]:
        """The number of the participant i further, and its address."""
        place = (local + i) % within
        return place, tl.peer(sip=node * node_size + place // cubes, cube=place % cubes)

    def part(place: int) -> tuple[int, int]:
        """Address and length of a participant's part; lengths may be 0."""
        first = min(place * share, n_elem)
        return tile + first * element, min(first + share, n_elem) - first

    def exchange(shared: list[tuple[Peer, int, int]], lengths: list[tuple[Peer, int]]) -> list[Any]:
        """Sends what stands at an address to each peer, and returns what comes from each."""
        coming = [tl.recv_async(dir=peer, shape=(length,), dtype=dtype) for peer, length in lengths if length]
        for peer, at, length in shared:
            if length:
                tl.send(dir=peer, src=tl.load(at, shape=(length,), dtype=dtype))
        return [tl.wait(future) for future in coming]

    at, length = part(local)
    ahead = [mate(i) for i in range(1, within)]
    behind = [mate(-i) for i in range(1, within)]
    arrived = exchange(
        [(peer, *part(place)) for place, peer in ahead],
        [(peer, length) for _, peer in behind],
    )
    if length and arrived:
        acc: Any = tl.load(at, shape=(length,), dtype=dtype)
        for value in arrived:
            acc = tl.combine(acc, value, op)
        tl.store(at, acc)

    def meet() -> None:
        """Everybody who shares the part has come here once this ends."""
        token = tl.zeros((1,), dtype=dtype)
        for sip in rails:
            tl.send(dir=tl.peer(sip=sip, cube=cube), src=token)
        for future in [tl.recv_async(dir=tl.peer(sip=sip, cube=cube), shape=(1,), dtype=dtype) for sip in rails]:
            tl.wait(future)

    # Every tile of a SIP's cubes has an address of its own here, so the parts of all cubes of a rail stand alike.
    everybody = [sip_rank % node_size + i * node_size for i in range(nodes)]
    piece = -(-length // nodes)
    begin, end = min(node * piece, length), min((node + 1) * piece, length)
    most = max(1, chunk_bytes // element)
    if rails and length:
        meet()
        for first in range(begin, end, most):
            size = min(most, end - first)
            value = tl.load_reduce(at + first * element, shape=(size,), sips=everybody, dtype=dtype, op=op)
            if op == "avg":
                value = value / (n_sips * cubes)
            tl.store(at + first * element, value)
            tl.multicast(at + first * element, value, sips=rails)
        tl.fence()
        meet()
    elif op == "avg" and length:
        tl.store(at, tl.load(at, shape=(length,), dtype=dtype) / (n_sips * cubes))

    for (place, _), value in zip(
        [pair for pair in behind if part(pair[0])[1]],
        exchange([(peer, at, length) for _, peer in ahead], [(peer, part(place)[1]) for place, peer in behind]),
        strict=True,
    ):
        tl.store(part(place)[0], value)


kernel = collnet_direct_allreduce
