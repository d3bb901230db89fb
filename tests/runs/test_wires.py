"""What-ifs of bandwidths and latencies between SIPs on calibrated machines: the part of the fitted law that is the
wire's follows the wire, or a note says what binds instead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ahbm
from ahbm.config.topology import load_machine, names

LINK, NIC = "system.sips.link.bandwidth_gbs", "system.sips.nodes.nic_gbs"
LINK_NS, NIC_NS = "system.sips.link.latency_ns", "system.sips.nodes.nic_latency_ns"
CALIBRATED = [name for name in names() if load_machine(name).bands is not None]
NODES = [name for name in CALIBRATED if load_machine(name).topology == "nodes"]
LARGE = 1 << 28


def _us(name: str, collective: str, nbytes: int, **overrides: object) -> float:
    return ahbm.run(collective, topology=name, bytes_per_rank=nbytes, data=False, overrides=overrides).latency_ns / 1000


def _value(name: str, key: str, factor: float) -> float:
    return float(dict(load_machine(name).parameters)[key].removesuffix("GB/s")) * factor


@pytest.mark.parametrize("name", CALIBRATED)
def test_bandwidth_is_twice_or_half_in_one_sense(name: str) -> None:
    """Twice and half of all wires: what bytes take of a large call halves and doubles, as far as it is the wires'."""
    keys = [key for key in (LINK, NIC) if key in dict(load_machine(name).parameters)]

    def us(factor: float) -> float:
        return _us(name, "all_reduce", LARGE, **{key: _value(name, key, factor) for key in keys})

    half, one, two = us(0.5), us(1), us(2)
    assert one == _us(name, "all_reduce", LARGE)
    assert two < one < half
    # 1 / b + 1 / wire' - 1 / wire: half of the wires adds twice what their double saves, or less by another protocol.
    assert 1.6 < (half - one) / (one - two) < 2.1


@pytest.mark.parametrize("name", [name for name in CALIBRATED if name not in NODES])
def test_wider_links_are_what_binds_in_a_node(name: str) -> None:
    one, two = _us(name, "all_reduce", LARGE), _us(name, "all_reduce", LARGE, **{LINK: _value(name, LINK, 2)})
    assert two < 0.85 * one


@pytest.mark.parametrize("name", NODES)
def test_one_wire_that_changes_little_says_what_binds(name: str) -> None:
    for key, other in ((LINK, NIC), (NIC, LINK)):
        overrides = {key: _value(name, key, 2)}
        found = ahbm.run("all_reduce", topology=name, bytes_per_rank=LARGE, data=False, overrides=overrides)
        if found.latency_ns / 1000 > 0.95 * _us(name, "all_reduce", LARGE):
            assert any(key in note and other in note and "bind" in note for note in found.notes), found.notes


def _job(tmp_path: Path, ranks: int) -> str:
    attr = [{"name": "comm_type", "int64Val": 0}, {"name": "comm_size", "int64Val": LARGE}]
    node = {"id": 0, "name": "grad", "type": "COMM_COLL_NODE", "attr": attr}
    for rank in range(ranks):
        lines = ({"version": "0.0.4"}, node)
        (tmp_path / f"step.{rank}.json").write_text("\n".join(json.dumps(each) for each in lines), "utf-8")
    return str(tmp_path / "step.0.json")


@pytest.mark.parametrize("name", ["p5", "azure_nd_a100", "mi300x", "h100_2_nodes"])
def test_jobs_explanations_and_runs_agree(name: str, tmp_path: Path) -> None:
    keys = [key for key in (LINK, NIC) if key in dict(load_machine(name).parameters)]
    for factor in ("2x", "0.5x"):
        values = {key: _value(name, key, float(factor[:-1])) for key in keys}
        alone = _us(name, "all_reduce", LARGE, **values) * 1000
        why = ahbm.open("all_reduce", topology=name, bytes_per_rank=LARGE).explain()
        assert why.what_if(dict.fromkeys(keys, factor)).latency_ps == pytest.approx(1000 * alone, rel=1e-9)
        job = ahbm.open(_job(tmp_path, load_machine(name).sips), topology=name, kind="job")
        changed = job.what_if(dict.fromkeys(keys, factor)).points[1].report
        assert changed is not None
        assert changed.latency_ns == pytest.approx(alone, rel=1e-6)


@pytest.mark.parametrize("name", CALIBRATED)
def test_a_factor_of_a_latency_is_one_of_the_steps(name: str) -> None:
    why = ahbm.open("all_reduce", topology=name, bytes_per_rank=4096).explain()
    one = why.what_if({LINK: "1x"}).latency_ps
    for key in (LINK_NS, NIC_NS) if name in NODES else (LINK_NS,):
        half, two = (why.what_if({key: factor}).latency_ps for factor in ("0.5x", "2x"))
        assert half < one < two, key
        # The longest of several chains of steps: more of them wait, never fewer.
        assert (two - one) / (one - half) > 1.98


def test_a_latency_beside_the_fitted_one_is_told() -> None:
    found = ahbm.run("all_reduce", topology="p5", bytes_per_rank=4096, data=False, overrides={LINK_NS: 250})
    assert any(note.startswith(f"{LINK_NS}=250 comes on top of the steps") for note in found.notes)


def test_a_file_with_other_links_follows_them_too(tmp_path: Path) -> None:
    """An architect who copies the file and writes other links into it."""
    from ahbm.base import packaged

    text = (packaged.TOPOLOGIES / "p5.yaml").read_text("utf-8")
    gbs = _value("p5", LINK, 1)
    wider = text.replace(f"bandwidth_gbs: {gbs}}}", f"bandwidth_gbs: {2 * gbs}}}")
    assert wider != text
    (tmp_path / "wider.yaml").write_text(wider, "utf-8")
    expected = _us("p5", "all_reduce", LARGE, **{LINK: _value("p5", LINK, 2)})
    assert _us(str(tmp_path / "wider.yaml"), "all_reduce", LARGE) == pytest.approx(expected, rel=1e-9)
