"""Kernel capture: `tl` calls recorded per second on one core.

The kernel is the inner loop of a ring: send, receive, add.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from ahbm._core import Machine, ProgramBuilder
from ahbm.config.topology import load_machine


def ring(t_ptr: int, n_elem: int, steps: int, tl: Any) -> None:
    acc = tl.load(t_ptr, shape=(n_elem,), dtype="f16")
    for _ in range(steps):
        tl.send(dir="global_E", src=acc)
        acc = acc + tl.recv(dir="global_W", shape=(n_elem,), dtype="f16")
    tl.store(t_ptr, acc)


def rate(machine: Machine, steps: int) -> float:
    """`tl` calls per second of one capture of `3 * steps + 2` calls."""
    builder = ProgramBuilder(
        machine, "bench", n_slots=4, slot_bytes=None, tier=machine.tiers[0], credit_bytes=16, op_budget=1 << 40
    )
    start = time.perf_counter()
    builder.capture(ring, (0x1000, 512, steps), (0, 0, 0), (machine.pes, machine.cubes), [(0x1000, 1024)], "f16")
    return (3 * steps + 2) / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    machine = load_machine("default", {})
    rates = [rate(machine, options.steps) for _ in range(options.repeat)]
    print(
        f"capture: {max(rates) / 1e6:.2f} M tl calls/s (best of {options.repeat}, {3 * options.steps + 2} calls each)"
    )


if __name__ == "__main__":
    main()
