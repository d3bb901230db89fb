"""`ahbm.open`: opens collectives, plans, jobs, reports and specs."""

from __future__ import annotations

from pathlib import Path

import pytest

import ahbm
from ahbm.errors import ConfigError
from ahbm.job.targets import Again, Collective
from ahbm.runs.report import Report
from ahbm.runs.timed import TimeReport
from support.plans import FOUR, TOPOLOGY, ring


def test_a_collective_is_measured() -> None:
    opened = ahbm.open("all_reduce", topology=TOPOLOGY, overrides=FOUR, bytes_per_rank=4096, algorithm="ring_allreduce")
    report = opened.run(check="all")
    assert isinstance(report, Report) and report.wrong == 0
    assert report == ahbm.run(
        "all_reduce", "ring_allreduce", TOPOLOGY, overrides=FOUR, bytes_per_rank=4096, check="all"
    )
    assert opened.explain().latency_ps == report.latency_ns * 1000


def test_a_plan_is_measured_and_a_plan_of_unknown_meaning_timed(tmp_path: Path) -> None:
    path = tmp_path / "ring.xml"
    path.write_text(ring(4), encoding="utf-8")
    report = ahbm.open(path, topology=TOPOLOGY, overrides=FOUR, bytes_per_rank=4096).run()
    assert isinstance(report, Report) and report.wrong == 0 and report.algorithm == "ring"
    path.write_text(ring(4).replace("allreduce", "mystery"), encoding="utf-8")
    timed = ahbm.open(path, topology=TOPOLOGY, overrides=FOUR, bytes_per_rank=4096).run()
    assert isinstance(timed, TimeReport) and timed.latency_ns == report.latency_ns


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="AHBM-C144"):
        ahbm.open("allreduce")
    with pytest.raises(ConfigError, match="no term 'nbytes'"):
        ahbm.open("all_reduce", nbytes=4)
    report = ahbm.run(bytes_per_rank=64)
    with pytest.raises(ConfigError, match="AHBM-C146"):
        ahbm.open(report, topology=TOPOLOGY)
    with pytest.raises(ConfigError, match="AHBM-C148"):
        ahbm.open(Report.from_json(report.to_json()))
    with pytest.raises(ConfigError, match="is no plan and no job: it takes no --slots"):
        ahbm.open("all_reduce", slots=2).run()


def test_what_a_target_does_not_have_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "ring.xml"
    path.write_text(ring(4), encoding="utf-8")
    for target, options, told in (
        (path, {"root": 1, "algorithm": "ring_allreduce"}, "is a plan: it takes no --root, --algorithm"),
        (path, {"lanes": "device"}, "is a plan: it takes no --lanes"),
        (path, {"step": 3}, "--as job makes it a job"),
        (path, {"kind": "job"}, "is no trace, so it is no job"),
        ("all_reduce", {"bytes_per_rank": 64, "slots": 2, "args": ["x"]}, "it takes no --slots, --args"),
    ):
        with pytest.raises(ConfigError) as caught:
            ahbm.open(target, **options)
        assert caught.value.code == "AHBM-C146" and told in str(caught.value)
    # What says nothing is given to everything.
    ahbm.open(path, root=0, algorithm=None, overrides={}, factors=(), fold=True, device=False)


def test_options_are_those_of_the_target() -> None:
    opened = ahbm.open("all_reduce", bytes_per_rank=64, device=True)
    assert isinstance(opened, Collective) and (opened.options.size, opened.options.device) == (64, True)
    assert isinstance(ahbm.open(ahbm.run(bytes_per_rank=64)), Again)
