"""Recursive-doubling all-reduce: partners at distance 1, 2, 4, ... swap whole partial results.

After round k each participant holds the reduction over its block of 2^(k+1). When the number of participants (every
cube of every SIP) is no power of two, the ones beyond the largest power p first fold their tile into participant
i - p and get the result back at the end. Partners combine the same two values, so all end with the same result.

Cost for tiles of m bytes and n participants: (floor(log2 n) + 2 [n no power of two]) (alpha + m beta); the fewest
rounds of all, the choice for small tiles.
Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ahbm._core import Handle, Tl

COLLECTIVE = "all_reduce"


def kernel_args(
    world_size: int, n_elem: int, *, cube_w: int = 4, cube_h: int = 4, op: str = "sum", dtype: str = "f16"
) -> tuple[object, ...]:
    return (n_elem, cube_w * cube_h, world_size, op, dtype)


def recursive_doubling_allreduce(
    t_ptr: int,
    n_elem: int,
    cubes: int,
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
    n = n_sips * cubes
    me = sip_rank * cubes + cube
    tile = t_ptr + cube * n_elem * tl.itemsize(dtype)

    def send(i: int, value: Handle) -> None:
        tl.send(dir=tl.peer(sip=i // cubes, cube=i % cubes), src=value)

    def receive(i: int) -> Handle:
        return tl.recv(dir=tl.peer(sip=i // cubes, cube=i % cubes), shape=(n_elem,), dtype=dtype)

    core = 1 << (n.bit_length() - 1)  # the largest power of two that is <= n
    acc = tl.load(tile, shape=(n_elem,), dtype=dtype)
    if me >= core:
        send(me - core, acc)
        acc = receive(me - core)
    else:
        if me + core < n:
            acc = tl.combine(acc, receive(me + core), op)
        distance = 1
        while distance < core:
            send(me ^ distance, acc)
            acc = tl.combine(acc, receive(me ^ distance), op)
            distance *= 2
        if op == "avg":
            acc = acc / n
        if me + core < n:
            send(me + core, acc)
    tl.store(tile, acc)


kernel = recursive_doubling_allreduce
