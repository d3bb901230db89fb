"""As many DMA channels as a machine states: what waits for what, and what does not change."""

from __future__ import annotations

import pytest

import ahbm
from ahbm.base import packaged
from ahbm.config.topology import load_machine
from ahbm.core.emulator import Emulator
from ahbm.errors import TopologyError
from ahbm.runs.report import Report

CHANNELS = "pe.dma.channels"
MIB = 1 << 20
PLAIN = sorted(
    path.stem for path in packaged.TOPOLOGIES.glob("*.yaml") if path.stem.split("_")[0] in ("npu", "tpu", "wafer")
)


def run(topology: str | None, algorithm: str, channels: int | str | None, nbytes: int = MIB, **more: object) -> Report:
    overrides = {} if channels is None else {CHANNELS: channels}
    collective = "all_reduce" if algorithm.endswith("allreduce") else "all_gather"
    return ahbm.run(collective, algorithm, topology, bytes_per_rank=nbytes, overrides=overrides | more, data=False)


@pytest.mark.parametrize("model", ["cut_through", "flit", "analytic"])
def test_links_wait_for_each_other_at_one_channel_alone(model: str) -> None:
    """Half of the bytes go each way round the ring: with a channel for each link, both at once."""
    times = {
        channels: run(
            "npu_ring_8", "bidirectional_ring_allreduce", channels, **{"system.network_model": model}
        ).latency_ns
        for channels in (1, 2, 3, "per_link")
    }
    assert max(times[2], times[3], times["per_link"]) < 0.7 * times[1]
    if model != "analytic":
        assert times[2] == times[3] == times["per_link"]


@pytest.mark.parametrize("topology", [None, "reference_torus", "npu_ring_8"])
def test_one_channel_is_what_machines_have_that_state_none(topology: str | None) -> None:
    for algorithm in ("ring_allreduce", "lrab_hierarchical_allreduce"):
        stated, one = (run(topology, algorithm, channels, 65_536).timeline_hash for channels in (None, 1))
        # Of the plain machines only a ring that sends over one link has the same times.
        assert stated == one or (topology == "npu_ring_8" and algorithm != "ring_allreduce")


@pytest.mark.parametrize("topology", PLAIN)
def test_plain_machines_have_a_channel_for_each_link(topology: str) -> None:
    machine = load_machine(topology)
    assert machine.dma_channels is None
    assert "a write and a read channel per PE and link between SIPs" in machine.describe()
    assert load_machine(topology, {CHANNELS: 2}).dma_channels == 2


@pytest.mark.slow
@pytest.mark.parametrize("channels", [1, 2, "per_link"])
@pytest.mark.parametrize(
    ("topology", "more"),
    [
        ("npu_ring_8", {}),
        ("npu_torus_4x4", {}),
        ("npu_hypercube_16", {}),
        ("npu_fully_connected_8", {}),
        ("npu_switch_8", {}),
        # What a PE sends shares its port to the network on chip.
        ("npu_torus_4x4", {"pe.noc_port_gbs": 60, "pe.hbm.pc_bandwidth_gbs": 8, "pe.dma.setup_ns": 10}),
        ("npu_ring_8", {"system.network_model": "flit", "pe.noc_port_gbs": 60}),
    ],
)
def test_one_rank_stands_for_all_that_do_the_same(topology: str, more: dict[str, object], channels: int | str) -> None:
    emulator = Emulator.load(topology, None, {CHANNELS: channels, **more})
    for collective in ("all_reduce", "all_gather", "all_to_all"):
        for algorithm in emulator.algorithms(collective):
            try:
                program = ahbm.run(
                    collective,
                    algorithm,
                    emulator.machine,
                    bytes_per_rank=1 << 15,
                    data=False,
                ).program()
            except ahbm.AhbmError:
                continue
            assert program is not None
            folded, whole = (program.simulate(record=False, fold=fold) for fold in (True, False))
            assert (folded.hash, folded.ends_ps) == (whole.hash, whole.ends_ps), (collective, algorithm)


@pytest.mark.parametrize("channels", [1, 2, "per_link"])
def test_explanations_add_up(channels: int | str) -> None:
    report = run("npu_torus_4x4", "all_pairs_allreduce", channels, 65_536)
    explanation = report.explain()
    assert sum(explanation.by_category.values()) == explanation.latency_ps == round(1000 * report.latency_ns)
    assert sum(step.ps for step in explanation.steps) == explanation.latency_ps
    assert explanation.timeline_hash == report.timeline_hash


def test_waiting_for_a_channel_is_told() -> None:
    """An all-pairs exchange on a full mesh: with one channel, bytes wait for the channel, not for a link."""
    narrow, wide = (run("npu_fully_connected_8", "all_pairs_allreduce", channels) for channels in (1, "per_link"))
    assert narrow.latency_ns > 3 * wide.latency_ns
    assert "DMA write channel" in narrow.limited_by
    assert "links" in wide.limited_by


@pytest.mark.parametrize(
    ("value", "code"),
    [(0, "AHBM-T005"), (65, "AHBM-T005"), (1.5, "AHBM-T005"), ("per_pe", "AHBM-T006"), ("[]", "AHBM-T004")],
)
def test_what_is_no_number_of_channels_is_refused(value: object, code: str) -> None:
    with pytest.raises(TopologyError) as caught:
        load_machine("npu_ring_8", {CHANNELS: value})
    assert caught.value.code == code
