"""Bounds: closed forms beside the search of the same networks as lists of edges, and all phases of a run.

`python benches/bounds.py [--ranks N]`. Times are wall times of one call, the best of three for closed forms.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

from ahbm._core import Limit, Machine
from ahbm.config.topology import load_machine
from ahbm.core.emulator import Emulator
from ahbm.runs.measure import measure, prepare

COLLECTIVES = ("all_reduce", "all_gather", "broadcast", "all_to_all")
Edge = tuple[int, int]
_Result = TypeVar("_Result")


def timed(action: Callable[[], _Result]) -> tuple[float, _Result]:
    """Milliseconds and the result."""
    start = time.perf_counter()
    result = action()
    return (time.perf_counter() - start) * 1e3, result


def regular(ranks: int) -> Iterator[tuple[str, list[Edge]]]:
    """Networks of `ranks` SIPs, a square of a power of two: names, and the pairs of SIPs that are joined."""
    side = round(ranks**0.5)

    def grid(wrap: bool) -> list[Edge]:
        right = [(v, v + 1 if v % side < side - 1 else v + 1 - side) for v in range(ranks) if wrap or (v + 1) % side]
        down = [(v, (v + side) % ranks) for v in range(ranks) if wrap or v + side < ranks]
        return right + down

    yield "ring_1d", [(v, (v + 1) % ranks) for v in range(ranks)]
    yield "mesh_2d_no_wrap", grid(wrap=False)
    yield "torus_2d", grid(wrap=True)
    bits = range(ranks.bit_length() - 1)
    yield "hypercube", [(v, v ^ 1 << bit) for v in range(ranks) for bit in bits if not v >> bit & 1]


def listed(ranks: int, pairs: Iterable[Edge], link: Callable[[], str] = lambda: "") -> Machine:
    """A network of edges both ways."""
    edges = ", ".join(f"{{from: {a}, to: {b}{link()}}}" for a, b in pairs)
    return load_machine("default", {**named("custom", ranks), "system.sips.edges": f"[{edges}]"})


def named(topology: str, ranks: int) -> dict[str, object]:
    return {"system.sips.topology": topology, "system.sips.count": ranks}


def irregular(ranks: int) -> Machine:
    """A random tree and four times as many edges more, of three bandwidths and two latencies."""
    draw = random.Random(ranks)
    pairs = {(draw.randrange(v), v) for v in range(1, ranks)}
    pairs |= {(min(pair), max(pair)) for pair in (draw.sample(range(ranks), 2) for _ in range(4 * ranks))}

    def link() -> str:
        return f", bandwidth_gbs: {draw.choice((10, 20, 40))}, latency_ns: {draw.choice((100, 500))}"

    return listed(ranks, sorted(pairs), link)


def networks(ranks: int) -> None:
    """Closed forms beside the search."""
    print(f"{'bound of':<30}{'closed form':>14}{'search':>14}{'search / closed':>18}")
    for topology, pairs in regular(ranks):
        declared, edges = load_machine("default", named(topology, ranks)), listed(ranks, pairs)
        for collective in COLLECTIVES:
            closed = min(timed(partial(Limit, declared, collective))[0] for _ in range(3))
            search, _ = timed(partial(Limit, edges, collective))
            name = f"{collective}, {topology}"
            print(f"{name:<30}{closed:>11.3f} ms{search:>11.1f} ms{search / closed:>17.0f}x")
    machine = irregular(ranks)
    for collective in COLLECTIVES:
        search, limit = timed(partial(Limit, machine, collective))
        known = "" if limit.tightest else "  (perhaps not the tightest)"
        print(f"{f'{collective}, random edges':<30}{'':>14}{search:>11.1f} ms{known}")


def phases(algorithm: str, ranks: int) -> None:
    """The time of `ahbm.run` without data, phase by phase, and the bound's share of it."""
    emulator = Emulator.load("npu_ring_8", overrides={"system.sips.count": ranks})
    case = prepare("all_reduce", algorithm, emulator=emulator, bytes_per_rank="1M")
    compiling, compiled = timed(case.compiled)
    simulating, _ = timed(lambda: compiled.latency_ps)
    reporting, report = timed(lambda: measure(case, data=False))
    reading, _ = timed(lambda: report.bound_ns)
    message = f"capture and build {compiling:.1f} ms, simulate {simulating:.1f} ms, report {reporting:.2f} ms"
    whole = compiling + simulating + reporting + reading
    print(f"{algorithm}, {ranks} ranks: {message}, bound {reading:.3f} ms ({100 * reading / whole:.2g} % of all)")


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1024, help="SIPs of the networks: 16, 64, 256, 1024, ...")
    ranks = parser.parse_args().ranks
    networks(ranks)
    for algorithm in ("ring_allreduce", "tree_allreduce"):
        phases(algorithm, ranks)


if __name__ == "__main__":
    main()
