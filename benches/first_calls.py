"""What the checks of a first call cost behind `ahbm.distributed` and torch, as a ratio to the call without them.

`followed` is a kernel whose contributions the check follows; `compared` the same kernel with a function at its end that
the check does not understand, so that its results are compared with numbers. Seconds are processor time of the quickest
of several first calls, each of an emulator that knows nothing; `later` is the ratio of calls after the first.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

import ahbm
from ahbm.base.request import Request
from ahbm.base.sizes import parse_size
from ahbm.core.emulator import Emulator
from ahbm.ranks.firsts import first_checks
from ahbm.ranks.setup import Setup

CASES = [(4, "1K"), (8, "64K"), (8, "1M"), (8, "16M"), (32, "256K")]
KERNELS = ("followed", "compared")
RUNS = 5
TARGET = 2.0


def exchange(t_ptr: int, n: int, w: int, dtype: str, me: int, tl: Any) -> Any:
    """The sum of all ranks' arrays by recursive doubling."""
    acc = tl.load(t_ptr, shape=(n,), dtype=dtype)
    step = 1
    while step < w:
        tl.send(dir=tl.peer(sip=me ^ step), src=acc)
        acc = acc + tl.recv(dir=tl.peer(sip=me ^ step), shape=(n,), dtype=dtype)
        step *= 2
    return acc


def followed(t_ptr: int, n: int, w: int, dtype: str, me: int, kind: str, tw: int, th: int, *, tl: Any) -> None:
    """An all-reduce that the check follows."""
    if tl.program_id(0) == 0:
        tl.store(t_ptr, exchange(t_ptr, n, w, dtype, me, tl))


def compared(t_ptr: int, n: int, w: int, dtype: str, me: int, kind: str, tw: int, th: int, *, tl: Any) -> None:
    """The same, with a bound that no number exceeds."""
    if tl.program_id(0) == 0:
        tl.store(t_ptr, tl.maximum(exchange(t_ptr, n, w, dtype, me, tl), float("-inf")))


def arguments(world_size: int, n_elem: int, *, cube_w: int = 4, cube_h: int = 4, dtype: str = "f16") -> tuple[Any, ...]:
    """The kernels' arguments."""
    return n_elem, world_size, dtype


def seconds(kernel: str, ranks: int, nbytes: int, check: str) -> tuple[float, float]:
    """Processor time of a first call and of one after it."""
    firsts, laters = [], []
    function = {"followed": followed, "compared": compared}[kernel]
    for _ in range(RUNS):
        emulator = Emulator.load("npu_ring_8", None, {"system.sips.count": ranks})
        algorithm = ahbm.algorithm(function, collective="all_reduce", kernel_args=arguments)
        verify = first_checks(emulator, Setup(check=check))
        request = Request("all_reduce", range(ranks), nbytes // 4, "f32")
        buffers = [np.ones(request.size, np.float32) for _ in range(ranks)]
        times = []
        for _ in range(4):
            start = time.process_time()
            emulator.perform(request, buffers, algorithm, verify=verify)
            times.append(time.process_time() - start)
        firsts.append(times[0])
        laters.append(statistics.median(times[1:]))
    return min(firsts), min(laters)


def main() -> None:
    print(f"{'kernel':<10}{'ranks':>6}{'size':>6}{'first (s)':>11}{'checked':>9}{'ratio':>7}{'later':>7}")
    worst = 0.0
    for kernel in KERNELS:
        for ranks, size in CASES:
            plain, later = seconds(kernel, ranks, parse_size(size), "none")
            checked, later_checked = seconds(kernel, ranks, parse_size(size), "result")
            worst = max(worst, checked / plain)
            print(
                f"{kernel:<10}{ranks:>6}{size:>6}{plain:>11.4f}{checked:>9.4f}{checked / plain:>7.2f}"
                f"{later_checked / later:>7.2f}"
            )
    print(f"worst ratio {worst:.2f}, target at most {TARGET:g}")


if __name__ == "__main__":
    main()
