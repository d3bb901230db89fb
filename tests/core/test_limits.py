"""Bounds: closed forms on regular networks, and no run is ever faster than its bound."""

from __future__ import annotations

import itertools
import pickle
import random

import pytest

import ahbm
from ahbm._core import Limit, Machine
from ahbm.base.request import Request
from ahbm.config.topology import load_machine
from ahbm.core.compiled import Cost
from ahbm.core.limits import Limits, describe
from ahbm.errors import AhbmError, ConfigError, UnsupportedError
from ahbm.runs.report import Report

GBS, LATENCY_PS = 50.0, 500_000
MIB = 1 << 20


def npus(kind: str, count: int, **shape: int) -> Machine:
    """A network of NPUs with links of 50 GB/s and 500 ns."""
    overrides = {"system.sips.count": count, "system.sips.topology": kind}
    overrides |= {f"system.sips.{key}": value for key, value in shape.items()}
    return load_machine("npu_ring_8", overrides)


@pytest.mark.parametrize(
    ("machine", "collective", "shares", "links", "hops"),
    [
        # Everything of the others enters each NPU over its links; in a mesh, over the two of a corner.
        (("ring_1d", 8, {}), "all_gather", 7, 2, 4),
        (("mesh_2d_no_wrap", 16, {"w": 4, "h": 4}), "all_gather", 15, 2, 6),
        (("torus_2d", 16, {"w": 4, "h": 4}), "reduce_scatter", 15, 4, 4),
        (("hypercube", 16, {}), "all_gather", 15, 4, 4),
        (("fully_connected", 8, {}), "all_gather", 7, 7, 1),
        # Every element crosses n - 1 borders in and out over all links: 2 (n - 1) / links.
        (("ring_1d", 8, {}), "all_reduce", 14, 16, 4),
        (("mesh_2d_no_wrap", 16, {"w": 4, "h": 4}), "all_reduce", 30, 48, 6),
        (("torus_2d", 16, {"w": 4, "h": 4}), "all_reduce", 30, 64, 4),
        (("hypercube", 16, {}), "all_reduce", 30, 64, 4),
        # Half of the ring sends to the other half over two links; the middle of a mesh has four.
        (("ring_1d", 8, {}), "all_to_all", 16, 2, 4),
        (("mesh_2d_no_wrap", 16, {"w": 4, "h": 4}), "all_to_all", 64, 4, 6),
        (("ring_1d", 8, {}), "broadcast", 1, 2, 4),
        (("mesh_2d_no_wrap", 16, {"w": 4, "h": 4}), "scatter", 15, 2, 6),
    ],
)
def test_closed_forms(
    machine: tuple[str, int, dict[str, int]], collective: str, shares: int, links: int, hops: int
) -> None:
    kind, count, shape = machine
    limit = Limit(npus(kind, count, **shape), collective)
    assert limit.ps(0) == hops * LATENCY_PS
    for nbytes in (64 * MIB, 256 * MIB):
        fluid = nbytes * 1000 * shares / (links * GBS)
        assert limit.ps(nbytes) == pytest.approx(max(fluid + LATENCY_PS, hops * LATENCY_PS), abs=2)


@pytest.mark.parametrize(("reduces", "shares"), [("false", 14 / 8), ("true", 1)])
def test_a_switch_that_reduces_takes_everything_once(reduces: str, shares: float) -> None:
    machine = load_machine("npu_switch_8", {"system.sips.switch.reduces": reduces})
    assert machine.switch_reduces == (reduces == "true")
    assert ("reducer of the switch" in machine.describe()) == machine.switch_reduces
    assert Limit(machine, "all_reduce").ps(64 * MIB) == pytest.approx(64 * MIB * 1000 * shares / GBS + 1_100_000, abs=2)


RUNS = [
    (collective, algorithm)
    for collective, algorithms in {
        "all_reduce": ["ring_allreduce", "tree_allreduce", "recursive_doubling_allreduce"],
        "all_gather": [None],
        "reduce_scatter": [None],
        "broadcast": [None],
        "reduce": [None],
        "gather": [None],
        "scatter": [None],
        "all_to_all": [None],
        "send_recv": [None],
        "barrier": [None],
    }.items()
    for algorithm in algorithms
]
NETWORKS = [
    ("default", {}),
    ("default", {"system.sips.count": "4", "sip.cube_mesh.w": "2", "sip.cube_mesh.h": "1"}),
    ("npu_ring_8", {}),
    ("npu_mesh_4x4", {}),
    ("npu_torus_4x4", {}),
    ("npu_hypercube_16", {}),
    ("npu_fully_connected_8", {}),
    ("npu_switch_8", {}),
    ("npu_switch_8", {"system.sips.switch.reduces": "true"}),
]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["cut_through", "flit", "analytic"])
def test_no_run_beats_its_bound(model: str) -> None:
    choose = random.Random(model)
    ran = 0
    for (collective, algorithm), (topology, extra) in itertools.product(RUNS, NETWORKS):
        overrides = {"system.network_model": model, **extra}
        size = 16 * choose.choice([8, 64, 1000, 8192])
        try:
            report = ahbm.run(
                collective,
                algorithm,
                None if topology == "default" else topology,
                bytes_per_rank=None if collective == "barrier" else size * 16,
                overrides=overrides,
                data=False,
            )
        except (ConfigError, UnsupportedError):
            continue
        ran += 1
        assert report.bound_ns is not None, (collective, topology, report.limited_by)
        assert 0 < report.bound_ns <= report.latency_ns, (collective, algorithm, topology, size, report.limited_by)
        assert report.percent_of_bound == pytest.approx(100 * report.bound_ns / report.latency_ns)
    assert ran > len(RUNS) * len(NETWORKS) // 2


