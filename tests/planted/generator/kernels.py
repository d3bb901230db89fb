"""Right kernels: those that come with AHBM, and small ones."""

from __future__ import annotations

from random import Random
from typing import Any

from planted.judge.calls import Kernel

from .recorded import ALGORITHMS, packaged, written

WIDER = {"f16": "f32", "f32": "f64", "i8": "i32", "i16": "i32", "i32": "i64", "u8": "u16"}
ROOTED = ("broadcast", "reduce", "gather", "scatter")


def swap(tl: Any, rank: int, n: int, count: int, dtype: str) -> None:
    """All-reduce: everybody sends its array to everybody."""
    total = own = tl.load(0, (count,), dtype)
    for k in range(1, n):
        tl.send(dir=f"sip{(rank + k) % n}", src=own)
    for k in range(1, n):
        total = tl.combine(total, tl.recv(dir=f"sip{(rank - k) % n}", shape=(count,), dtype=dtype), "sum")
    tl.store(0, total)


def wide(tl: Any, rank: int, n: int, count: int, dtype: str) -> None:
    """All-reduce around the ring, added in a wider type."""
    current = tl.load(0, (count,), dtype)
    total = tl.cast(current, WIDER.get(dtype, dtype))
    for _ in range(n - 1):
        tl.send(dir="global_E", src=current)
        current = tl.recv(dir="global_W", shape=(count,), dtype=dtype)
        total = tl.combine(total, tl.cast(current, WIDER.get(dtype, dtype)), "sum")
    tl.store(0, tl.cast(total, dtype))


def collect(tl: Any, rank: int, n: int, count: int, dtype: str) -> None:
    """Reduce to rank 0, which takes contributions as they come and tells everybody that it has them."""
    own, token = tl.load(0, (count,), dtype), (1,)
    if rank:
        tl.send(dir="sip0", src=own)
        tl.recv(dir="sip0", shape=token, dtype=dtype)
        return
    for _ in range(n - 1):
        own = tl.combine(own, tl.recv(shape=(count,), dtype=dtype), "sum")
    tl.store(0, own)
    for other in range(1, n):
        tl.send(dir=f"sip{other}", src=tl.zeros(token, dtype))


def central(tl: Any, rank: int, n: int, count: int, dtype: str) -> None:
    """Barrier: rank 0 hears from all, then releases all."""
    token = tl.zeros((count,), dtype)
    others = range(1, n) if rank == 0 else [0]
    for turn in (0, 1):
        for other in others:
            if (turn == 0) == (rank == 0):
                tl.recv(dir=f"sip{other}", shape=(count,), dtype=dtype)
            else:
                tl.send(dir=f"sip{other}", src=token)


def spread(tl: Any, rank: int, n: int, count: int, dtype: str) -> None:
    """All-gather: everybody sends its part to everybody, into place."""
    item = tl.itemsize(dtype)
    for k in range(1, n):
        tl.send(dir=f"sip{(rank + k) % n}", src=tl.ref(rank * count * item, (count,), dtype))
    for k in range(1, n):
        peer = (rank - k) % n
        tl.recv(dir=f"sip{peer}", shape=(count,), dtype=dtype, mode="copy_to_dst", dst=peer * count * item)


def exchange(tl: Any, rank: int, n: int, count: int, dtype: str) -> None:
    """All-to-all: everything is sent, then everything is received."""
    item = tl.itemsize(dtype)
    for k in range(1, n):
        peer = (rank + k) % n
        tl.send(dir=f"sip{peer}", src=tl.load(peer * count * item, (count,), dtype))
    for k in range(1, n):
        peer = (rank - k) % n
        tl.store(peer * count * item, tl.recv(dir=f"sip{peer}", shape=(count,), dtype=dtype))


def chain(tl: Any, rank: int, n: int, count: int, dtype: str) -> None:
    """Broadcast along a chain from rank 0, in pieces of one element."""
    item = tl.itemsize(dtype)
    for at in range(count):
        piece = tl.recv(dir=f"sip{rank - 1}", shape=(1,), dtype=dtype) if rank else tl.load(at * item, (1,), dtype)
        if rank < n - 1:
            tl.send(dir=f"sip{rank + 1}", src=piece)
        if rank:
            tl.store(at * item, piece)


SMALL = {
    swap: "all_reduce", wide: "all_reduce", collect: "reduce", central: "barrier", spread: "all_gather",
    exchange: "all_to_all", chain: "broadcast",
}  # fmt: skip
PACKAGED = sorted(
    path.stem
    for path in ALGORITHMS.glob("*.py")
    if path.stem != "direct_send_recv"
    and not path.stem.startswith("pat_")
    and "REDUCING_SWITCH" not in path.read_text(encoding="utf-8")
)
"""Those that exchange messages alone, the only ones that files can say, and await them in the order of their posts."""


def source(chance: Random, n: int) -> Kernel:
    """A random right kernel among `n` ranks."""
    dtype = chance.choice(["f16", "f32", "f32", "f64", "i8", "i16", "i32", "i32", "i64", "u8"])
    slots, count = chance.choice([1, 2, 4, 64]), chance.choice([1, 2, 3, 5, 8])
    if chance.random() < 0.4:
        body = chance.choice(list(SMALL))
        return written(SMALL[body], body, n, 1 if body is central else count, dtype, slots)
    name = chance.choice(PACKAGED)
    root = chance.randrange(n) if name.startswith("binomial") or name in ("ring_broadcast", "ring_reduce") else 0
    count = 1 if "barrier" in name else count
    return packaged(name, n, count, dtype, slots, root, chance.choice(["sum", "sum", "max", "min"]))
