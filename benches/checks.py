"""What checks cost: processor seconds of a run with data, of its checks, and of both over the first.

A run is one `ahbm.run` of a program that is captured already: simulated anew, data moved and compared with NumPy.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import ahbm
from ahbm.base.sizes import parse_size
from ahbm.core.emulator import Emulator

CASES = [
    ("ring_allreduce", 8, "1M"),
    ("ring_allreduce", 16, "4M"),
    ("ring_allreduce", 64, "1M"),
    ("recursive_doubling_allreduce", 16, "1M"),
    ("tree_allreduce", 16, "1M"),
    ("lrab_hierarchical_allreduce", 16, "1M"),
    ("ring_all_gather", 16, "4M"),
    ("ring_reduce_scatter", 16, "4M"),
    ("pairwise_all_to_all", 16, "4M"),
    ("binomial_broadcast", 16, "4M"),
]
STATIC = "race,uninit,leftover,deadlock,result"


def seconds(action: Callable[[], object], runs: int = 3) -> float:
    """Processor time of the quickest of several runs."""
    times = []
    for _ in range(runs):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return min(times)


def measured(algorithm: str, ranks: int, size: str) -> tuple[int, float, float, float]:
    """Operations; seconds of a run, of one with the checks of the program, and of one with all checks."""
    emulator = Emulator.load("default", None, {"system.sips.count": ranks})
    collective = emulator.algorithm(algorithm).collectives[0]

    def run(check: bool | str) -> ahbm.Report:
        # The timeline is forgotten: a run simulates.
        emulator.forget_timelines()
        return ahbm.run(collective, algorithm, bytes_per_rank=parse_size(size), emulator=emulator, check=check)

    ops = run(False).ops
    # This algorithm's ranks reduce in different orders, which is an error for the last of the checks.
    everything = STATIC if algorithm == "lrab_hierarchical_allreduce" else "all"
    return ops, *(seconds(partial(run, check)) for check in (False, STATIC, everything))


def main() -> None:
    print(f"{'algorithm':<32}{'ranks':>6}{'size':>6}{'ops':>9}{'run (s)':>10}{'program':>10}{'all':>10}{'ratios':>14}")
    worst = 0.0
    for case in CASES:
        ops, plain, program, everything = measured(*case)
        worst = max(worst, program / plain, everything / plain)
        print(
            f"{case[0]:<32}{case[1]:>6}{case[2]:>6}{ops:>9}{plain:>10.4f}{program:>10.4f}{everything:>10.4f}"
            f"{program / plain:>7.2f}{everything / plain:>7.2f}"
        )
    print(f"worst ratio {worst:.2f}, target at most 4")


if __name__ == "__main__":
    main()