def test_a_bound_above_a_run_would_be_seen() -> None:
    """The comparison above can fail: a machine with slower links has a bound that runs on the faster one beat."""
    fast = ahbm.run("all_gather", topology="npu_ring_8", bytes_per_rank=MIB, data=False)
    slow = load_machine("npu_ring_8", {"system.sips.link.bandwidth_gbs": 5})
    bound = Limits(slow).bound("all_gather", 8, MIB // 8)
    assert bound.ps is not None
    assert bound.ps / 1000 > fast.latency_ns


@pytest.mark.parametrize("cubes", [2, 4, 16])
def test_tiles_of_cubes(cubes: int) -> None:
    for sips in (1, 2, 4):
        overrides = {
            "sip.cube_mesh.w": min(cubes, 4),
            "sip.cube_mesh.h": max(cubes // 4, 1),
            "system.sips.count": sips,
        }
        for size in (64, 4096, 1 << 18):
            report = ahbm.run(
                "all_reduce",
                placement=ahbm.DPPolicy(cube="row_wise"),
                bytes_per_pe=size,
                overrides=overrides,
                data=False,
            )
            assert report.bound_ns is not None
            assert 0 < report.bound_ns <= report.latency_ns


def test_what_is_not_known_says_why() -> None:
    limits = Limits(npus("ring_1d", 8))
    bound = limits.bound("all_reduce", 9, 1024)
    assert bound.ps is None
    assert "9 ranks on 8 SIPs" in bound.reason
    with pytest.raises(AhbmError):
        Limit(npus("ring_1d", 8), "all_reduce", root=8)
    with pytest.raises(ConfigError):
        Limit(npus("ring_1d", 8), "all_produce")


def test_names_of_cuts() -> None:
    assert describe((1, [(0, 3), (7, 8)], 100.0, 2, 16), "sip", 8) == "out of sip0-sip2, sip7 over 2 links, 100 GB/s"
    assert describe((1, [(0, 7)], 100.0, 2, 7), "sip", 8) == "into sip7 over 2 links, 100 GB/s"
    assert describe((1, [(0, 2), (3, 8)], 100.0, 2, 7), "sip", 8) == "into sip2 over 2 links, 100 GB/s"
    assert describe((1, [(1, 8)], 100.0, 2, 7), "sip", 8) == "into sip0 over 2 links, 100 GB/s"
    assert describe((2, [], 50.0, 1, 2), "sip", 2) == "between 2 parts over 1 link, 50 GB/s"
    # A node more than there are names for stands for all other SIPs.
    assert describe((1, [(0, 4)], 50.0, 1, 4), "cube", 4) == "into the other SIPs over 1 link, 50 GB/s"
    assert describe((1, [(0, 3), (4, 5)], 50.0, 1, 4), "cube", 4) == "into cube3 over 1 link, 50 GB/s"


def test_some_of_the_ranks() -> None:
    """Others relay: what must enter and leave each rank still bounds the run."""
    for collective, algorithm in RUNS:
        overrides = {"defaults.world_size": 5}
        size = None if collective == "barrier" else 5 * 4096
        report = ahbm.run(collective, algorithm, "npu_ring_8", bytes_per_rank=size, overrides=overrides, data=False)
        assert report.ranks == 5 and report.bound_ns is not None
        assert 0 < report.bound_ns <= report.latency_ns, collective


def test_a_bound_is_found_when_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def limit(*given: object, **named: object) -> Limit:
        asked.append(given)
        return Limit(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr("ahbm.core.limits.Limit", limit)
    emulator = ahbm.Emulator.load("npu_ring_8")
    report = ahbm.run("all_gather", emulator=emulator, bytes_per_rank=1 << 12)
    explanation, cost = report.explain(), emulator.cost(Request("all_gather", range(8), 256, "f16"), report.algorithm)
    assert isinstance(cost, Cost) and not asked
    assert explanation.bound_ps == report.bound_ps == cost.bound_ps
    assert report.bound_ns is not None and report.bound_is_tightest and len(asked) == 1


def test_a_report_keeps_its_bound_in_json_and_in_copies() -> None:
    edges = "[{from: 0, to: 1}, {from: 1, to: 2}, {from: 2, to: 0}, {from: 2, to: 3}, {from: 3, to: 0}]"
    overrides = {"system.sips.count": 4, "system.sips.topology": "custom", "system.sips.edges": edges}
    told = {}
    for collective in ("all_gather", "all_to_all"):
        report = ahbm.run(collective, topology="npu_ring_8", bytes_per_rank=1 << 20, overrides=overrides, data=False)
        told[collective] = report.bound_is_tightest, report.limited_by.endswith(", perhaps not the tightest")
        data = report.to_json()
        old = {name: value for name, value in data.items() if name != "bound_is_tightest"}
        for again in (Report.from_json(data), pickle.loads(pickle.dumps(report))):
            assert again.to_json() == data and again == report
        assert Report.from_json(old).to_json() == data | {"bound_is_tightest": False}
    assert told == {"all_gather": (True, False), "all_to_all": (False, True)}


@pytest.mark.parametrize("topology", ["npu_ring_8", "npu_mesh_4x4"])
def test_a_message_to_itself_takes_no_time_at_least(topology: str) -> None:
    report = ahbm.run("send_recv", topology=topology, src=1, dst=1, data=False)
    assert (report.bound_ns, report.limited_by) == (0, "a message to itself")


def test_a_faulty_switch_has_no_bound() -> None:
    faults = {"faults.links": "[{from: 0, to: 8, slowdown: 2}]"}
    report = ahbm.run("all_gather", topology="npu_switch_8", bytes_per_rank=1 << 12, overrides=faults)
    assert report.bound_ns is None and report.wrong == 0
    assert "switch" in report.limited_by
