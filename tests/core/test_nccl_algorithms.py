"""NCCL's algorithms on plain machines, against closed forms; the switches that some of them need."""

from __future__ import annotations

from pathlib import Path

import pytest

import ahbm
from ahbm.base.request import Request
from ahbm.core.emulator import Emulator
from ahbm.errors import KernelError, TopologyError, UnsupportedError
from ahbm.runs.report import Report
from ahbm.runs.verdict import check_kernel
from ahbm.source import module

ALPHA, BETA = 500.0, 0.02
"""Of a link of the plain machines, in ns and ns per byte."""
WAY = 2 * ALPHA + 100
"""Through the switch of `npu_switch_8`."""
FREE: dict[str, object] = {"system.sips.link.bandwidth_gbs": ".inf"}
ANALYTIC: dict[str, object] = {"system.network_model": "analytic", "pe.dma.channels": 1}
"""No contention but that at the single port of an NPU, as the published models have it."""
SWITCH: dict[str, object] = {"system.sips.switch.reduces": True}
NODES: dict[str, object] = {
    "system.sips.topology": "nodes",
    "system.sips.nodes.size": 4,
    "system.sips.nodes.reduces": True,
    "system.sips.nodes.spine_reduces": True,
}
"""Nodes of four NPUs: 2 x 500 ns inside, and by default 2 x 2000 ns between them."""
COLLECTIVES = {
    "double_binary_tree_allreduce": "all_reduce",
    "nccl_ring_allreduce": "all_reduce",
    "nccl_ring_all_gather": "all_gather",
    "nccl_ring_reduce_scatter": "reduce_scatter",
    "ring_broadcast": "broadcast",
    "ring_reduce": "reduce",
    "pat_all_gather": "all_gather",
    "pat_reduce_scatter": "reduce_scatter",
    "nvls_allreduce": "all_reduce",
    "nvls_all_gather": "all_gather",
    "nvls_reduce_scatter": "reduce_scatter",
    "nvls_tree_allreduce": "all_reduce",
    "collnet_direct_allreduce": "all_reduce",
}
IN_SWITCHES = [name for name in COLLECTIVES if name.startswith(("nvls", "collnet"))]


def run(name: str, topology: str, nbytes: int, **overrides: object) -> Report:
    """A run without data; overrides with `__` for dots."""
    keys = {key.replace("__", "."): value for key, value in overrides.items()}
    return ahbm.run(COLLECTIVES[name], name, topology, bytes_per_rank=nbytes, overrides=keys, data=False)


def levels(n: int) -> int:
    return (n - 1).bit_length()


@pytest.mark.parametrize("n", range(2, 20))
def test_pat_takes_as_many_steps_as_the_number_of_ranks_has_bits(n: int) -> None:
    """Jeaugey 2025: ceil(log2 n) steps, fewer where no chunk needs all; a chunk takes one for each bit of its way."""
    bits = max(way.bit_count() for way in range(n))
    for name in ("pat_all_gather", "pat_reduce_scatter"):
        report = run(name, "npu_fully_connected_8", 2 * n, system__sips__count=n, **FREE)
        assert bits * ALPHA <= report.latency_ns <= levels(n) * ALPHA
        assert n.bit_count() > 1 or report.latency_ns == levels(n) * ALPHA


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_pat_sends_no_chunk_twice(n: int) -> None:
    """ceil(log2 n) alpha + (n - 1) m beta, of which long chunks hide all but one alpha or two."""
    m = 1 << 16
    for name in ("pat_all_gather", "pat_reduce_scatter"):
        report = run(name, "npu_fully_connected_8", m * n, system__sips__count=n, **ANALYTIC)
        sent = (n - 1) * m * BETA
        assert ALPHA + sent <= report.latency_ns + 1e-6 and report.latency_ns <= levels(n) * ALPHA + sent + 1e-6


@pytest.mark.parametrize("n", range(2, 20))
def test_a_double_tree_goes_up_and_down_its_levels(n: int) -> None:
    """Sanders, Speck and Traff 2009: 2 ceil(log2 n) steps for a chunk."""
    report = run("double_binary_tree_allreduce", "npu_fully_connected_8", 64, system__sips__count=n, **FREE)
    assert report.latency_ns == 2 * levels(n) * ALPHA


def test_a_double_tree_pipelines_chunks() -> None:
    """2 d (alpha + beta c) + 2 beta (m - c), within the chunks that a rank with two children has to take in turn."""
    n, d, c = 8, 3, 1 << 15
    exact = run("double_binary_tree_allreduce", "npu_fully_connected_8", 1 << 16, **ANALYTIC).latency_ns
    assert exact == pytest.approx(2 * d * (ALPHA + BETA * c) + 2 * BETA * ((1 << 16) - c))
    for m in (1 << 20, 1 << 24):
        time = run("double_binary_tree_allreduce", "npu_fully_connected_8", m, **ANALYTIC).latency_ns
        bound = 2 * BETA * m * (n - 1) / n
        assert bound < time < 1.03 * (2 * d * (ALPHA + BETA * c) + 2 * BETA * (m - c)) + 4 * BETA * c


