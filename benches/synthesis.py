"""Prints synthesis figures: rounds, times and bounds per network, and bandwidth against chunk size.

`python benches/synthesis.py` prints the table, `--sweep [FILE.csv]` all-gather bandwidth over chunk sizes, by method,
with the bound, `--large` networks of 4,096 and 10,000 NPUs. Host times (cpu ms: processor time from the request to the
plan) are this computer's; everything else is simulated.
"""

from __future__ import annotations

import argparse
import csv
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any, TypedDict, Unpack

from ahbm.errors import UnsupportedError
from ahbm.source.synthesis import METHODS, Synthesis, synthesize

Case = tuple[str, str, tuple[int, ...]]

CASES: tuple[Case, ...] = (
    ("mesh 4x4", "mesh_2d_no_wrap", (4, 4)),
    ("mesh 8x8", "mesh_2d_no_wrap", (8, 8)),
    ("mesh 16x16", "mesh_2d_no_wrap", (16, 16)),
    ("mesh 32x32", "mesh_2d_no_wrap", (32, 32)),
    ("mesh 4x4x4", "mesh_3d", (4, 4, 4)),
    ("mesh 8x8x8", "mesh_3d", (8, 8, 8)),
    ("torus 8x8", "torus_2d", (8, 8)),
    ("torus 16x16", "torus_2d", (16, 16)),
    ("torus 32x32", "torus_2d", (32, 32)),
    ("torus 4x4x4", "torus_3d", (4, 4, 4)),
    ("hypercube 6", "hypercube", (64,)),
    ("hypercube 10", "hypercube", (1024,)),
)


def network(topology: str, extents: tuple[int, ...], gbs: float = 50) -> dict[str, object]:
    count = 1
    for extent in extents:
        count *= extent
    grid = dict(zip("whd", extents, strict=False)) if len(extents) > 1 else {}
    return {
        "cube.pe_layout.pe_per_corner": 8,
        "system.sips.link.bandwidth_gbs": gbs,
        "system.sips.topology": topology,
        "system.sips.count": count,
        **{f"system.sips.{axis}": extent for axis, extent in grid.items()},
    }


def line(name: str, found: Synthesis, cpu_ms: float | None = None) -> str:
    schedule = found.schedule
    host = f"{schedule.synthesis_ms:10.2f} {schedule.bound_ms:9.2f}"
    return (
        f"{name:13} {found.collective:11} {schedule.method:16} {schedule.rounds:6} {schedule.rounds_bound or '':>6} "
        f"{found.time_us:11.1f} {found.bound_us:11.1f} {found.percent_of_bound:7.2f} {host}"
        + ("" if cpu_ms is None else f" {cpu_ms:8.2f}")
    )


class Size(TypedDict, total=False):
    """One of them."""

    size: int
    chunk_bytes: int


def found(collective: str, machine: dict[str, object], method: str, **size: Unpack[Size]) -> Synthesis | None:
    try:
        return synthesize(collective, topology="npu_ring_8", overrides=machine, method=method, **size)
    except UnsupportedError:
        return None


def show(name: str, collective: str, machine: dict[str, object], method: str, **size: Unpack[Size]) -> None:
    schedule = found(collective, machine, method, **size)
    if schedule is not None:
        print(line(name, schedule), flush=True)


def table() -> None:
    print(
        "network       collective  method           rounds  bound     time us    bound us       %   synth ms  bound ms"
        "   cpu ms"
    )
    for name, topology, extents in CASES:
        machine = network(topology, extents)
        show(name, "all_gather", machine, "greedy", chunk_bytes=1_000_000)
        show(name, "all_reduce", machine, "trees", size=256 << 20)
    for name, topology, extents in (CASES[0], CASES[1], CASES[6]):
        machine = network(topology, extents)
        for method in METHODS[1:]:
            show(name, "all_reduce", machine, method, size=64 << 20)
        for method in ("arborescences", "ring", "one_way_ring", "dimensions", "halving_doubling", "swing", "direct"):
            show(name, "all_gather", machine, method, chunk_bytes=1 << 20)
        show(name, "all_to_all", machine, "routed", chunk_bytes=1 << 20)
        show(name, "all_to_all", machine, "direct", chunk_bytes=1 << 20)
    executed()
    for ranks in (16, 32, 64, 128):
        machine = network("torus_2d", (ranks // 4, 4) if ranks < 64 else (ranks // 8, 8))
        begin = process_time()
        schedule = found("all_reduce", machine, "auto", size=1 << 20)
        assert schedule is not None
        _ = schedule.plan
        print(line(f"{ranks} ranks", schedule, 1000 * (process_time() - begin)), flush=True)


def executed() -> None:
    """Prints an all-reduce of 256 MiB on the emulator, against reduce-scatter and all-gather one after the other."""
    arguments: dict[str, Any] = {"topology": "npu_ring_8", "overrides": network("mesh_2d_no_wrap", (8, 8))}
    trees = synthesize("all_reduce", method="trees", size=256 << 20, **arguments)
    emulated = trees.run(data=False).time_ps
    halves = (
        synthesize(half, method="greedy", size=256 << 20, **arguments).run(data=False).time_ps
        for half in ("reduce_scatter", "all_gather")
    )
    percent, ratio = 100 * trees.schedule.bound_ps / emulated, sum(halves) / emulated
    print(f"mesh 8x8      emulated    {percent:.2f} % of the bound, {ratio:.2f} times as fast as the two halves")


def large() -> None:
    """Prints all-gathers of 4,096 and 10,000 NPUs, each with the most memory the process has taken."""
    print(
        "network       collective  method           rounds  bound     time us    bound us       %   synth ms  bound ms"
    )
    for extent in (64, 100):
        machine = network("mesh_2d_no_wrap", (extent, extent))
        show(f"mesh {extent}x{extent}", "all_gather", machine, "greedy", chunk_bytes=1_000_000)
        print(f"  {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB at most", flush=True)


def sweep() -> Iterator[tuple[str, str, int, float, float]]:
    """(network, method, chunk bytes, GB/s, bound GB/s) of all-gather, links of 50 GiB/s."""
    for name, topology, extents in (CASES[1], CASES[4]):
        machine = network(topology, extents, 53.6870912)
        for method in ("greedy", "ring"):
            for power in range(10, 31, 2):
                try:
                    found = synthesize(
                        "all_gather", topology="npu_ring_8", overrides=machine, chunk_bytes=1 << power, method=method
                    )
                except UnsupportedError:
                    break
                total = 64 << power
                bandwidth, bound = (total / 1000 / us for us in (found.time_us, found.bound_us))
                yield name, method, 1 << power, round(bandwidth, 3), round(bound, 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="4,096 and 10,000 NPUs: minutes, 4 GiB")
    parser.add_argument("--sweep", nargs="?", type=Path, const=Path("-"))
    arguments = parser.parse_args()
    if arguments.large:
        large()
        return
    if arguments.sweep is None:
        table()
        return
    out = sys.stdout if str(arguments.sweep) == "-" else arguments.sweep.open("w", newline="", encoding="utf-8")
    with out:
        rows = csv.writer(out)
        rows.writerow(("network", "method", "chunk_bytes", "gbs", "bound_gbs"))
        rows.writerows(sweep())


if __name__ == "__main__":
    main()
