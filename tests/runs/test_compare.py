"""Comparing runs and gating on a baseline."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ahbm
from ahbm.cli import app
from ahbm.errors import ConfigError, RegressionError
from ahbm.runs.compare import compare, compare_steps, gate, load
from ahbm.runs.report import Report
from support.commands import run


@pytest.fixture(scope="module")
def report() -> Report:
    return ahbm.run("all_gather", topology="npu_ring_8", bytes_per_rank=1 << 12)


def test_verdicts(report: Report) -> None:
    ps = 0.001
    cases = {
        "same": report,
        "slower": replace(report, latency_ns=report.latency_ns + ps),
        "faster": replace(report, latency_ns=report.latency_ns - ps),
        "changed": replace(report, timeline_hash="0" * 16),
        "wrong": replace(report, wrong=3),
    }
    for verdict, after in cases.items():
        (row,) = compare([report], [after])
        assert row.verdict == verdict
        assert verdict in str(row) and row.to_json()["verdict"] == verdict
        if verdict in ("slower", "wrong"):
            with pytest.raises(RegressionError) as caught:
                gate([row])
            assert row.name in str(caught.value)
        else:
            gate([row])


def test_a_wrong_result_of_then_is_told_and_is_no_regression(report: Report) -> None:
    wrong = replace(report, wrong=3)
    (row,) = compare([wrong], [replace(report, latency_ns=report.latency_ns * 2)])
    assert (row.verdict, row.wrong, row.to_json()["wrong"]) == ("wrong", "before", "before")
    assert str(row).endswith("(wrong: before)")
    gate([row])
    (both,) = compare([wrong], [wrong])
    assert both.wrong == "both"
    with pytest.raises(RegressionError):
        gate([both])


def test_new_gone_and_all_findings(report: Report) -> None:
    other = replace(report, bytes=1 << 20)
    rows = compare([report, other], [replace(report, latency_ns=1e9, machine_hash="f" * 16)])
    assert [row.verdict for row in rows] == ["slower", "gone"]
    assert rows[0].cause == "machine"
    with pytest.raises(RegressionError) as caught:
        gate(rows)
    assert [finding.code for finding in caught.value.findings] == ["AHBM-R101", "AHBM-R103"]
    assert caught.value.exit_code == 14
    (old, new) = compare([report], [report, other])
    assert (old.verdict, new.verdict) == ("same", "new")
    gate([old, new])


def test_command_line(report: Report, tmp_path: Path) -> None:
    bench = ["bench", "all_gather", "-t", "npu_ring_8", "-b", "1K", "-e", "4K"]
    run = CliRunner().invoke
    printed = run(app, [*bench, "--json"])
    baseline = tmp_path / "baseline.json"
    baseline.write_text(printed.stdout)
    assert run(app, [*bench, "--gate", str(baseline)]).exit_code == 0
    slow = run(app, [*bench, "--gate", str(baseline), "--set", "system.sips.link.latency_ns=600"])
    assert isinstance(slow.exception, RegressionError)
    single = tmp_path / "single.json"
    single.write_text(json.dumps(report.to_json()))
    same = run(app, ["compare", str(single), str(single), "--gate", "--json"])
    assert same.exit_code == 0 and json.loads(same.stdout)[0]["verdict"] == "same"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        '{"results": [1]}',
        '{"results": [{"report": {}}]}',
        '{"critical_path_ps": {}, "steps": [1]}',
        "[" * 10_000,
    ],
)
def test_files_that_hold_no_reports(text: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert caught.value.code == "AHBM-C160" and str(path) in str(caught.value)
    with pytest.raises(ConfigError):
        load(tmp_path / "none.json")


def test_which_line_got_slower() -> None:
    at = dict(bytes_per_rank=1 << 12, overrides={})
    before = ahbm.run("all_gather", None, "npu_ring_8", **at).explain().to_json()
    slow = {"system.sips.link.bandwidth_gbs": 25, "system.sips.link.latency_ns": 600}
    after = ahbm.run("all_gather", None, "npu_ring_8", **(at | {"overrides": slow})).explain().to_json()
    rows = compare_steps(before, after)
    assert sum(row.after_ps - row.before_ps for row in rows) == after["latency_ps"] - before["latency_ps"] > 0
    for row in rows:
        assert sum(row.by_category.values()) == row.after_ps - row.before_ps
    assert {name for row in rows for name in row.by_category} == {"wire latency", "link serialisation"}
    assert all(row.by_category == {} for row in compare_steps(before, before))


def test_two_algorithms_or_machines_are_measured_and_compared(tmp_path: Path) -> None:
    small = ["compare", "all_reduce", "--sizes", "1K,64K", "--no-data", "--json"]

    def told(*more: str, code: int = 0) -> list[dict[str, object]]:
        found, out, err = run("ahbm", [*small, *more], tmp_path)
        assert found == code, out + err
        rows: list[dict[str, object]] = json.loads(out)
        return rows

    algorithms = told("-t", "npu_ring_8", "-a", "ring_allreduce", "-a", "tree_allreduce")
    assert [row["verdict"] for row in algorithms] == ["slower", "slower"]
    assert "by ring_allreduce -> tree_allreduce on npu_ring_8, 8 x 1024 B" in str(algorithms[0]["name"])
    ring = ahbm.run("all_reduce", "ring_allreduce", "npu_ring_8", bytes_per_rank=1024)
    assert algorithms[0]["before_ns"] == ring.latency_ns and algorithms[0]["differs"] == "program"
    machines = told("-t", "npu_ring_8", "-t", "npu_switch_8", "-a", "tree_allreduce")
    assert "on npu_ring_8 -> npu_switch_8" in str(machines[0]["name"]) and "machine" in str(machines[0]["differs"])
    assert all("->" in str(row["name"]) for row in told("--set", "pe.dispatch_ns=1,2"))
    failing = ["-a", "ring_allreduce", "-t", "npu_ring_8", "--set", "buffer_kind=hbm,tcm", "--sizes", "1K,64M"]
    code, out, err = run("ahbm", ["compare", "all_reduce", "--no-data", *failing], tmp_path)
    assert code == 6 and "# AHBM-L108" in out and "AHBM-L108" in err and "1024 B" in out
    for wrong in (["-a", "ring_allreduce"], [], ["-t", "npu_ring_8", "-t", "npu_switch_8", "--ranks", "2,4"]):
        code, _, err = run("ahbm", ["compare", "all_reduce", *wrong], tmp_path)
        assert code == 3 and "compares two" in err
    code, _, err = run("ahbm", ["compare", "a.json", "b.json", "-t", "npu_ring_8"], tmp_path)
    assert code == 3 and "without -t" in err
