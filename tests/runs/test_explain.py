"""Why a run takes as long as it does: every breakdown sums to the latency, for every algorithm and model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ahbm
from ahbm import Explanation
from ahbm.cli import app
from ahbm.errors import ConfigError, DataError
from ahbm.runs.measure import Arguments, prepare
from support.scripts import EXCHANGE, exchange

CASES = [
    ("all_reduce", None),
    ("all_reduce", "lrab_hierarchical_allreduce"),
    ("all_gather", None),
    ("reduce_scatter", None),
    ("broadcast", None),
    ("all_to_all", None),
    ("barrier", None),
]


@pytest.mark.parametrize("model", ["cut_through", "flit", "analytic"])
@pytest.mark.parametrize(("collective", "algorithm"), CASES)
def test_every_breakdown_is_the_latency(collective: str, algorithm: str | None, model: str) -> None:
    overrides = {"system.sips.count": 4, "system.network_model": model}
    size: Arguments = {} if collective == "barrier" else {"bytes_per_rank": 4096}
    report = ahbm.run(collective, algorithm, "ring_1d", overrides=overrides, data=False, **size)
    why = report.explain()
    assert why.latency_ps == round(report.latency_ns * 1000) > 0
    assert why.timeline_hash == report.timeline_hash
    assert sum(why.by_category.values()) == why.latency_ps
    assert sum(step.ps for step in why.steps) == why.latency_ps
    assert all(sum(step.by_category.values()) == step.ps for step in why.steps)
    at = 0
    for stretch in why.stretches():
        assert stretch.start_ps == at < stretch.end_ps
        at = stretch.end_ps
    assert at == why.latency_ps
    on_links = sum(s.end_ps - s.start_ps for s in why.stretches() if s.link)
    assert on_links == sum(link.path_ps for link in why.links)
    assert all(".py:" in step.origin for step in why.steps)


def test_all_iterations_of_a_line_are_one_step(tmp_path: Path) -> None:
    why = ahbm.open(exchange(tmp_path), args=["--ranks", "4"], bytes_per_rank=4096).explain()
    lines = [step.origin for step in why.steps]
    assert len(set(lines)) == len(lines) < len(EXCHANGE.splitlines())
    assert not any("(" in line for line in lines)
    assert any("(a=0, b=1)" in stretch.origin for stretch in why.stretches())
    assert sum(step.ps for step in why.steps) == why.latency_ps


def test_the_command_prints_what_the_function_finds() -> None:
    arguments = ["explain", "all_reduce", "--bytes", "4K", "-t", "ring_1d"]
    text = CliRunner().invoke(app, arguments)
    assert text.exit_code == 0
    assert "link serialisation" in text.output and "by line of the algorithm" in text.output
    found = json.loads(CliRunner().invoke(app, [*arguments, "--json", "--full"]).output)
    why = ahbm.run("all_reduce", None, "ring_1d", bytes_per_rank=4096).explain()
    assert found == why.to_json(full=True)


def test_what_cannot_be_explained() -> None:
    with pytest.raises(ConfigError, match="AHBM-C148"):
        ahbm.run("all_reduce", bytes_per_rank=0).explain()
    outcome = prepare("all_reduce", None, "ring_1d", bytes_per_rank=64).compiled()
    timeline = outcome.timeline(record=False)
    assert outcome.program is not None and timeline is not None
    with pytest.raises(DataError, match="AHBM-V123"):
        Explanation(outcome.program, timeline)
