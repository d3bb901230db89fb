"""What a job's page and explanation advise: simulated on the job, never more than it touches, the best first."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ahbm
from ahbm.cli import app
from ahbm.job.replay import JobReport
from ahbm.job.transformer import Transformer
from ahbm.runs.advice import MOST, SIMULATED, best_of
from ahbm.views import jobs, step

SMALL: dict[str, Any] = {"layers": 1, "hidden": 256, "heads": 4, "sequence": 128, "vocabulary": 4096}


def written(folder: Path, **how: Any) -> str:
    Transformer(**{**SMALL, **how}).workload().write(folder / "step")
    return str(folder / "step")


def replayed(target: str, topology: str) -> JobReport:
    report = ahbm.open(target, topology=topology).run()
    assert isinstance(report, JobReport)
    return report


@pytest.mark.slow
@pytest.mark.parametrize(
    ("topology", "cut"),
    [
        ("npu_ring_8", {"tp": 2, "dp": 4}),
        ("dgx_h100", {"layers": 2, "tp": 2, "pp": 2, "dp": 2, "micro_batches": 2}),
        ("npu_switch_8", {"dp": 8}),
    ],
)
def test_advice_on_a_job_is_simulated_and_within_what_it_touches(
    topology: str, cut: dict[str, int], here: Path
) -> None:
    report = replayed(written(here, **cut), topology)
    why = report.explain()
    found = best_of(why.advice)
    gains = [entry.gain_ps for entry in found]
    assert 0 < len(found) <= MOST and gains == sorted(gains, reverse=True)
    exposed = max(rank.exposed_ns for rank in report.ranks) * 1000
    # Stages that wait for each other compute one after the other.
    computed = sum(each.end_ns - each.start_ns for each in report.path if each.what == "compute") * 1000
    for entry in found:
        assert entry.way == SIMULATED
        assert entry.gain_ps <= (computed / 2 if entry.what.startswith("computations") else exposed) + 1
    headline = jobs.page(report).headline
    assert headline[-1].startswith(f"Try {found[0].what}: -")
    assert not any("up to" in sentence or "of all calls together" in sentence for sentence in headline)


@pytest.mark.slow
def test_the_command_of_each_advice_shows_its_time(here: Path) -> None:
    report = replayed(written(here, tp=2, dp=4), "npu_ring_8")
    entries = [entry for entry in best_of(report.explain().advice) if entry.command]
    kinds = set()
    for entry in entries:
        program, *arguments = shlex.split(entry.command)
        done = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
        assert program == "ahbm" and done.exit_code == 0, done.output
        data = json.loads(done.stdout)
        assert round(1000 * data.get("best_latency_ns", data["latency_ns"])) == entry.latency_ps, entry.command
        kinds.add("best" if entry.algorithm else "machine" if "--set" in arguments else "compute")
    assert kinds >= {"best", "compute"}


def test_uneven_stages_are_told(here: Path) -> None:
    """The last stage has the head too."""
    report = replayed(written(here, layers=2, pp=2, vocabulary=32768), "npu_ring_8")
    times = [rank.compute_ns for rank in report.ranks]
    assert max(times) > 1.05 * sum(times) / len(times)
    sentence = next(text for text in jobs.page(report).headline if text.startswith("Computing is not balanced"))
    assert f"rank {times.index(max(times))} computes for" in sentence
    assert "computations named 'head' in half their time" in best_of(report.explain().advice)[0].what


@pytest.mark.slow
def test_a_large_job_is_not_tried_unless_it_is_asked_for(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ahbm.job.advice.SEARCHED", 10)
    report = replayed(written(here, tp=2), "npu_ring_8")
    named = [entry.what for entry in report.explain().advice]
    assert not any(what.startswith("computations") for what in named)
    assert any(entry.what.startswith("computations") for entry in report.explain().advise(None))


@pytest.mark.slow
def test_a_page_of_a_step_has_one_time_of_a_step(here: Path) -> None:
    target = written(here, tp=2)
    report = replayed(target, "npu_ring_8")
    one = report.latency_ns / 3
    answer = {
        "steps": 3,
        "step_ns": one,
        "lines": [],
        "memory_peak_bytes": [],
        "best": None,
        "changes": [{"what": "twice the bandwidth of the memory", "step_ns": 0.7 * one}],
    }
    facts = step.Facts(target, answer, f"a step takes {one / 1000:,.2f} us", 1, topology="npu_ring_8")
    page = step.page(facts)
    assert page.headline[0] == facts.text and not any("step takes" in text for text in page.headline[1:])
    assert page.headline[1].startswith("Try twice the bandwidth of the memory: -30.0 %")
    assert page.headline[2] == "The sections from Ranks on show the recording, which is 3 steps."
    keys = [section.key for section in page.sections]
    assert len(keys) == len(set(keys)) and "help" in keys
