"""The oracle's cost, and what selectors lose against it: 54 machines, 12 algorithms, 20 sizes from 256 B to 128 MiB.

    python benches/choose.py [--quick]

Machines: six networks, each with three latencies and three bandwidths of its links. All times are processor seconds of
this process. Regret is time / the quickest time - 1 over the points that were not learned from. `--quick` takes two
networks and every second size.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from typing import TypeVar

from ahbm.base.request import Request
from ahbm.choose.catalogue import Catalogue
from ahbm.choose.features import Describer, Features
from ahbm.choose.oracle import Oracle, OracleTable
from ahbm.choose.regret import Point, Regret
from ahbm.choose.training import Described, train_ranking, train_tree
from ahbm.config.topology import load_machine
from ahbm.core.emulator import Emulator

KERNELS = ("ring", "bidirectional_ring", "all_pairs", "recursive_doubling", "tree")
METHODS = ("greedy", "trees", "ring", "halving_doubling", "swing", "direct", "double_binary")
NETWORKS = ("ring_8", "switch_8", "fully_connected_8", "hypercube_16", "mesh_4x4", "torus_4x4")
LATENCIES_NS = (100, 500, 2000)
BANDWIDTHS_GBS = (25, 50, 200)
SIZES = tuple(256 << step for step in range(20))
HELD_BACK = {(100, 25), (500, 50), (2000, 200)}
"""Latencies and bandwidths that are not learned from: one of each row and column."""

_Answer = TypeVar("_Answer")


def timed(what: str, make: Callable[[], _Answer]) -> _Answer:
    begin = time.process_time()
    found = make()
    print(f"{what:<58} {time.process_time() - begin:8.2f} s")
    return found


def show(what: str, regret: Regret) -> None:
    print(f"{what:<58} {regret.mean:8.2%} mean {regret.p95:8.2%} p95 {regret.within_1_percent:6.0%} within 1 %")


def parameters(point: Point, table: OracleTable) -> tuple[float, float]:
    overrides = dict(table.machines[point.machine].overrides)
    return float(overrides["system.sips.link.latency_ns"]), float(overrides["system.sips.link.bandwidth_gbs"])


def trees(table: OracleTable, described: Described) -> None:
    def regret(train: Callable[[Point], bool]) -> Regret:
        tree = train_tree(table.only(train), described)

        def choose(point: Point) -> str:
            return tree.choose(described.demand(table.machines[point.machine], point.nbytes))

        return table.only(lambda point: not train(point)).regret(choose)

    sizes = sorted({point.nbytes for point in table.points()})
    show("tree, unseen sizes (every second one)", regret(lambda point: sizes.index(point.nbytes) % 2 == 0))
    show("tree, unseen latencies and bandwidths", regret(lambda point: parameters(point, table) not in HELD_BACK))


def unseen_networks(table: OracleTable, described: Described) -> None:
    names = [entry.name for entry in table.catalogue]
    ranked: dict[Point, list[str]] = {}
    for network in {point.topology: None for point in table.points()}:
        ranking = train_ranking(table.only(lambda point, network=network: point.topology != network), described)
        for point in table.points():
            if point.topology == network:
                machine = table.machines[point.machine]
                ranked[point] = list(ranking.ranked(described, machine, point.nbytes, names))
    for most in (1, 2, 3):

        def choose(point: Point, most: int = most) -> str:
            times = table.times(point.machine, point.nbytes)
            return min(ranked[point][:most], key=lambda name: times[name])

        share = f"{most * len(ranked) / table.runs:.0%} of the runs" if most > 1 else "no run"
        show(f"estimates, unseen networks, {share}", table.regret(choose))


def extractor() -> None:
    """Operations that features are read off in a second."""
    emulator = Emulator.load("npu_torus_4x4", overrides={"algorithms.trees.synth.method": "trees"})
    seconds, operations = 0.0, 0
    for name in ("ring_allreduce", "bidirectional_ring_allreduce", "trees"):
        program = emulator.compile(Request("all_reduce", range(16), 1 << 22), name).program
        assert program is not None
        begin = time.process_time()
        for _ in range(20):
            operations += program.features().ops
        seconds += time.process_time() - begin
    print(f"{'operations that features are read off':<58} {operations / seconds / 1e6:8.2f} M/s")


def main() -> None:
    quick = "--quick" in sys.argv[1:]
    networks, sizes = (NETWORKS[:2], SIZES[::2]) if quick else (NETWORKS, SIZES)
    machines = [
        load_machine(
            f"npu_{network}",
            {"system.sips.link.latency_ns": latency, "system.sips.link.bandwidth_gbs": bandwidth},
        )
        for network in networks
        for latency in LATENCIES_NS
        for bandwidth in BANDWIDTHS_GBS
    ]
    kernels = [f"{name}_allreduce" for name in KERNELS]
    catalogue = Catalogue.of("all_reduce", [*kernels, *(f"synth:{method}" for method in METHODS)])
    Oracle(catalogue, "npu_ring_8", [256]).table()  # imports
    one = Oracle(catalogue, "npu_torus_4x4", sizes)
    timed(f"oracle, torus 4x4: {len(catalogue) * len(sizes)} runs", one.table)
    with tempfile.TemporaryDirectory() as folder:
        oracle = Oracle(catalogue, machines, sizes, store=folder)
        cases = len(machines) * len(catalogue) * len(sizes)
        table = timed(f"oracle, {len(machines)} machines: {cases} runs", oracle.table)
        again = timed("the same, resumed", oracle.table)
    assert again.values == table.values
    print(f"{'rows that ran':<58} {table.runs:8}")
    extractor()
    for name in (kernels[0], "synth_greedy"):
        show(f"always {name}", table.regret(lambda point, name=name: name))
    described = Described(table, Describer(catalogue))

    def read() -> int:
        rows = [(point, entry.name) for point in table.points() for entry in catalogue]
        features = (described.describe(table.machines[point.machine], point.nbytes, name) for point, name in rows)
        return sum(isinstance(one, Features) for one in features)

    timed("features of all rows", read)
    timed("trees, trained twice", lambda: trees(table, described))
    timed("estimates, trained once per network", lambda: unseen_networks(table, described))


if __name__ == "__main__":
    main()
