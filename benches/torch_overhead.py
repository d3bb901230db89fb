"""Wall time of all_reduce behind torch.distributed under threads: `python benches/torch_overhead.py`.

Timing and data on; per line the median over the calls after the first. GB/s counts every rank's tensor once.
"""

from __future__ import annotations

import statistics
import time

import torch
import torch.distributed as dist

import ahbm.torch


def measure(elements: int, calls: int) -> float:
    """Median seconds of one call on rank 0."""
    x = torch.ones(elements)
    dist.all_reduce(x, dist.ReduceOp.MAX)
    took = []
    for _ in range(calls):
        began = time.perf_counter()
        dist.all_reduce(x, dist.ReduceOp.MAX)
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def worker(_: int, elements: int, calls: int) -> float:
    """One rank."""
    dist.init_process_group("ahbm")
    return measure(elements, calls)


def main() -> None:
    for ranks, elements, calls in ((2, 256, 400), (4, 256, 400), (4, 1 << 24, 7)):
        for turns in (False, True):
            seconds = ahbm.torch.spawn(worker, (elements, calls), ranks, turns=turns)[0]
            assert isinstance(seconds, float)
            mode, nbytes = "turns" if turns else "free", 4 * elements
            rate = ranks * nbytes / seconds / 1e9
            print(f"{ranks} ranks, {nbytes} B, {mode}: {seconds * 1e6:,.0f} us, {rate:.2f} GB/s")


if __name__ == "__main__":
    main()
