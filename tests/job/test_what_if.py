"""A job under changes, in one process."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ahbm
from ahbm.cli import app
from ahbm.errors import ConfigError
from ahbm.job import what_if

BANDWIDTH = "system.sips.link.bandwidth_gbs"


def job(folder: Path, hidden: bool) -> str:
    """Two ranks reduce while they compute: for long, so that the communication is hidden, or not at all."""
    facts = [{"name": "comm_type", "int64Val": 0}, {"name": "comm_size", "int64Val": 1 << 20}]
    nodes: list[dict[str, Any]] = [
        {"id": 0, "name": "all_reduce", "type": "COMM_COLL_NODE", "attr": facts},
        {"id": 1, "name": "gemm", "type": "COMP_NODE", "durationMicros": 500 if hidden else 1},
        {"id": 2, "name": "after", "type": "COMP_NODE", "ctrlDeps": [0, 1], "durationMicros": 10},
    ]
    for rank in range(2):
        head = {"version": "0.0.4", "attr": [{"name": "world_size", "int32Val": 2}]}
        (folder / f"step.{rank}.json").write_text("\n".join(json.dumps(part) for part in (head, *nodes)))
    return str(folder / "step.0.json")


def test_every_point_is_what_a_run_of_its_own_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = job(tmp_path, hidden=False)
    reads = []
    monkeypatch.setattr(what_if, "read", lambda *asked: reads.append(asked) or read(*asked))
    opened = ahbm.open(name, topology="npu_ring_8")
    changes: list[dict[str, Any]] = [
        {BANDWIDTH: "2x"},
        {"factors": [("gemm", 400.0)]},
        {"algorithm": "tree_allreduce"},
        {"topology": "npu_switch_8", BANDWIDTH: 100},
    ]
    found = opened.what_if(*changes)
    assert len(reads) == 1
    alone = [
        opened.run(),
        ahbm.open(name, topology="npu_ring_8", overrides={BANDWIDTH: 100}).run(),
        ahbm.open(name, topology="npu_ring_8", factors=[("gemm", 400.0)]).run(),
        ahbm.open(name, topology="npu_ring_8", algorithm="tree_allreduce").run(),
        ahbm.open(name, topology="npu_switch_8", overrides={BANDWIDTH: 100}).run(),
    ]
    assert [point.report for point in found.points] == alone
    assert [point.changes for point in found.points][1:3] == [f"{BANDWIDTH}=2x", "factors=gemm=400.0"]


read = what_if.read


def test_where_communication_is_hidden_bandwidth_changes_nothing_and_the_path_says_why(tmp_path: Path) -> None:
    opened = ahbm.open(job(tmp_path, hidden=True), topology="npu_ring_8")
    shown = str(opened.what_if({BANDWIDTH: "2x"})).splitlines()
    assert "same" in shown[2] and shown[2].endswith("compute 100 %: no communication is on it")


def test_a_change_under_which_the_job_does_not_run_is_a_point(tmp_path: Path) -> None:
    opened = ahbm.open(job(tmp_path, hidden=False), topology="npu_ring_8")
    found = opened.what_if({"system.sips.count": 1}, {BANDWIDTH: "2x"})
    assert found.points[1].error is not None and found.points[1].error.code == "AHBM-C120"
    assert "AHBM-C120" in json.dumps(found.to_json()[1]) and found.points[2].report is not None
    with pytest.raises(ConfigError, match="there is no term 'algoritm'"):
        opened.what_if({"algoritm": "x"})
    with pytest.raises(ConfigError, match="all_reduce is no job"):
        ahbm.open("all_reduce").what_if()


def test_on_the_command_line(tmp_path: Path) -> None:
    name = job(tmp_path, hidden=False)
    asked = ["run", name, "-t", "npu_ring_8", "--set", f"{BANDWIDTH}=1x,2x", "--compute", "gemm=1,400"]
    shown = CliRunner().invoke(app, asked)
    assert shown.exit_code == 0, shown.output
    rows = shown.stdout.splitlines()
    assert len(rows) == 5 and f"{BANDWIDTH}=2x, gemm=400" in rows[4] and "npu_ring_8" not in rows[1]
    lines = [json.loads(line) for line in CliRunner().invoke(app, [*asked, "--json"]).stdout.splitlines()]
    single = ahbm.open(name, topology="npu_ring_8", overrides={BANDWIDTH: 100}).run()
    assert lines[2]["latency_ns"] == single.latency_ns
    failed = CliRunner().invoke(app, ["run", name, "-t", "npu_ring_8", "--set", "system.sips.count=1,2"])
    assert isinstance(failed.exception, ConfigError) and "AHBM-C120" in failed.stdout


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["p5", "b200_2_nodes"])
def test_changes_reach_calls_of_every_size_on_machines_of_several_protocols(machine: str, tmp_path: Path) -> None:
    """Each call finds its protocol with a bandwidth of its own: an explanation says what another replay takes."""
    ranks = 16 if machine.endswith("nodes") else 8
    nodes: list[dict[str, Any]] = []
    for number, size in enumerate([1 << 24, 1 << 12, 1 << 26]):
        facts = [{"name": "comm_type", "int64Val": 0}, {"name": "comm_size", "int64Val": size}]
        nodes.append({"id": number, "name": "all_reduce", "type": "COMM_COLL_NODE", "attr": facts, "ctrlDeps": []})
        nodes[-1]["ctrlDeps"] = [number - 1] if number else []
    head = {"version": "0.0.4", "attr": [{"name": "world_size", "int32Val": ranks}]}
    for rank in range(ranks):
        (tmp_path / f"step.{rank}.json").write_text("\n".join(json.dumps(part) for part in (head, *nodes)))
    opened = ahbm.open(str(tmp_path / "step.0.json"), topology=machine)
    explanation = opened.explain()
    found = [advice for advice in explanation.advise(None) if "protocol simple and of all links" in advice.what]
    assert len(found) == 1 and found[0].gain_ps > 0
    for changes in ({"system.sips.link.latency_ns": 1000}, {"protocols.simple.max_gbs": "0.8x"}):
        (_, point) = opened.what_if(changes).points
        assert point.report is not None
        assert explanation.what_if(changes).latency_ps == round(1000 * point.report.latency_ns)
    assert any("protocol" in explanation.bandwidth_on(link.name) for link in explanation.links)
