"""Wall time of all_reduce between ranks that are threads: `python benches/torch_overhead.py`.

Timing and data on; per line the median over the calls after the first, beside the floor: what one rank's thread takes
to wake another's and to be woken. GB/s counts every rank's tensor once.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.distributed as dist

import ahbm
import ahbm.distributed
import ahbm.torch


def median(call: Callable[[], object], calls: int) -> float:
    """Median seconds of a call, the first not counted."""
    took = []
    for _ in range(calls + 1):
        began = time.perf_counter()
        call()
        took.append(time.perf_counter() - began)
    return statistics.median(took[1:])


def floor(calls: int) -> float:
    """Seconds in which two threads wake each other once, by a lock each."""
    mine, other = threading.Lock(), threading.Lock()
    mine.acquire()
    other.acquire()

    def echo() -> None:
        for _ in range(calls + 1):
            other.acquire()
            mine.release()

    def ping() -> None:
        other.release()
        mine.acquire()

    thread = threading.Thread(target=echo)
    thread.start()
    seconds = median(ping, calls)
    thread.join()
    return seconds


def behind_torch(_: int, elements: int, calls: int) -> float:
    """One rank of `torch.distributed`."""
    dist.init_process_group("ahbm")
    x = torch.ones(elements)
    return median(lambda: dist.all_reduce(x, dist.ReduceOp.MAX), calls)


def plain(_: int, elements: int, calls: int) -> float:
    """One rank of `ahbm.distributed`."""
    ahbm.distributed.init_process_group()
    x = np.ones(elements, np.float32)
    return median(lambda: ahbm.distributed.all_reduce(x, ahbm.distributed.ReduceOp.MAX), calls)


@contextmanager
def others_compute() -> Iterator[None]:
    """Keeps every processor busy with a process of its own."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def compare(ranks: int, elements: int, calls: int, woken: float, where: str) -> None:
    """Prints a line for each way of calling."""
    args = (elements, calls)
    os.environ["AHBM_TOPOLOGY"] = f"default, system.sips.count={ranks}"
    found = {
        "ahbm": ahbm.spawn(plain, args, nprocs=ranks)[0],
        "torch, free": ahbm.torch.spawn(behind_torch, args, ranks, turns=False)[0],
        "torch, turns": ahbm.torch.spawn(behind_torch, args, ranks)[0],
    }
    for name, seconds in found.items():
        assert isinstance(seconds, float)
        rate, nbytes = ranks * 4 * elements / seconds / 1e9, 4 * elements
        took = f"{seconds * 1e6:,.0f} us, {seconds / woken:.0f} floors, {rate:.2f} GB/s"
        print(f"{ranks} ranks, {nbytes} B, {name}{where}: {took}")


def main() -> None:
    woken = floor(2000)
    print(f"floor: {woken * 1e6:.1f} us")
    for ranks, elements, calls in ((2, 256, 2000), (4, 256, 1000), (4, 1 << 24, 7)):
        compare(ranks, elements, calls, woken, "")
    with others_compute():
        compare(2, 256, 2000, woken, ", all processors busy")


if __name__ == "__main__":
    main()
