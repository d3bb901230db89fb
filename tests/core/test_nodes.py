"""Nodes with a switch inside and interfaces to a spine: times of messages and rings, bounds, and what is refused."""

from __future__ import annotations

from pathlib import Path

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


ACROSS = """
COLLECTIVE = "all_reduce"


def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, dtype="f16"):
    return (n_elem, world_size, dtype)


def kernel(t_ptr, n_elem, ranks, dtype, sip_rank, kind, w, h, *, tl):
    tl.send(tl.peer(sip=(sip_rank + ranks // 2) % ranks), tl.load(t_ptr, shape=(n_elem,), dtype=dtype))
    tl.store(t_ptr, tl.recv(tl.peer(sip=(sip_rank - ranks // 2) % ranks), shape=(n_elem,), dtype=dtype))
"""


@pytest.mark.parametrize("striped", [False, True])
@pytest.mark.parametrize("taper", [1, 1.5, 2, 8])
def test_messages_of_all_interfaces_cross_side_by_side(tmp_path: Path, taper: float, striped: bool) -> None:
    """Each rank of a node sends to its fellow of the other node: a taper is all that they notice of each other."""
    (tmp_path / "across.py").write_text(ACROSS, encoding="utf-8")
    more = {"system.sips.nodes.taper": taper, "system.sips.nodes.striped": striped}
    times = {
        model: ahbm.run(
            "all_reduce",
            str(tmp_path / "across.py"),
            "npu_fully_connected_8",
            bytes_per_rank=1 << 20,
            overrides=KEYS | more | {"system.network_model": model},
            data=False,
        ).latency_ns
        for model in ("cut_through", "flit")
    }
    assert times["cut_through"] == pytest.approx(times["flit"], rel=1e-3)
    assert times["cut_through"] == pytest.approx(4500 + taper * (1 << 20) / 50, rel=0.01)


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
