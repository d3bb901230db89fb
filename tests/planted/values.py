"""All-reduce kernels whose values are wrong in ways that no list of contributions shows, and right ones like them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MODULE = """
COLLECTIVE = "all_reduce"


def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, dtype="f16", op="sum"):
    return (n_elem, world_size, dtype, op)


def kernel(t_ptr, n, world, dtype, op, me, kind, tw, th, *, tl):
    if tl.program_id(0) != 0:
        return
    kind = "sum" if op == "avg" else op
    acc = tl.load(t_ptr, shape=(n,), dtype=dtype)
    {first}
    step = 1
    while step < world:
        tl.send(dir=tl.peer(sip=me ^ step), src=acc)
        other = tl.recv(dir=tl.peer(sip=me ^ step), shape=(n,), dtype=dtype)
        {each}
        step *= 2
    if op == "avg":
        acc = acc * (1 / world)
    {last}
    tl.store(t_ptr, acc)
"""
EACH = "acc = tl.combine(acc, other, kind)"


class Valued(NamedTuple):
    """One kernel: a line at its begin, at each step and at its end, and the calls in which it is tried."""

    name: str
    wrong: bool
    first: str = "pass"
    each: str = EACH
    last: str = "pass"
    dtypes: tuple[str, ...] = ("f32", "i32")
    op: str = "sum"


KERNELS = (
    Valued("negative sums are 0", True, last="acc = tl.maximum(acc, 0)"),
    Valued("negative numbers are 0", True, first="acc = tl.maximum(acc, 0)"),
    Valued("negative partial sums are 0", True, each="acc = tl.maximum(acc + other, 0)"),
    Valued("positive sums are 0", True, last="acc = tl.where(acc > 0, 0, acc)"),
    Valued("bounded sums", True, last="acc = tl.clamp(acc, -100, 100)"),
    Valued("half of one rank", True, first="acc = acc * (0.5 if me == 0 else 1)", dtypes=("f32", "f16", "bf16")),
    Valued("twice two ranks", True, first="acc = acc * (2 if me in {1, 3} else 1)"),
    Valued("one rank less", True, first="acc = acc * (0 if me == 2 else 1)"),
    Valued("minus one rank", True, first="acc = acc * (-1 if me == 2 else 1)"),
    Valued("differences", True, each="acc = acc - other"),
    Valued("absolute values", True, last="acc = tl.maximum(acc, 0 - acc)"),
    Valued("one more", True, last="acc = acc + 1"),
    Valued("exponentials", True, first="acc = tl.exp(acc)", last="acc = tl.log(acc)", dtypes=("f32",)),
    Valued("a narrow step", True, each='acc = tl.cast(tl.cast(acc + other, "bf16"), dtype)', dtypes=("f32",)),
    Valued("halves at each step", True, each="acc = (acc + other) * 0.5"),
    Valued("averages of averages", True, first="acc = acc * (1 / world)", op="avg"),
    Valued("bounds beyond what is tried", True, last="acc = tl.minimum(acc, 3.3e38)", dtypes=("f32",)),
    Valued("sums for maxima", True, each="acc = acc + other", op="max"),
    Valued("maxima from 0", True, each="acc = tl.maximum(tl.maximum(acc, other), 0)", op="max"),
    Valued("bounds that no number exceeds", False, last='acc = tl.minimum(acc, float("inf"))', dtypes=("f32",)),
    Valued("plain sums", False),
    Valued("plain averages", False, op="avg", dtypes=("f32",)),
    Valued("plain maxima", False, op="max"),
    Valued("plain products", False, op="prod"),
)


def cases(folder: Path) -> Iterator[tuple[Valued, str, str]]:
    """The kernels, the files that they are in, and the types."""
    for number, one in enumerate(KERNELS):
        path = folder / f"valued_{number}.py"
        text = MODULE.replace("{first}", one.first).replace("{each}", one.each).replace("{last}", one.last)
        path.write_text(text, encoding="utf-8")
        for dtype in one.dtypes:
            yield one, str(path), dtype
