"""Prints the project's numbers, each as a ratio to a peer, a bound or a target, measured in this run.

`python benches/run.py [--quick]` takes about two minutes; `--quick` leaves out the compiled benchmarks. Rates are the
best of several runs, because a shared machine only ever adds time. Nothing here is a test: a slow machine prints small
numbers and fails nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

import ahbm
import ahbm.distributed as dist
from ahbm import DPPolicy
from ahbm.choice.policy import Policy
from ahbm.core.buffers import requested
from ahbm.core.emulator import Emulator

ROOT = Path(__file__).resolve().parent.parent
LRAB = "lrab_hierarchical_allreduce"
LARGE = ((64, 8, 1.0), (1024, 32, 30.0))
"""SIPs, the side of their torus, and the seconds of the budget."""


def row(what: str, measured: float, unit: str, reference: float, of: str) -> None:
    """One line: the figure and its ratio to a reference."""
    print(f"{what:<58} {measured:>12,.4g} {unit:<12} {measured / reference:>8.3g} x {of}")


def best(action: Callable[[], object], runs: int = 3) -> float:
    """Seconds of the quickest of several runs."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def json_lines(command: list[str]) -> Iterator[dict[str, float]]:
    """The JSON lines a benchmark prints."""
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return (json.loads(line) for line in output.splitlines() if line.startswith("{"))


def engine_against_simpy() -> None:
    """Messages per second on the traffic of a ring all-reduce, beside SimPy and the fastest public engine."""
    simpy = next(json_lines([sys.executable, "benches/peers/simpy_ring.py", "256"]))["messages_per_s"]
    print(f"SimPy, ring of 256: {simpy:,.0f} messages/s")
    for case in json_lines(["cargo", "bench", "-q", "-p", "ahbm-emulator", "--bench", "ring"]):
        rate = case["messages_per_s"]
        row(f"{case['case']}, {case['messages']:,} messages", rate, "messages/s", simpy, "SimPy")
        row("", rate, "messages/s", 4.0e6, "the fastest public engine's 4 M/s")
        if case["case"] == "ring_65536":
            row("ring_65536, memory of a run", case["run_bytes_per_agent"], "B/agent", 400, "the 400 B budget")


def large_machines() -> None:
    """The hierarchical all-reduce on whole machines, capture included; 16 of 128 PEs of a SIP take part."""
    for sips, side, budget in LARGE:
        shape = {"system.sips.count": sips, "system.sips.w": side, "system.sips.h": side}

        def run(shape: dict[str, int] = shape) -> None:
            ahbm.run(
                collective="all_reduce",
                algorithm=LRAB,
                topology="default, system.sips.topology=torus_2d",
                bytes_per_pe=4096,
                placement=DPPolicy(cube="row_wise"),
                data=False,
                overrides=shape,
            )

        row(f"lrab, {sips} SIPs x 16 cubes, wall", best(run, 1), "s", budget, f"the {budget:g} s budget")


def repeated_call() -> None:
    """A second all-reduce of the same shape: nothing is captured or simulated again."""
    emulator = Emulator.load("default", overrides={"system.sips.count": 4})
    policy = Policy.of(emulator)
    for nbytes in (1 << 10, 1 << 26):
        arrays = [np.ones(nbytes // 4, np.float32) for _ in range(4)]
        request = requested("all_reduce", arrays)
        algorithm = policy.algorithm(request, policy.choose(request))
        call = partial(emulator.perform, request, arrays, algorithm)
        first, again = best(call, 1), best(call)
        row(f"all_reduce of {nbytes:,} B on 4 ranks, repeated, wall", again, "s", first, "the first call")


def dist_call() -> None:
    """The same through `dist`, rendezvous of the rank threads included."""
    walls: list[float] = []

    def worker() -> None:
        dist.init_process_group(backend="ahbm")
        x = np.ones(512, np.float16)
        dist.all_reduce(x)
        start = time.perf_counter()
        for _ in range(200):
            dist.all_reduce(x)
        walls.append((time.perf_counter() - start) / 200)

    ahbm.spawn(worker, topology="default")
    row("dist.all_reduce of 1 KiB on 2 ranks, repeated, wall", max(walls) * 1e6, "us", 300, "300 us")


def start_up() -> None:
    """Import time in a fresh interpreter, beyond the interpreter's own start."""
    bare = best(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True), 5)
    loaded = best(lambda: subprocess.run([sys.executable, "-c", "import ahbm"], check=True), 5)
    row("import ahbm", (loaded - bare) * 1e3, "ms", 150, "the 150 ms budget")


def main() -> None:
    """Runs everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out the compiled benchmarks")
    quick = parser.parse_args().quick
    start_up()
    subprocess.run([sys.executable, "benches/capture.py"], cwd=ROOT, check=True)
    repeated_call()
    dist_call()
    large_machines()
    if not quick:
        engine_against_simpy()


if __name__ == "__main__":
    main()
