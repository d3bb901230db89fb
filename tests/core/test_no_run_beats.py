"""No run is faster than its bound, on whatever machine, with whatever algorithm, size and layout."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ahbm
from ahbm import DPPolicy
from ahbm.config.topology import load_machine
from ahbm.core.emulator import Emulator
from ahbm.errors import AhbmError

NETWORKS: list[dict[str, object]] = [
    {"topology": "ring_1d", "count": 3},
    {"topology": "ring_1d", "count": 8},
    {"topology": "torus_2d", "count": 6, "w": 3, "h": 2},
    {"topology": "mesh_2d_no_wrap", "count": 6, "w": 3, "h": 2},
    {"topology": "hypercube", "count": 8},
    {"topology": "fully_connected", "count": 4},
    {"topology": "switch", "count": 5},
    {"topology": "nodes", "count": 8, "nodes.size": 4},
    {"topology": "nodes", "count": 6, "nodes.size": 2, "nodes.reduces": "true"},
    {"topology": "switch", "count": 4, "switch.reduces": "true"},
]


@st.composite
def machines(draw: st.DrawFn) -> tuple[str | None, dict[str, object]]:
    """A machine whose SIPs, cubes and PEs may cost anything or nothing."""
    base = draw(st.sampled_from([None, "npu_ring_8"]))
    overrides = {f"system.sips.{key}": value for key, value in draw(st.sampled_from(NETWORKS)).items()}
    rates = st.sampled_from([".inf", 8, 50, 128, 1000])
    for key in ("pe.noc_port_gbs", "pe.noc_port_in_gbs", "pe.hbm.pc_bandwidth_gbs", "sip.io.bandwidth_gbs"):
        if draw(st.booleans()):
            overrides[key] = draw(rates)
    overrides["system.sips.link.bandwidth_gbs"] = draw(st.sampled_from([5, 50, 400]))
    overrides["pe.dma.channels"] = draw(st.sampled_from([1, 1, 2, 5, "per_link"]))
    overrides["system.network_model"] = draw(st.sampled_from(["cut_through", "cut_through", "flit", "analytic"]))
    overrides["sip.cube_mesh.w"], overrides["sip.cube_mesh.h"] = draw(st.sampled_from([(1, 1), (2, 1), (2, 2)]))
    overrides["cube.pe_layout.pe_per_corner"] = draw(st.sampled_from([1, 2]))
    return base, overrides


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    machine=machines(),
    collective=st.sampled_from(
        [
            "all_reduce",
            "all_gather",
            "reduce_scatter",
            "broadcast",
            "reduce",
            "scatter",
            "gather",
            "all_to_all",
            "send_recv",
        ]
    ),
    size=st.sampled_from([256, 4096, 1 << 17, 1 << 20]),
    root=st.integers(0, 2),
    device=st.booleans(),
    data=st.data(),
)
def test_no_run_is_faster_than_its_bound(
    machine: tuple[str | None, dict[str, object]],
    collective: str,
    size: int,
    root: int,
    device: bool,
    data: st.DataObject,
) -> None:
    base, overrides = machine
    resolved = load_machine(base, overrides)
    emulator = Emulator.load(resolved)
    names = emulator.algorithms(collective)
    name: Any = data.draw(st.sampled_from(names))
    where: dict[str, Any] = {"bytes_per_rank": size}
    if device and collective == "all_reduce":
        where = {"bytes_per_pe": size, "placement": DPPolicy(cube="row_wise")}
    if collective not in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"):
        where["root"] = root
    try:
        report = ahbm.run(collective, name, resolved, data=False, **where)
    except AhbmError:
        return
    assert report.bound_ps is None or report.bound_ps <= round(1000 * report.latency_ns), (
        name,
        report.limited_by,
        report.bound_ps,
        report.latency_ns,
    )


@pytest.mark.parametrize(
    ("channels", "nbytes", "wanted"),
    [
        # 30 / 16 of a MiB leave the rank at 50 GB/s, one channel after the other or all together.
        (1, 1 << 20, 39.3216),
        (2, 1 << 20, 19.6608),
        ("per_link", 1 << 20, 10.3304),
    ],
)
def test_a_rank_has_so_many_channels(channels: int | str, nbytes: int, wanted: float) -> None:
    report = ahbm.run(
        "all_reduce",
        "bidirectional_ring_allreduce",
        "npu_torus_4x4",
        bytes_per_rank=nbytes,
        data=False,
        overrides={"pe.dma.channels": channels},
    )
    assert (report.bound_ns or 0) / 1000 == pytest.approx(wanted, rel=1e-4)
    assert (report.percent_of_bound or 0) <= 100


def test_host_arrays_and_tiles_of_one_cube_have_one_bound() -> None:
    """A SIP of one PE has the same channel, whatever the tensor is called."""
    overrides = {
        "system.sips.count": 16,
        "system.sips.topology": "torus_2d",
        "sip.cube_mesh.w": 1,
        "sip.cube_mesh.h": 1,
        "cube.pe_layout.corners": 1,
        "cube.pe_layout.pe_per_corner": 1,
    }
    layouts: list[dict[str, Any]] = [
        {"bytes_per_rank": 1 << 22},
        {"bytes_per_pe": 1 << 22, "placement": DPPolicy(cube="row_wise")},
    ]
    host, tiles = (
        ahbm.run("all_reduce", "bidirectional_ring_allreduce", overrides=overrides, data=False, **layout)
        for layout in layouts
    )
    assert host.latency_ns == tiles.latency_ns
    assert host.bound_ns == tiles.bound_ns
    assert "one DMA write channel per rank" in host.limited_by
    assert (host.percent_of_bound or 0) > 90


@pytest.mark.parametrize(
    ("collective", "overrides", "limit"),
    [
        ("all_gather", {"pe.noc_port_in_gbs": 8}, "ports in from the network on chip"),
        ("all_to_all", {"sip.io.bandwidth_gbs": 8}, "ports out to the I/O chiplet"),
        ("broadcast", {"pe.hbm.pc_bandwidth_gbs": 1}, "read ports from memory, 8 GB/s"),
        ("reduce", {"pe.dma.channels": 1, "pe.noc_port_gbs": 8}, "one DMA write channel per rank, 8 GB/s"),
    ],
)
def test_what_limits_is_named(collective: str, overrides: dict[str, object], limit: str) -> None:
    report = ahbm.run(collective, topology="npu_torus_4x4", bytes_per_rank=1 << 20, data=False, overrides=overrides)
    assert limit in report.limited_by
    assert (report.bound_ps or 0) <= round(1000 * report.latency_ns)
