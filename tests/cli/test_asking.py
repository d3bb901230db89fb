"""One way to say what is run: every command takes the same options, every report can be asked further."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ahbm
from ahbm.cli import app
from ahbm.errors import BudgetError, ConfigError
from ahbm.runs import plans
from ahbm.runs.report import Report
from support.plans import FOUR, TOPOLOGY, ring

MACHINE = ["-t", TOPOLOGY, *(part for key, value in FOUR.items() for part in ("--set", f"{key}={value}"))]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ring.xml"
    path.write_text(ring(4))
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "options", "key", "value"),
    [
        ("run", [], "wrong", 0),
        ("explain", [], "program", "t"),
        ("numerics", ["-d", "f32", "--seeds", "1"], "ranks_agree", True),
        ("explore", ["--seeds", "1"], "failures", []),
    ],
)
def test_commands_take_plans_with_the_same_options(
    file: Path, command: str, options: list[str], key: str, value: object
) -> None:
    arguments = [command, str(file), "--size", "4K", *MACHINE, *options, "--json"]
    found = json.loads(CliRunner().invoke(app, [*arguments, "--slots", "inf", "--quirks"]).output)
    assert found[key] == value or str(found[key]).startswith(str(value))
    assert isinstance(CliRunner().invoke(app, [*arguments, "--limit", "ops=1"]).exception, BudgetError)
    for wrong in (["--limit", "x=1"], ["-a", "ring_allreduce"], ["--root", "1"], ["--slots", "0"]):
        assert isinstance(CliRunner().invoke(app, [*arguments, *wrong]).exception, ConfigError), wrong


def test_a_report_answers_further_questions(file: Path, tmp_path: Path) -> None:
    report = plans.run(file, TOPOLOGY, bytes_per_rank=4096, overrides=FOUR)
    why = report.explain()
    assert (why.latency_ps, why.timeline_hash) == (round(report.latency_ns * 1000), report.timeline_hash)
    assert report.write_timeline(tmp_path / "a.pftrace") > 0
    assert len(report.write_trace(tmp_path / "a")) == 4
    assert report.numerics(seeds=1).ranks_agree
    read = Report.from_json(report.to_json())
    assert read == report and read.spec is None
    for ask in (read.explain, read.numerics, ahbm.run("all_reduce", bytes_per_rank=0).explain):
        with pytest.raises(ConfigError, match="AHBM-C148"):
            ask()