@pytest.mark.parametrize("nbytes", [1 << 22, 1 << 25])
def test_a_double_tree_hides_long_latencies_behind_bytes(nbytes: int) -> None:
    """Between nodes with 50 us of latency, 2 n bytes go through each interface while chunks follow each other."""
    keys: dict[str, object] = {
        "system.sips.count": 8,
        "system.sips.link.bandwidth_gbs": ".inf",
        "system.sips.nodes.size": 2,
        "system.sips.nodes.nic_latency_ns": 25_000,
        "system.sips.nodes.nic_gbs": 20,
    }
    report = run("double_binary_tree_allreduce", "npu_ring_8", nbytes, **NODES | keys)
    latency, wire = 4 * (50_000 + 500), 2 * nbytes / 40
    assert report.latency_ns < 1.15 * (latency + wire)


def test_rings_in_slices_hide_the_latency() -> None:
    """Patarasuk and Yuan 2009: 2 (n - 1) (alpha + beta m / n) for one ring. With slices and a second ring, which goes
    the other way round, a PE sends all the time: alpha + 2 beta m (n - 1) / n."""
    for m in (1 << 20, 1 << 23):
        report = ahbm.run(
            "all_reduce", "ring_allreduce", "npu_ring_8", bytes_per_rank=m, overrides=ANALYTIC, data=False
        )
        assert report.latency_ns == pytest.approx(14 * (ALPHA + BETA * m / 8))
        assert run("nccl_ring_allreduce", "npu_ring_8", m, **ANALYTIC).latency_ns == pytest.approx(
            ALPHA + 14 * BETA * m / 8
        )


def test_a_chain_passes_chunks_on() -> None:
    """(n - 1) (alpha + beta c) + beta (m - c)."""
    m, c = 1 << 23, 1 << 19
    for name in ("ring_broadcast", "ring_reduce"):
        assert run(name, "npu_ring_8", m, **ANALYTIC).latency_ns == pytest.approx(
            7 * (ALPHA + BETA * c) + BETA * (m - c)
        )


@pytest.mark.parametrize("n", [2, 3, 8, 13])
def test_the_switch_takes_five_ways(n: int) -> None:
    """A message there, a request, its answer, a multicast, and a message that it has arrived; and m (1 + 1/n) bytes."""
    free = run("nvls_allreduce", "npu_switch_8", 64, system__sips__count=n, **SWITCH, **FREE)
    assert free.latency_ns == 5 * WAY
    for name, ways in (("nvls_all_gather", 3), ("nvls_reduce_scatter", 4)):
        assert run(name, "npu_switch_8", 64 * n, system__sips__count=n, **SWITCH, **FREE).latency_ns == ways * WAY
    m = 1 << 26
    report = run("nvls_allreduce", "npu_switch_8", m, system__sips__count=n, **SWITCH)
    assert (1 + 1 / n) * m * BETA <= report.latency_ns
    assert report.bound_ns is not None and report.bound_ns <= report.latency_ns
    if n > 3:
        assert (
            report.latency_ns < 2 * m * BETA * (n - 1) / n * 0.8
        )  # what no ring can do with fewer than 2 m (n - 1) / n


def test_nvls_tree_and_collnet_reduce_at_both_levels() -> None:
    """Without bytes: 5 ways inside a node and 2 ceil(log2 n) between nodes; 2 and 5."""
    inside, between = 2 * ALPHA, 4000.0
    free = {**NODES, **FREE, "system.sips.nodes.nic_gbs": ".inf", "system.sips.count": 16}
    tree = ahbm.run("all_reduce", "nvls_tree_allreduce", "npu_switch_8", bytes_per_rank=64, overrides=free, data=False)
    assert tree.latency_ns == 5 * inside + 4 * between
    net = ahbm.run(
        "all_reduce", "collnet_direct_allreduce", "npu_switch_8", bytes_per_rank=64, overrides=free, data=False
    )
    assert net.latency_ns == 2 * inside + 5 * between
    for name in ("nvls_tree_allreduce", "collnet_direct_allreduce"):
        report = ahbm.run(
            "all_reduce", name, "npu_switch_8", bytes_per_rank=1 << 20, overrides={**NODES, "system.sips.count": 8}
        )
        assert report.wrong == 0 and report.bound_ns is not None and report.bound_ns <= report.latency_ns


