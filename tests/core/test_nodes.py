"""Nodes with a switch inside and interfaces to a spine: times of messages and rings, bounds, and what is refused."""

from __future__ import annotations

import pytest

import ahbm
from ahbm.errors import UnsupportedError

KEYS: dict[str, object] = {
    "system.sips.topology": "nodes",
    "system.sips.count": 16,
    "system.sips.link.latency_ns": 300,
    "system.sips.link.bandwidth_gbs": 400,
    "system.sips.nodes.nic_latency_ns": 2000,
    "system.sips.nodes.nic_gbs": 50,
    "system.sips.nodes.spine_ns": 500,
}
FLIT = 256


def run(collective: str, algorithm: str | None = None, nbytes: int = 1 << 20, **more: object) -> ahbm.Report:
    taper = {"system.sips.nodes.taper": more.pop("taper", 1)}
    return ahbm.run(
        collective, algorithm, "npu_fully_connected_8", bytes_per_rank=nbytes, overrides=KEYS | taper, **more
    )


@pytest.mark.parametrize(
    ("dst", "latency", "gbs", "links"), [(1, 600, 400, 2), (7, 600, 400, 2), (8, 4500, 50, 4), (15, 4500, 50, 4)]
)
def test_a_message_takes_the_way_of_its_ends(dst: int, latency: float, gbs: float, links: int) -> None:
    nbytes = 1 << 20
    found = run("send_recv", nbytes=nbytes, src=0, dst=dst, data=False).latency_ns
    assert found == pytest.approx(latency + nbytes / gbs, abs=links * FLIT / gbs)


def test_a_taper_halves_what_all_interfaces_get_together() -> None:
    # All ranks of a node send to the other node at once; without a taper their interfaces do not notice each other.
    times = {taper: run("all_to_all", nbytes=1 << 24, taper=taper, data=False).latency_ns for taper in (1, 2, 4)}
    across = 8 * 8 * (1 << 20)
    assert times[4] > times[2] > times[1]
    assert times[4] >= across / (400 / 4)


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"])
def test_results_are_right_and_no_quicker_than_the_bound(collective: str) -> None:
    found = run(collective, nbytes=1 << 16)
    assert found.wrong == 0
    assert found.percent_of_bound is not None
    assert 0 < found.percent_of_bound <= 100


def test_synthesis_refuses_vertices_that_are_no_rank() -> None:
    with pytest.raises(UnsupportedError) as caught:
        ahbm.synthesize("all_gather", topology="npu_fully_connected_8", size=65536, overrides=KEYS)
    assert caught.value.code == "AHBM-U406"
