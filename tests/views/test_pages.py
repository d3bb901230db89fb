"""A page for whatever runs: jobs, plans, traces, ladders, schedules, comparisons."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NoReturn

import pytest
from typer.testing import CliRunner

import ahbm
from ahbm.cli import app
from ahbm.errors import BudgetError, ConfigError, LintError
from ahbm.job.open import open_
from ahbm.runs.report import Report
from ahbm.views import jobs, spans, workbench


def recorded(folder: Path) -> Path:
    """The prefix of a job of four ranks in two pairs, which reduce while they compute."""
    for rank in range(4):
        facts = {"comm_type": 0, "comm_size": 1 << 16, "dtype": "f16", "op": "sum", "pg_name": f"tp{rank % 2}"}
        attributes: list[dict[str, Any]] = [
            {"name": key, "int64Val" if isinstance(value, int) else "stringVal": value} for key, value in facts.items()
        ]
        attributes.append({"name": "ranks", "int64List": {"values": [rank % 2, rank % 2 + 2]}})
        nodes = [
            {"id": 0, "name": "forward", "type": "COMP_NODE", "durationMicros": 10},
            {"id": 1, "name": "all_reduce", "type": "COMM_COLL_NODE", "ctrlDeps": [0], "attr": attributes},
            {"id": 2, "name": "next", "type": "COMP_NODE", "ctrlDeps": [0], "durationMicros": 2},
        ]
        documents = ({"version": "0.0.4"}, *nodes)
        (folder / f"step.{rank}.json").write_text("\n".join(map(json.dumps, documents)))
    return folder / "step.0.json"


def report(folder: Path, *words: str) -> tuple[str, list[str]]:
    """The page of `ahbm report words`, without its scripts, and its sentences."""
    page = folder / "page.html"
    done = CliRunner().invoke(app, ["report", *words, "-o", str(page)])
    assert done.exit_code == 0, done.exception
    text = re.sub(r"<script.*?</script>", "", page.read_text(), flags=re.DOTALL)
    found = re.search(r'<div id="answer">(.*?)</div>', text, re.DOTALL)
    assert found is not None and page.stat().st_size < 2_000_000
    return text, re.findall("<p>(.*?)</p>", found[1])


def pictures(page: Path) -> list[Any]:
    """The runs that the viewer of a page can show."""
    found = re.search(r'id="pictures">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    ((runs),) = json.loads(found[1]).values()
    return list(runs)


def sections(page: str) -> list[str]:
    return re.findall(r'<h2 id="(.*?)"', page)


@pytest.mark.slow
def test_a_job(tmp_path: Path) -> None:
    page, told = report(tmp_path, str(recorded(tmp_path)), "-t", "npu_ring_8", "--set", "system.sips.count=4")
    assert sections(page) == ["ranks", "exposed", "path", "calls", "when", "why", "help", "timeline", "links", "about"]
    assert told[0].startswith("step takes ") and "does not compute for" in told[0]
    assert "2 calls take" in told[1] and "critical path" in told[1]
    assert len(told) == 3 and re.search(r"Try .*: -\d+\.\d %, .* \(simulated again\)", told[2])


def test_a_job_s_numbers_are_those_of_its_run(tmp_path: Path) -> None:
    overrides = {"system.sips.count": 4}
    ran = open_(recorded(tmp_path), topology="npu_ring_8", overrides=overrides).run()
    assert isinstance(ran, ahbm.job.replay.JobReport)
    page = jobs.page(ran)
    (values,) = page.charts["ranks"].to_dict()["datasets"].values()
    assert sum(row["us"] for row in values) == pytest.approx(sum(rank.total_ns for rank in ran.ranks) / 1000)
    (calls,) = page.charts["calls"].to_dict()["datasets"].values()
    assert max(call["end"] for call in calls) == pytest.approx(
        max(call.start_ns + call.latency_ns for call in ran.calls) / 1000
    )


def test_agents_of_one_place_have_lanes_of_their_own(tmp_path: Path) -> None:
    """A job has many agents at one PE: their times are not added up, and the path is marked on the right one."""
    why = open_(recorded(tmp_path), topology="npu_ring_8", overrides={"system.sips.count": 4}).explain()
    assert len(set(why.places)) < len(why.places)
    names = spans.names(why)
    assert len(set(names)) == len(names)
    lanes = workbench.of_run(why, None, "t")["lanes"]
    assert lanes["kind"].count("pe") == len(names)


@pytest.mark.parametrize("suffix", ["xml", "json"])
def test_a_plan(tmp_path: Path, suffix: str) -> None:
    plan = tmp_path / f"gather.{suffix}"
    ahbm.synthesize("all_gather", topology="npu_ring_8", size=1 << 16).even(plan).save(plan)
    page, told = report(tmp_path, str(plan), "-t", "npu_ring_8", "-e", "64K", "-b", "64K")
    assert "gather takes " in told[0] and "of the bound" in told[1] and "timeline" in sections(page)
    assert len(told) == 3 and told[2].startswith("Try ") and "(simulated again)" in told[2]


def test_a_plan_whose_result_is_not_known(tmp_path: Path) -> None:
    plan = tmp_path / "own.xml"
    ahbm.synthesize("all_gather", topology="npu_ring_8", size=1 << 16).even(plan).save(plan)
    plan.write_text(plan.read_text().replace('coll="allgather"', 'coll="custom"'))
    page, told = report(tmp_path, str(plan), "-t", "npu_ring_8", "-e", "64K")
    assert "only its time is known" in told[0] and "timeline" in sections(page) and "critical path" in told[1]
    (_, shown), *_ = pictures(tmp_path / "page.html")
    assert [drawn["title"] for drawn in shown["maps"]] == ["links between ranks"], "where it ran is drawn"
    for given in (["--numerics"], ["-a", "ring_allreduce", "-a", "tree_allreduce"]):
        bad = CliRunner().invoke(app, ["report", str(plan), *given, "-o", str(tmp_path / "no.html")])
        assert isinstance(bad.exception, ConfigError) and bad.exception.code == "AHBM-C146"


@pytest.mark.slow
def test_a_ladder_by_its_terms_and_by_its_file(tmp_path: Path) -> None:
    terms = ("-t", "npu_ring_8", "--sizes", "4K,64K", "--no-data", "--set", "pe.dma.channels=1")
    page, told = report(tmp_path, "all_gather", *terms, "--ladder", "--synth", "ring")
    assert sections(page)[:3] == ["ranges", "speed", "table"] and "links" in sections(page)
    assert told[0].startswith("The quickest of 5: ") and "of the bound" in told[1] and "simulated again" in told[2]
    file = tmp_path / "ladder.yaml"
    assert CliRunner().invoke(app, ["ladder", "all_gather", *terms, "--synth", "ring", "-o", str(file)]).exit_code == 0
    _, again = report(tmp_path, str(file), *terms)
    assert again[0].startswith("The quickest of 2: up to 16,391 B pat_all_gather, above nccl_ring_all_gather.")
    file.write_text("defaults: {n_slots: 8}\n")
    bad = CliRunner().invoke(app, ["report", str(file), "-o", str(tmp_path / "no.html")])
    assert isinstance(bad.exception, ConfigError) and bad.exception.code == "AHBM-C151"


def test_a_synthesis_has_a_certificate(tmp_path: Path) -> None:
    page, told = report(tmp_path, "all_gather", "-t", "npu_ring_8", "--sizes", "64K", "--synth", "auto")
    assert "synthesis" in sections(page) and "(least 4)" in page
    found = ahbm.synthesize("all_gather", topology="npu_ring_8", size=1 << 16)
    assert f"{found.percent_of_bound:.1f} % of what no schedule can beat" in told[0]


def test_two_algorithms_are_compared(tmp_path: Path) -> None:
    names = ("-a", "ring_allreduce", "-a", "tree_allreduce")
    page, told = report(tmp_path, "all_reduce", "-t", "npu_ring_8", "--sizes", "1K,64K", *names)
    assert "comparison" in sections(page) and "is the fastest of 2" in told[0]
    assert "ring_allreduce -&gt; tree_allreduce" in page


def test_any_number_of_machines_and_algorithms_stand_beside_each_other(tmp_path: Path) -> None:
    machines = ("-t", "npu_ring_8", "-t", "npu_switch_8", "-t", "npu_mesh_4x4")
    names = ("-a", "ring_allreduce", "-a", "tree_allreduce")
    page, told = report(tmp_path, "all_reduce", *machines, *names, "--sizes", "1K,64K", "--no-data")
    assert sections(page) == ["speed", "table"] and "is the fastest of 6" in told[0]
    assert page.count("<tr>") > 12 and " on npu_" in told[0]
    # Two algorithms on two machines are four, none of which hides another.
    page, told = report(tmp_path, "all_reduce", *machines[:4], *names, "--sizes", "1K", "--no-data")
    assert "is the fastest of 4" in told[0]
    out = tmp_path / "tcm.html"
    terms = ("-t", "npu_ring_8", "--set", "buffer_kind=tcm,hbm", *names[:2], "--sizes", "64M", "--no-data")
    failed = CliRunner().invoke(app, ["report", "all_reduce", *terms, "-o", str(out)])
    assert isinstance(failed.exception, LintError) and "L108" in out.read_text(encoding="utf-8")
    page, told = report(tmp_path, "all_reduce", *terms[:4], *names[:2], "--sizes", "1K", "--no-data")
    assert "npu_ring_8, buffer_kind=tcm is the fastest of 2" in told[0]


def test_two_machines_and_two_files_are_compared(tmp_path: Path) -> None:
    machines = ("-t", "npu_ring_8", "-t", "npu_switch_8")
    page, told = report(tmp_path, "all_gather", *machines, "--sizes", "1K,64K", "--no-data")
    assert sections(page) == ["speed", "table", "comparison"] and "npu_ring_8 is the fastest of 2" in told[0]
    bad = CliRunner().invoke(app, ["report", "all_gather", *machines, "--numerics"])
    assert isinstance(bad.exception, ConfigError) and bad.exception.code == "AHBM-C146"
    files = []
    for algorithm in ("ring_allreduce", "tree_allreduce"):
        for command in ("run", "explain"):
            done = CliRunner().invoke(app, [command, "all_reduce", "-a", algorithm, "-t", "npu_ring_8", "--json"])
            files.append(tmp_path / f"{command}.{algorithm}.json")
            files[-1].write_text(done.stdout)
    page, told = report(tmp_path, str(files[1]), str(files[3]))
    assert told[0].startswith("The critical path changes from ") and "ring_allreduce.py:" in page
    page, told = report(tmp_path, str(files[0]), str(files[2]))
    assert told[0] == "Of 2 measurements 1 are new, 1 are gone."
    bad = CliRunner().invoke(app, ["report", str(files[0]), str(files[2]), "-t", "npu_ring_8"])
    assert isinstance(bad.exception, ConfigError) and bad.exception.code == "AHBM-C146"


def test_a_page_says_what_is_too_much_to_explain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_much(report: Report) -> NoReturn:
        raise BudgetError("AHBM-B121", f"{report.algorithm}: the reasons of its times are more than 9 pieces")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Report, "explain", too_much)
    asked = ["report", "all_reduce", "--sizes", "1K", "-a", "ring_allreduce", "-t", "npu_ring_8", "--no-data"]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    told = "Why ring_allreduce takes this long is left out: ring_allreduce: the reasons of its times are more than 9"
    assert f"note: {told} pieces (AHBM-B121). --no-explain does not try." in " ".join(result.output.split())
    assert told in (tmp_path / "report.html").read_text(encoding="utf-8")
