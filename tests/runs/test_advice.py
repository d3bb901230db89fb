"""What would help: changes that are simulated again, and bounds."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ahbm
from ahbm.cli import app
from ahbm.errors import ConfigError, TopologyError
from ahbm.runs.advice import LEVERS, MOST, SHARE, SIMULATED, best_of, link_class, resolved
from ahbm.runs.explanation import Explanation
from ahbm.runs.measure import Arguments
from support.scripts import exchange

BANDWIDTH, LATENCY = "system.sips.link.bandwidth_gbs", "system.sips.link.latency_ns"
RING: Arguments = {"bytes_per_rank": "1M"}


def explained(topology: str = "npu_ring_8", algorithm: str = "ring_allreduce", **arguments: object) -> Explanation:
    return ahbm.run("all_reduce", algorithm, topology, data=False, **{**RING, **arguments}).explain()  # type: ignore[typeddict-item]


@pytest.mark.parametrize("topology", ["npu_ring_8", "npu_torus_4x4", "ring_1d"])
@pytest.mark.parametrize(
    ("key", "value"),
    [(BANDWIDTH, "2x"), (BANDWIDTH, "\u00d70.5"), (LATENCY, "0x"), (LATENCY, 12.5), ("pe.dispatch_ns", 7)],
)
def test_a_change_gives_what_a_run_on_the_changed_machine_gives(topology: str, key: str, value: object) -> None:
    why = explained(topology)
    advice = why.what_if({key: value})
    other = ahbm.run("all_reduce", "ring_allreduce", topology, data=False, overrides=advice.changes, **RING)
    assert advice.latency_ps == round(1000 * other.latency_ns) == why.latency_ps - advice.gain_ps
    assert advice.way == SIMULATED


def test_a_ring_bound_by_bandwidth_gains_its_time_on_links() -> None:
    # 2 (n - 1) messages of a chunk each, one after the other, over one link.
    why = explained()
    chunk = 2 * 7 * (1 << 20) // 8
    gbs = 1000 * chunk / sum(link.path_ps for link in why.links)
    assert gbs == pytest.approx(50)
    assert why.what_if({BANDWIDTH: "2x"}).gain_ps == 1000 * chunk / 50 / 2
    best = next(entry for entry in why.advice if not entry.algorithm)
    assert best.what == "twice the bandwidth of all links between SIPs"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "told", "least"),
    [
        # Fitted with a link that has as much as its protocol, which follows it.
        ("p5_2_nodes", "bytes at the bandwidth of protocol simple, 362 GB/s, on 36 links between SIPs", 0.4),
        ("azure_nd_h100", "bytes at the bandwidth of protocol simple, 456 GB/s, on 16 links between SIPs", 0.4),
        # Fitted with interfaces that carry more than the protocol.
        ("polaris_n_nodes", "bytes at the bandwidth of protocol ring, 35.8 GB/s, on sip31->node7.out", 0.3),
    ],
)
def test_a_protocol_that_limits_is_named_and_varied(machine: str, told: str, least: float) -> None:
    why = ahbm.run("all_reduce", None, machine, data=False, bytes_per_rank="256M").explain()
    assert told in why.text()
    gains = {entry.what: entry.gain_ps / why.latency_ps for entry in why.advice}
    name = "ring" if "ring" in told else "simple"
    assert gains["twice the bandwidth of all links between SIPs"] > least
    assert gains[f"twice the bandwidth of protocol {name} and of all links between SIPs"] > 0.4


def test_a_protocol_that_does_not_limit_is_not_named() -> None:
    why = explained("npu_ring_8", overrides={"protocols.own.max_gbs": 60, "protocol": "own"})
    assert "protocol own" not in why.text()
    # From 50 to 60 GB/s.
    gain = next(entry for entry in why.advice if entry.what == "twice the bandwidth of all links between SIPs").gain_ps
    assert gain == pytest.approx(sum(link.path_ps for link in why.links) / 6, rel=1e-3)


def test_all_links_are_those_between_nodes_too() -> None:
    given: Arguments = {
        "bytes_per_rank": "1M",
        "overrides": {"system.sips.topology": "nodes", "system.sips.nodes.size": 4},
    }
    why = ahbm.run("all_reduce", "ring_allreduce", "npu_ring_8", data=False, **given).explain()
    best = next(entry for entry in why.advice if entry.what == "twice the bandwidth of all links between SIPs")
    assert {BANDWIDTH, "system.sips.nodes.nic_gbs"} <= set(best.changes)


def test_a_broadcast_bound_by_latency_gains_nothing_from_bandwidth() -> None:
    why = ahbm.run("broadcast", None, "npu_ring_8", data=False, bytes_per_rank=64).explain()
    assert 0 <= why.what_if({BANDWIDTH: "2x"}).gain_ps < 0.003 * why.latency_ps
    best = why.advice[0]
    assert best.changes == {LATENCY: "0"} and best.gain_ps > 0.99 * why.latency_ps


@pytest.mark.parametrize("model", ["cut_through", "flit"])
@pytest.mark.parametrize("place", [0, 3])
def test_a_slow_link_is_named_first(place: int, model: str) -> None:
    slow = {"from": place, "to": place + 1, "slowdown": 8, "bidirectional": False}
    why = explained(overrides={"faults.links": [slow], "system.network_model": model})
    name = f"sip{place}->sip{place + 1}"
    answer = why.to_json()["summary"]
    assert f"of the critical path is bytes on {name}," in answer[1] and "ring_allreduce.py:" in answer[1]
    assert "a machine without faults" in answer[2]
    gains = {entry.what: entry.gain_ps for entry in why.advice}
    alone = gains[f"twice the bandwidth of {name} alone"]
    assert alone == max(gain for what, gain in gains.items() if what.endswith("alone")) > 0.4 * why.latency_ps
    assert (
        gains["a machine without faults"]
        == why.latency_ps - explained(overrides={"system.network_model": model}).latency_ps
    )


def test_links_of_a_custom_network_with_their_own_bandwidth_are_all_quicker() -> None:
    edges = [{"from": 0, "to": 1, "bandwidth_gbs": 8}, {"from": 1, "to": 2}, {"from": 2, "to": 0, "latency_ns": 500}]
    overrides = {"system.sips.count": 3, "system.sips.topology": "custom", "system.sips.edges": edges}
    why = ahbm.run("all_gather", None, "ring_1d", data=False, overrides=overrides, bytes_per_rank="1M").explain()
    quicker = next(entry for entry in why.advice if entry.what.endswith("all links between SIPs"))
    assert quicker.changes == {BANDWIDTH: "256", "system.sips.edges.0.bandwidth_gbs": "16"}
    assert quicker.gain_ps > 0.4 * why.latency_ps


def test_every_gain_is_within_its_bound_where_nothing_is_shared() -> None:
    why = explained()
    exact = {entry.what: entry.gain_ps for entry in why.advice if entry.way == SIMULATED and not entry.algorithm}
    bounds = {entry.what: entry.gain_ps for entry in why.advise(0) if entry.what in exact}
    assert set(bounds) == set(exact) and all(entry.way == SHARE for entry in why.advise(0))
    assert all(gain <= bounds[what] for what, gain in exact.items())


def test_the_budget_decides_how_many_are_simulated_and_time_does_not() -> None:
    why = explained()
    cost = why._timeline.events + why._program.ops
    for runs in (0, 1, 3):
        found = why.advise(runs * cost)
        assert sum(entry.way == SIMULATED and not entry.algorithm for entry in found) == runs
    assert not any(entry.algorithm for entry in why.advise(0))
    assert "No change was simulated" in why.text(why.advise(0))
    assert why.text() == explained().text() == str(why)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"system.sips.count": 4}, "AHBM-C146"),
        ({"system.sips.topology": "npu"}, "AHBM-T006"),
        ({"ipcq.credit.blocks_receiver": "2x"}, "AHBM-C146"),
        ({"system.sips.link.bandwith_gbs": "2x"}, "AHBM-C107.*bandwidth_gbs"),
        ({"system.sips.link.bandwith_gbs": 1}, "AHBM-T003"),
        ({"ipcq.tiers.more.bandwidth_gbs": 1}, "AHBM-C146"),
        ({BANDWIDTH: "-2"}, "AHBM-T005"),
        (3, "AHBM-C129"),
    ],
)
def test_changes_that_the_program_cannot_run_on(changes: object, code: str) -> None:
    with pytest.raises((ConfigError, TopologyError), match=f"(?s){code}"):
        explained().what_if(changes)  # type: ignore[arg-type]


def test_a_line_at_no_cost_is_simulated(tmp_path: Path) -> None:
    """Of a kernel whose rank 0 computes twice and whose other ranks compute once."""
    module = tmp_path / "two.py"
    module.write_text(
        "def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4):\n    return (n_elem,)\n\n\n"
        "def kernel(t_ptr, n_elem, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, *, tl):\n"
        "    x = tl.load(t_ptr, shape=(n_elem,), dtype='f16')\n"
        "    if sip_rank == 0:\n"
        "        y = x + x\n"
        "        y = y + x\n"
        "    else:\n"
        "        y = x * x\n"
        "    tl.store(t_ptr, y)\n"
    )
    why = explained("ring_1d", algorithm=str(module), bytes_per_rank=4096)
    lines = {entry.line: entry for entry in why.advice if entry.line}
    parts = {step.place: step.ps for step in why.steps}
    first, second = lines["two.py:8"], lines["two.py:9"]
    assert first.way == second.way == SIMULATED and first.latency_ps == why.latency_ps - first.gain_ps
    # Both take one pass over the elements; without one of them all ranks end together.
    assert first.gain_ps == second.gain_ps == parts["two.py:8"] == parts["two.py:9"] > 0
    assert "two.py:11" not in lines, "not on the path"
    assert "what a line would give if it cost nothing:" in why.text()
    assert "two.py:8 at no cost (simulated again)" in why.text()
    assert not any(entry.line for entry in why.advise(0) if entry.way == SIMULATED)


@pytest.mark.parametrize("topology", ["npu_ring_8", "npu_torus_4x4", "ring_1d"])
def test_a_line_cannot_give_more_than_its_time_on_the_path(topology: str) -> None:
    why = explained(topology)
    parts = {step.place: step.ps for step in why.steps}
    lines = [entry for entry in why.advice if entry.line]
    assert lines and all(entry.gain_ps <= parts[entry.line] for entry in lines)


def test_a_run_that_takes_no_time_has_no_lines(tmp_path: Path) -> None:
    module = tmp_path / "nothing.py"
    module.write_text(
        "def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4):\n    return (n_elem,)\n\n\n"
        "def kernel(t_ptr, n_elem, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, *, tl):\n"
        "    tl.load(t_ptr, shape=(n_elem,), dtype='f16')\n"
    )
    why = explained(algorithm=str(module), bytes_per_rank=4096)
    assert (why.latency_ps, why.steps, why.advice) == (0, [], [])
    assert "takes no time" in why.text()


def test_a_link_without_latency() -> None:
    """Twice around a ring of 8, the path comes to the last of its links twice at most."""
    why = explained()
    alone = [entry for entry in why.advice if entry.what.startswith("no latency of sip")]
    assert len(alone) == 3 and {entry.gain_ps for entry in alone} <= {500_000, 1_000_000}
    assert {entry.way for entry in alone} == {SIMULATED}


def test_all_that_can_be_explained_has_advice(tmp_path: Path) -> None:
    why = ahbm.open(exchange(tmp_path), args=["--ranks", "4"], bytes_per_rank=4096).explain()
    assert why.advice and why.advice[0].way == SIMULATED
    parts = (why.by_category.values(), [s.ps for s in why.steps], [k.ps for k in why.kinds], [r.ps for r in why.ranks])
    assert {sum(part) for part in parts} == {why.latency_ps}


def test_equal_steps_of_a_plan_are_one_kind(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "ring.xml"
    path.parent.mkdir()
    ahbm.synthesize("all_reduce", topology="npu_ring_8", size=1 << 20).save(path)
    why = ahbm.open(path, bytes_per_rank=1 << 20).explain()
    text = why.text()
    assert len(why.steps) > len(why.kinds) and sum(kind.lines for kind in why.kinds) == len(why.steps)
    assert sum(kind.ps for kind in why.kinds) == why.latency_ps
    assert any(kind.kind.startswith("recv") and kind.kind.endswith(" on ch0") for kind in why.kinds)
    by_line = text.split("by line of the algorithm:\n")[1].split("by link:")[0].splitlines()
    assert len(by_line) == 11 and by_line[-1].endswith("more")
    assert "folder" not in text.split("what would help:")[0] and "ring.xml:" in text


def test_the_command_takes_changes() -> None:
    arguments = ["explain", "all_reduce", "-a", "ring_allreduce", "-t", "npu_ring_8", "--size", "1M", "--json"]

    def advice(*more: str) -> list[dict[str, object]]:
        outcome = CliRunner().invoke(app, [*arguments, *more])
        assert outcome.exit_code == 0, outcome.output
        found: list[dict[str, object]] = json.loads(outcome.output)["advice"]
        return found

    asked = advice("--what-if", f"{BANDWIDTH}=2x", "--what-if", "none")
    assert [entry["way"] for entry in asked[:2]] == [SIMULATED, SHARE]
    assert asked[0]["changes"] == {BANDWIDTH: "100"}
    assert asked[0]["gain_ps"] in [entry["gain_ps"] for entry in advice() if entry["changes"] == asked[0]["changes"]]
    assert advice("--what-if", "all") == advice()
    with pytest.raises(ConfigError, match="AHBM-C142"):
        CliRunner().invoke(app, [*arguments, "--what-if", "everything"], catch_exceptions=False)


def test_what_is_told_was_simulated_and_the_best_comes_first() -> None:
    why = explained(bytes_per_rank="64K")
    told = best_of(why.advice)
    gains = [entry.gain_ps for entry in told]
    assert 0 < len(told) <= MOST and gains == sorted(gains, reverse=True) and gains[-1] > 0
    assert all(entry.way == SIMULATED and entry.gain_ps <= why.latency_ps for entry in told)
    text = why.text().split("what would help:\n")[1].split("what a line")[0].splitlines()
    assert len(text) == 2 * len(told) and all("at most" not in line for line in text)


def test_other_algorithms_are_among_the_advice() -> None:
    """The author of a ring is told what is quicker, and by how much."""
    why = explained(bytes_per_rank="64K")
    other = next(entry for entry in why.advice if entry.algorithm == "bidirectional_ring_allreduce")
    alone = ahbm.run("all_reduce", other.algorithm, "npu_ring_8", data=False, bytes_per_rank="64K")
    assert other.latency_ps == round(1000 * alone.latency_ns) == why.latency_ps - other.gain_ps
    assert other in best_of(why.advice) and other.what in why.text()
    quickest = explained(algorithm=other.algorithm, bytes_per_rank="64K")
    assert not any(entry.algorithm for entry in quickest.advice)


@pytest.mark.parametrize("topology", ["npu_ring_8", "p5", "ring_1d"])
def test_the_command_of_each_advice_shows_its_time(topology: str) -> None:
    algorithm = "nccl_ring_allreduce" if topology == "p5" else "ring_allreduce"
    why = explained(topology, algorithm, dtype="f32", op="max", bytes_per_rank="16M")
    told = [entry for entry in best_of(why.advice) if entry.changes or entry.algorithm]
    assert told
    for entry in told:
        program, *arguments = shlex.split(entry.command)
        done = CliRunner().invoke(app, [*arguments, "--no-data", "--json"], catch_exceptions=False)
        assert program == "ahbm" and done.exit_code == 0, done.output
        assert round(1000 * json.loads(done.stdout)["latency_ns"]) == entry.latency_ps, entry.command


def test_a_wrong_algorithm_is_no_advice(tmp_path: Path) -> None:
    module = tmp_path / "nothing.py"
    module.write_text(
        "def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4):\n    return (n_elem,)\n\n\n"
        "def kernel(t_ptr, n_elem, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, *, tl):\n"
        "    tl.store(t_ptr, tl.load(t_ptr, shape=(n_elem,), dtype='f16') * 2)\n"
    )
    why = explained(overrides={"algorithms.nothing.module": str(module)})
    assert any(entry.algorithm for entry in why.advice)
    assert not any(entry.algorithm == "nothing" for entry in why.advice)


def test_values() -> None:
    assert resolved("2x", "134500ps") == "269"
    assert resolved("\u00d71.5", "50.0GB/s") == "75"
    assert resolved("2x", "infGB/s") == resolved("2x", str(2**64 - 1)) == ".inf"
    assert resolved(True, "false") == "true" and resolved("17", None) == "17"


def test_every_lever_moves_parameters_that_exist() -> None:
    kinds = "npu_ring_8", "npu_switch_8", "ring_1d"
    fabric = json.dumps({"size": 2, "nic_gbs": 50, "fabric": {"tiers": 2, "nodes_per_leaf": 2}})
    names = [("system.sips.topology", "nodes"), ("system.sips.nodes", fabric)]
    overrides = {"system.sips.switch.reduce_gbs": 50, "system.sips.switch.reduces": True}
    machines = [ahbm.run("barrier", None, name, data=False).explain()._program.machine for name in kinds]
    machines.append(machines[1].changed([(key, json.dumps(value)) for key, value in overrides.items()]))
    machines.append(machines[1].changed(names))
    for lever in LEVERS:
        assert any(lever.changes(dict(machine.parameters)) for machine in machines), lever.what


def test_links_of_every_class() -> None:
    names = ["sip0->switch", "sip0.cube3.ucie_E2", "sip0.cube3.io_in", "sip0.cube1.r0c0_E", "sip0.cube1.pe3.noc_out"]
    names += ["sip0.cube1.pe0.hbm_read", "sip0.cube1.sram_write", "switch.reducer"]
    inside = "inside cubes"
    assert [link_class(name) for name in names] == [
        *("between SIPs", "between cubes", "between cubes and I/O chiplets", inside, inside),
        *("of the HBM", "of the SRAM", "of the switch's reducer"),
    ]


CHANGES: list[tuple[str, dict[str, object]]] = [
    ("p5", {"protocols.simple.max_gbs": 444.34}),
    ("p5", {"protocols.simple.ramp_bytes": 0}),
    ("p5", {"protocols.simple.ramp_exponent": 1}),
    ("p5", {"protocols.simple.efficiency": 0.9, "system.sips.link.latency_ns": 100}),
    ("mi300x", {"launch.overhead_ns": 0, "protocols.simple.step_ns": 100}),
    ("polaris_n_nodes", {"protocols.ring.nic_gbs": 5, "system.sips.nodes.taper": 3}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("topology", "changes"), CHANGES)
def test_a_change_finds_the_protocol_with_the_bandwidth_of_the_size(topology: str, changes: dict[str, object]) -> None:
    size = 1 << 26 if topology.startswith("polaris") else 1 << 24
    found = ahbm.run("all_reduce", topology=topology, bytes_per_rank=size, data=False)
    why = found.explain()
    again = ahbm.run("all_reduce", topology=topology, bytes_per_rank=size, data=False, overrides=changes)
    assert again.notes[0].split(",")[0] == found.notes[0].split(",")[0], "the same protocol"
    assert why.what_if(changes).latency_ps == round(1000 * again.latency_ns) != why.latency_ps
    best = next(entry for entry in why.advice if entry.changes)
    again = ahbm.run("all_reduce", topology=topology, bytes_per_rank=size, data=False, overrides=dict(best.changes))
    assert best.latency_ps == round(1000 * again.latency_ns)


def test_a_change_of_the_protocol_itself_is_a_change() -> None:
    found = ahbm.run("all_reduce", topology="p5", bytes_per_rank=1 << 20, data=False)
    for changes in ({"protocol": "simple"}, {"protocol": "ll", "protocols.ll.max_gbs": "20"}):
        again = ahbm.run("all_reduce", topology="p5", bytes_per_rank=1 << 20, data=False, overrides=changes)
        assert found.explain().what_if(changes).latency_ps == round(1000 * again.latency_ns)
