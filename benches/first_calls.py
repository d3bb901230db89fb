"""What the checks of a first call cost behind `ahbm.distributed` and torch, as a ratio to the call without them.

`followed` is a kernel whose contributions the check follows. `compared` is the same kernel with a function at its end
that the check does not understand, so that its results are compared with numbers. Seconds are processor time of all
ranks, threads of one process, in the quickest of several first calls, each of a world that knows nothing; `later` is
the ratio of calls after the first. A process that has checked nothing yet loads the checks first, once.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np

import ahbm
import ahbm.distributed as dist
from ahbm.base.sizes import parse_size

CASES = [(4, "1K"), (8, "64K"), (8, "1M"), (8, "16M"), (32, "256K")]
RUNS, LATER = 9, 4
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


KERNELS = {"followed": followed, "compared": compared}


def arguments(world_size: int, n_elem: int, *, cube_w: int = 4, cube_h: int = 4, dtype: str = "f16") -> tuple[Any, ...]:
    """The kernels' arguments."""
    return n_elem, world_size, dtype


def seconds(kernel: str, ranks: int, nbytes: int, check: str) -> tuple[float, float]:
    """Processor time of a first call and of one after it, of all ranks together."""
    algorithm = ahbm.algorithm(KERNELS[kernel], collective="all_reduce", kernel_args=arguments)

    def worker(rank: int) -> list[float]:
        dist.init_process_group(algorithm=algorithm, check=check)
        x = np.ones(nbytes // 4, np.float32)
        dist.barrier()
        times = []
        for _ in range(1 + LATER):
            start = time.process_time()
            dist.all_reduce(x)
            times.append(time.process_time() - start)
        return times

    firsts, laters = [], []
    for _ in range(RUNS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = ahbm.spawn(worker, topology="npu_ring_8", overrides={"system.sips.count": ranks})
        firsts.append(max(times[0] for times in found))
        laters += [max(calls) for calls in list(zip(*found, strict=True))[1:]]
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
