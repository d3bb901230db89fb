"""Steps per second of processor time that `Select-v0` makes on an oracle's tables, and what a live step takes.

python benches/select_env.py [STEPS]
"""

from __future__ import annotations

import sys
import time

import gymnasium

from ahbm.choose.catalogue import Catalogue
from ahbm.choose.environment import Select
from ahbm.choose.episodes import Mix
from ahbm.choose.oracle import Oracle
from ahbm.choose.outcomes import Live, Recorded
from ahbm.choose.splits import ALGORITHMS, CCL, SIZES

MACHINES = ("npu_ring_8", "npu_torus_4x4")


def rate(env: Select | gymnasium.Env[dict[str, object], int], steps: int) -> float:
    """Steps per second, resets included; what is found once was found before."""
    env.reset(seed=0)
    for counted in (steps // 10, steps):
        start = time.process_time()
        for step in range(counted):
            _, _, terminated, truncated, _ = env.step(step % len(ALGORITHMS))
            if terminated or truncated:
                env.reset()
        spent = time.process_time() - start
    return steps / spent


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    catalogue = Catalogue.of("all_reduce", ALGORITHMS, overrides=CCL)
    table = Oracle(catalogue, MACHINES, SIZES).table()
    print(f"on tables: {rate(Select(Recorded(table)), steps):,.0f} steps/s")
    made = gymnasium.make("ahbm/Select-v0", outcomes=Recorded(table), disable_env_checker=True)
    print(f"on tables, as gymnasium.make wraps it: {rate(made, steps):,.0f} steps/s")
    for machine in MACHINES:
        sizes = [size + 512 * extra for size in SIZES[8:16] for extra in range(8)]
        env = Select(Live(catalogue, machine), mix=Mix(sizes), calls=len(sizes))
        start = time.process_time()
        env.reset(seed=0)
        for _ in sizes:
            env.step(0)
        ms = 1000 * (time.process_time() - start) / len(set(sizes))
        print(f"live on {machine}: {ms:.1f} ms for a call that is new, all {len(catalogue)} candidates included")


if __name__ == "__main__":
    main()
