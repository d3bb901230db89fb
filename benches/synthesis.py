"""Prints synthesis figures: rounds, times and bounds per network, and bandwidth against chunk size.

`python benches/synthesis.py` prints the table, `--sweep [FILE.csv]` all-gather bandwidth over chunk sizes, by method,
with the bound, `--large` networks of 4,096 and 10,000 NPUs. Host times are this computer's; everything else is
simulated.
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

from ahbm.config.topology import load_machine
from ahbm.errors import UnsupportedError
from ahbm.source.synthesis import METHODS, Synthesis, synthesize

Case = tuple[str, str, tuple[int, ...], float | None]

CASES: tuple[Case, ...] = (
    ("mesh 4x4", "mesh_2d_no_wrap", (4, 4), 0.2),
    ("mesh 8x4", "mesh_2d_no_wrap", (8, 4), 1.1),
    ("mesh 8x8", "mesh_2d_no_wrap", (8, 8), 7.0),
    ("mesh 16x8", "mesh_2d_no_wrap", (16, 8), 67.6),
    ("mesh 16x16", "mesh_2d_no_wrap", (16, 16), 516),
    ("mesh 32x16", "mesh_2d_no_wrap", (32, 16), 4346),
    ("mesh 32x32", "mesh_2d_no_wrap", (32, 32), 43173),
    ("mesh 4x4x4", "mesh_3d", (4, 4, 4), 5.2),
    ("mesh 4x4x8", "mesh_3d", (4, 4, 8), None),
    ("mesh 8x8x4", "mesh_3d", (8, 8, 4), 396),
    ("mesh 8x8x8", "mesh_3d", (8, 8, 8), 4756),
    ("mesh 10x10x10", "mesh_3d", (10, 10, 10), 43258),
    ("torus 8x4", "torus_2d", (8, 4), None),
    ("torus 8x8", "torus_2d", (8, 8), 4.7),
    ("torus 16x8", "torus_2d", (16, 8), 43.8),
    ("torus 16x16", "torus_2d", (16, 16), 485),
    ("torus 32x16", "torus_2d", (32, 16), 3228),
    ("torus 32x32", "torus_2d", (32, 32), 37690),
    ("torus 4x4x4", "torus_3d", (4, 4, 4), 3.8),
    ("torus 4x4x8", "torus_3d", (4, 4, 8), None),
    ("torus 8x8x8", "torus_3d", (8, 8, 8), 2534),
    ("hypercube 6", "hypercube", (64,), None),
    ("hypercube 10", "hypercube", (1024,), None),
)
"""Name, topology, extents, and the ms that TACOS 1.3.0 takes for an all-gather of one chunk of 1 MB each: the median of
several runs, two cores, links of 50 GB/s and 500 ns. It has no all-reduce, and none of some networks."""
NAMED = {case[0]: case for case in CASES}
AUTO: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("torus_2d", (4, 4)),
    ("torus_2d", (8, 4)),
    ("torus_2d", (8, 8)),
    ("torus_2d", (16, 8)),
    ("mesh_2d_no_wrap", (8, 8)),
    ("mesh_3d", (4, 4, 4)),
    ("hypercube", (64,)),
    ("ring_1d", (64,)),
    ("fully_connected", (64,)),
    ("switch", (64,)),
)
REPEATS, SECONDS = 20, 1.0
"""Times are the least of so many, or of as many as fit."""


def network(topology: str, extents: tuple[int, ...], gbs: float = 50) -> dict[str, object]:
    count = 1
    for extent in extents:
        count *= extent
    grid = dict(zip("whd", extents, strict=False)) if len(extents) > 1 else {}
    return {
        "system.sips.link.bandwidth_gbs": gbs,
        "system.sips.topology": topology,
        "system.sips.count": count,
        **{f"system.sips.{axis}": extent for axis, extent in grid.items()},
    }


def line(name: str, found: Synthesis, more: str = "") -> str:
    schedule = found.schedule
    return (
        f"{name:13} {found.collective:11} {schedule.method:16} {schedule.rounds:6} {schedule.rounds_bound or '':>6} "
        f"{found.time_us:11.1f} {found.bound_us:11.1f} {found.percent_of_bound:7.2f} {schedule.synthesis_ms:10.2f} "
        f"{schedule.bound_ms:9.2f} {more}"
    ).rstrip()


class Size(TypedDict, total=False):
    chunk_bytes: int
    size: int


def found(collective: str, machine: dict[str, object], method: str, **size: Unpack[Size]) -> Synthesis | None:
    """The quickest made of several equal schedules; None where the method does not apply."""
    best, begin = None, process_time()
    loaded = load_machine("npu_ring_8", machine)
    for _ in range(REPEATS):
        try:
            made = synthesize(collective, topology=loaded, method=method, **size)
        except UnsupportedError:
            return None
        if best is None or made.schedule.synthesis_ms < best.schedule.synthesis_ms:
            best = made
        if process_time() - begin > SECONDS:
            break
    return best


def show(
    name: str,
    collective: str,
    machine: dict[str, object],
    method: str,
    tacos: float | None = None,
    **size: Unpack[Size],
) -> None:
    schedule = found(collective, machine, method, **size)
    if schedule is not None:
        more = "" if tacos is None else f"{tacos:9.1f} {tacos / schedule.schedule.synthesis_ms:7.0f}"
        print(line(name, schedule, more), flush=True)


def table() -> None:
    print(
        "network       collective  method           rounds  bound     time us    bound us       %   synth ms  bound ms"
        "  TACOS ms   times"
    )
    for name, topology, extents, tacos in CASES:
        machine = network(topology, extents)
        show(name, "all_gather", machine, "greedy", tacos, chunk_bytes=1_000_000)
        show(name, "all_reduce", machine, "trees", size=256 << 20)
    for name in ("mesh 4x4", "mesh 8x8", "torus 8x8"):
        _, topology, extents, _ = NAMED[name]
        machine = network(topology, extents)
        for method in METHODS[1:]:
            show(name, "all_reduce", machine, method, size=64 << 20)
        for method in ("arborescences", "ring", "one_way_ring", "dimensions", "halving_doubling", "swing", "direct"):
            show(name, "all_gather", machine, method, chunk_bytes=1 << 20)
        show(name, "all_to_all", machine, "routed", chunk_bytes=1 << 20)
        show(name, "all_to_all", machine, "direct", chunk_bytes=1 << 20)
    executed()
    print("auto, all_reduce of 1 MiB: processor time from the request to the plan")
    for topology, extents in AUTO:
        machine = network(topology, extents)
        begin = process_time()
        schedule = synthesize("all_reduce", topology="npu_ring_8", overrides=machine, size=1 << 20)
        _ = schedule.plan
        more = f"{1000 * (process_time() - begin):.0f} ms"
        print(f"{topology} {'x'.join(map(str, extents))}: {schedule.schedule.method}, {more}", flush=True)


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
    for name, topology, extents, _ in (NAMED["mesh 8x8"], NAMED["mesh 4x4x4"]):
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
