"""Faults change the time as they should and never the result."""

from __future__ import annotations

import itertools

import pytest

import ahbm
from ahbm.errors import TopologyError
from ahbm.runs.report import Report

COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "barrier"]


MACHINE = {"system.sips.count": 16, "sip.cube_mesh": "{w: 1, h: 1}"}


def run(faults: str = "", collective: str = "all_reduce", topology: str = "torus_2d", **extra: object) -> Report:
    overrides: dict[str, object] = MACHINE | {"faults": f"{{{faults}}}"} | extra
    size = None if collective == "barrier" else 64 << 10
    algorithm = "ring_allreduce" if collective == "all_reduce" else None
    return ahbm.run(collective, algorithm, topology, bytes_per_rank=size, overrides=overrides)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["cut_through", "flit", "analytic"])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_fault_slows_down_and_keeps_the_result(collective: str, model: str) -> None:
    extra = {"system.network_model": model}
    well = run(collective=collective, **extra)
    for faults in (
        "links: [{from: 0, to: 1, slowdown: 8, extra_latency_ns: 50}]",
        "links: [{from: 0, to: 1, dead: true}, {from: 5, to: 9, dead: true}]",
        "stragglers: [{sip: 3, slowdown: 20}]",
        "jitter: {seed: 1, latency_ns: 40}",
        "jitter: {seed: 1, skew_ns: 400}",
    ):
        ill = run(faults, collective, **extra)
        assert ill.wrong == 0
        assert ill.latency_ns >= well.latency_ns, faults
        # Only the ring is known to need every SIP and link in turn.
        assert ill.latency_ns > well.latency_ns or collective != "all_reduce", faults
        assert ill.bound_ns is not None and well.bound_ns is not None
        assert well.bound_ns <= ill.bound_ns <= ill.latency_ns
        assert run(faults, collective, **extra) == ill


def test_one_way_is_one_way() -> None:
    ways = ["{from: 0, to: 1, extra_latency_ns: 1000, bidirectional: false}"]
    ways += ["{from: 1, to: 0, extra_latency_ns: 1000, bidirectional: false}"]
    slow, free = (
        ahbm.run("send_recv", None, "npu_ring_8", bytes_per_rank=64, overrides={"faults.links": f"[{way}]"})
        for way in ways
    )
    well = ahbm.run("send_recv", None, "npu_ring_8", bytes_per_rank=64)
    assert slow.latency_ns == well.latency_ns + 1000
    # The credit comes back the other way.
    assert well.latency_ns <= free.latency_ns <= well.latency_ns + 1000


def test_seeds_differ_and_repeat() -> None:
    hashes = [run(f"jitter: {{seed: {seed}, latency_ns: 100, skew_ns: 100}}").timeline_hash for seed in (1, 2, 3, 1)]
    assert len(set(hashes)) == 3 and hashes[0] == hashes[3]
    bounds = [run().latency_ns, run("jitter: {seed: 9, skew_ns: 100}").latency_ns]
    assert bounds[0] < bounds[1] <= bounds[0] + 100


BETTER = [
    {"system.sips.link.bandwidth_gbs": 256},
    {"system.sips.link.latency_ns": 20},
    {"sip.io.bandwidth_gbs": 256, "cube.ucie.bandwidth_gbs": 256},
    {"ipcq.send_ns": 1, "pe.dma.setup_ns": 5},
    {"faults.jitter.latency_ns": 50},
    {"faults.jitter.skew_ns": 200},
]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["cut_through", "flit", "analytic"])
@pytest.mark.parametrize(
    ("collective", "algorithm"),
    [("all_reduce", "ring_allreduce"), ("all_gather", "ring_all_gather"), ("reduce_scatter", "ring_reduce_scatter")],
)
def test_with_one_seed_a_better_machine_is_never_slower(collective: str, algorithm: str, model: str) -> None:
    """In these programs nobody shares a link, so no order can change."""
    for seed, size in itertools.product(range(4), (1 << 10, 64 << 10)):
        jitter = {"faults.jitter.latency_ns": 100, "faults.jitter.skew_ns": 500, "faults.jitter.seed": seed}
        machine = MACHINE | jitter | {"system.sips.count": 8, "system.network_model": model}
        times = [
            ahbm.run(collective, algorithm, "ring_1d", bytes_per_rank=size, data=False, overrides=machine | better)
            for better in ({}, *BETTER)
        ]
        assert max(times, key=lambda report: report.latency_ns) is times[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("topology", "key", "gbs", "collective", "slower"),
    [
        ("polaris_8_nodes", "system.sips.nodes.nic_gbs", 25, "all_reduce", 0),
        ("polaris_8_nodes", "system.sips.nodes.nic_gbs", 25, "all_to_all", 0),
        ("polaris_n_nodes", "system.sips.link.bandwidth_gbs", 300, "all_to_all", 1),
    ],
)
def test_docs_say_how_often_a_faster_link_makes_a_call_slower(
    topology: str, key: str, gbs: float, collective: str, slower: int
) -> None:
    """Part of the pairs that docs/machine-model.md counts."""
    found: list[float] = []
    for size in (1 << power for power in range(12, 31, 2)):
        times = [
            ahbm.run(
                collective, None, topology, bytes_per_rank=size, data=False, overrides={key: gbs * more}
            ).latency_ns
            for more in (1, 2, 4)
        ]
        found += [better / worse - 1 for worse, better in itertools.pairwise(times) if better > worse]
    assert len(found) == slower and max(found, default=0.0) < 0.014


def test_a_straggler_costs_its_own_work() -> None:
    well = run(topology="ring_1d")
    times = [run(f"stragglers: [{{sip: 2, slowdown: {k}}}]", topology="ring_1d").latency_ns for k in (1, 2, 4)]
    assert well.latency_ns == times[0] < times[1] < times[2]


def test_who_is_cut_off_is_named() -> None:
    with pytest.raises(TopologyError) as caught:
        run("links: [{from: 0, to: 1, dead: true}, {from: 0, to: 15, dead: true}]", topology="ring_1d")
    assert caught.value.code == "AHBM-T018"
    assert "sip0" in str(caught.value) or "SIP 0" in str(caught.value)
    assert "sip0->sip1" in str(caught.value)
