"""NVLS all-reduce: the switch between the ranks reduces, and copies the results to everybody.

Participant i (a cube of a SIP) owns part i of the tile. It loads its part from all SIPs at once, reduced by the
switch, and stores the result at all of them with a multicast. Nobody else computes. A part is cut in chunks: while
one is copied, the next one is reduced. Before the first load everybody tells everybody that its data is there, and at
the end that its results have arrived. Machines whose switch does not reduce are refused (AHBM-U116).

Parameter: `chunk_bytes`. Each element is reduced in one place, so all participants end with the same bits.

Cost for tiles of m bytes and n SIPs, alpha for a way through the switch: 5 alpha + (1 + 1/n) m beta. Two alpha are
the messages at both ends, two the request of a load and its answer. No link carries more than m (1 + 1/n) bytes each
way, where a ring sends 2 m (n-1)/n.
Source: Klenk et al., "An in-network architecture for accelerating shared-memory multiprocessor collectives", 2020;
NCCL, src/device/all_reduce.h (`NCCL_ALGO_NVLS`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ahbm._core import Tl

COLLECTIVE = "all_reduce"
REDUCING_SWITCH = "all"


def kernel_args(
    world_size: int,
    n_elem: int,
    *,
    cube_w: int = 4,
    cube_h: int = 4,
    op: str = "sum",
    dtype: str = "f16",
    chunk_bytes: int = 131072,
) -> tuple[object, ...]:
    if chunk_bytes < 1:
        raise ValueError("chunk_bytes is 1 or more")
    return (n_elem, cube_w * cube_h, world_size, op, dtype, chunk_bytes)


def nvls_allreduce(
    t_ptr: int,
    n_elem: int,
    cubes: int,
    n_sips: int,
    op: str,
    dtype: str,
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
    me = sip_rank * cubes + cube
    element = tl.itemsize(dtype)
    tiles = [t_ptr + c * n_elem * element for c in range(cubes)]
    others = [(sip_rank + i) % n_sips for i in range(1, n_sips)]

    def meet() -> None:
        """Everybody has come here once this ends."""
        peers = [tl.peer(sip=(me + i) % n // cubes, cube=(me + i) % n % cubes) for i in range(1, n)]
        token = tl.zeros((1,), dtype=dtype)
        for peer in peers:
            tl.send(dir=peer, src=token)
        for future in [tl.recv_async(dir=peer, shape=(1,), dtype=dtype) for peer in peers]:
            tl.wait(future)

    def reduced(at: int, length: int) -> Any:
        """Some elements of the tiles of all cubes of all SIPs, reduced."""
        acc: Any = None
        for tile in tiles:
            if n_sips > 1:
                part = tl.load_reduce(tile + at, shape=(length,), sips=range(n_sips), dtype=dtype, op=op)
            else:
                part = tl.load(tile + at, shape=(length,), dtype=dtype)
            acc = part if acc is None else tl.combine(acc, part, op)
        return acc / n if op == "avg" else acc

    if n > 1:
        meet()
    share = -(-n_elem // n)
    chunk = max(1, chunk_bytes // element)
    first, end = min(me * share, n_elem), min((me + 1) * share, n_elem)
    for j in range(-(-share // chunk)):
        begin = min(first + j * chunk, end)
        length = min(chunk, end - begin)
        if length:
            value = reduced(begin * element, length)
            for tile in tiles:
                tl.store(tile + begin * element, value)
                if others:
                    tl.multicast(tile + begin * element, value, sips=others)
    tl.fence()
    if n > 1:
        meet()


kernel = nvls_allreduce