@pytest.mark.parametrize("name", IN_SWITCHES)
@pytest.mark.parametrize("cubes", [1, 2])
def test_one_rank_needs_no_switch(name: str, cubes: int) -> None:
    alone = {"system.sips.count": 1, "sip.cube_mesh.w": cubes}
    for op in ("avg", "max") if "reduce" in COLLECTIVES[name] else ("sum",):
        report = ahbm.run(COLLECTIVES[name], name, "npu_ring_8", bytes_per_rank=96, overrides=alone, op=op)
        assert (report.wrong, report.latency_ns) == (0, 0)


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("ranks", [6, 8])
def test_checks_find_nothing(name: str, ranks: int) -> None:
    overrides = {**NODES, "system.sips.count": ranks, "system.sips.nodes.size": 2}
    checked = check_kernel(name, None, "npu_switch_8", overrides=overrides, bytes_per_rank=96 * ranks)
    assert (checked.verdict, checked.findings) == ("correct", ())


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_call_for_many_is_a_call_for_each(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for by_class in (True, False):
        monkeypatch.setattr(module, "BY_CLASS", by_class)
        for topology, overrides in (("npu_switch_8", SWITCH), ("npu_switch_8", NODES)):
            if name == "nvls_tree_allreduce" and overrides is SWITCH:
                continue
            report = ahbm.run(
                COLLECTIVES[name], name, topology, bytes_per_rank=1 << 15, overrides=overrides, data=False
            )
            found.append((report.latency_ns, report.timeline_hash))
    assert found[: len(found) // 2] == found[len(found) // 2 :]


@pytest.mark.parametrize("name", IN_SWITCHES)
def test_a_switch_that_does_not_reduce_is_named_before_anything_is_captured(name: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        run(name, "npu_switch_8", 1 << 10)
    assert caught.value.code == "AHBM-U116" and name in str(caught.value)
    assert name not in Emulator.load("npu_switch_8").algorithms(COLLECTIVES[name])
    part = Emulator.load("npu_switch_8", overrides=NODES | {"system.sips.nodes.spine_reduces": False})
    refused = part.refusals(Request(COLLECTIVES[name], range(8), 512, "f16"))
    assert (name in refused) == (name != "nvls_tree_allreduce") and name in part.algorithms(COLLECTIVES[name])


@pytest.mark.parametrize(
    ("call", "code", "told"),
    [
        ("tl.load_reduce(t_ptr, shape=(1,), sips=[0, 1])", "T019", "no switch between SIPs 0 and 1 reduces"),
        ("tl.multicast(t_ptr, tl.load(t_ptr, shape=(1,)), sips=[1])", "T019", "no switch between SIPs 0 and 1"),
        ("tl.load_reduce(t_ptr, shape=(1,), sips=[0, 8])", "K209", "SIP 8 of 8"),
        ("tl.load_reduce(t_ptr, shape=(1,), sips=[3, 3])", "K209", "SIP 3 twice"),
        ("tl.load_reduce(t_ptr, shape=(1,), sips=[])", "K209", "a group of no SIPs"),
        ("tl.load_reduce(t_ptr, shape=(1,), sips=3)", "K209", "sips= is"),
        ("tl.load_reduce(t_ptr, shape=(1,), sips=['a'])", "K209", "sips= is"),
        ("tl.load_reduce(t_ptr, shape=(1,), sips=[0], op='mean')", "K214", "unknown op"),
        ("tl.load_reduce(t_ptr, shape=(9999,), sips=[0])", "K204", "are not inside"),
        ("tl.multicast(t_ptr, 3, sips=[0])", "K209", ""),
    ],
)
def test_calls_that_cannot_be_are_refused_with_their_line(tmp_path: Path, call: str, code: str, told: str) -> None:
    path = tmp_path / "odd.py"
    path.write_text(
        "def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4):\n    return (n_elem,)\n\n\n"
        f"def kernel(t_ptr, n_elem, sip_rank, kind, w, h, *, tl):\n    if sip_rank == 0:\n        {call}\n",
        encoding="utf-8",
    )
    with pytest.raises((KernelError, TopologyError)) as caught:
        ahbm.run("all_reduce", str(path), "npu_ring_8", bytes_per_rank=16, data=False)
    assert caught.value.code == f"AHBM-{code}" and told in str(caught.value) and "odd.py:7" in str(caught.value)


def test_a_switch_of_a_node_does_not_reduce_for_its_neighbour() -> None:
    inside = {**NODES, "system.sips.count": 8, "system.sips.nodes.spine_reduces": False}
    with pytest.raises(UnsupportedError, match=r"AHBM-U116 nvls_allreduce.* SIPs 0 and 7"):
        ahbm.run("all_reduce", "nvls_allreduce", "npu_switch_8", bytes_per_rank=64, overrides=inside)
    report = ahbm.run(
        "all_reduce", "nvls_allreduce", "npu_switch_8", bytes_per_rank=64, overrides={**inside, "system.sips.count": 4}
    )
    assert report.wrong == 0
