"""The data that the viewer draws: by its contract, whole, and with the numbers of the run."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahbm.base import packaged
from ahbm.job.open import open_
from ahbm.job.replay import JobReport
from ahbm.runs.explanation import Explanation
from ahbm.views import job_lanes, lanes, reasons, workbench
from ahbm.views.lanes import Slices

ROOT = Path(__file__).resolve().parents[2]
NODE = shutil.which("node")


@pytest.fixture(scope="module")
def torus() -> Explanation:
    """28,352 operations on 64 ranks."""
    return open_("all_reduce", topology="npu_torus_4x4x4", algorithm="ring_allreduce", bytes_per_rank=65536).explain()


def small(topology: str | None = "npu_ring_8", **more: Any) -> Explanation:
    return open_("all_reduce", topology=topology, algorithm="ring_allreduce", bytes_per_rank=4096, **more).explain()


def bars(data: dict[str, Any]) -> list[tuple[int, int, int, str, str]]:
    """Lane, start, end, group and line of each bar."""
    found, at = [], 0
    columns = data["bars"]
    for lane, count in enumerate(columns["lanes"]):
        start = 0
        for bar in range(at, at + count):
            start += columns["start"][bar]
            group, text = data["groups"][columns["group"][bar]][0], data["texts"][columns["text"][bar]][1]
            found.append((lane, start, start + columns["length"][bar], group, text))
        at += count
    return found


def by_lane(data: dict[str, Any]) -> list[list[tuple[int, int]]]:
    """Starts and ends of the bars of each lane."""
    found: list[list[tuple[int, int]]] = [[] for _ in data["lanes"]["name"]]
    for lane, start, end, *_ in bars(data):
        found[lane].append((start, end))
    return found


@pytest.fixture(scope="module")
def whole(torus: Explanation) -> dict[str, Any]:
    return workbench.of_run(torus, torus.machine, "t", 10**7)


def valid(data: dict[str, Any]) -> None:
    """By the schema, and by what a schema cannot say."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((packaged.SCHEMAS / "picture.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(json.loads(json.dumps(data)), schema)
    count, last = len(data["bars"]["start"]), (-1, 0)
    assert sum(data["bars"]["lanes"]) == count and len(data["bars"]["lanes"]) == len(data["lanes"]["name"])
    for lane, start, end, *_ in bars(data):
        assert (lane, start) >= last and end <= data["latency"], "bars of a lane follow each other"
        last = (lane, end)
    messages = data["messages"]
    assert all(0 <= bar < count for side in ("from", "to") for bar in messages[side])
    assert sum(messages["links"]) == len(messages["link"])
    path = data["path"]
    ends = [start + length for start, length in zip(path["start"], path["length"], strict=True)]
    assert path["start"] == [0, *ends[:-1]] and ends[-1] == data["latency"], "the path is whole"
    assert all(len(row) == data["heat"]["frames"] for row in data["heat"]["load"])


@pytest.mark.parametrize("most", [300, 2_000, 100_000])
def test_nothing_is_cut_off(torus: Explanation, whole: dict[str, Any], most: int) -> None:
    data = workbench.of_run(torus, torus.machine, "t", most)
    valid(data)
    counts = data["bars"]["count"] or [1] * len(data["bars"]["start"])
    merged = len(counts) < sum(counts)
    assert len(counts) <= max(most, len(data["lanes"]["name"]))
    assert ("merged" in data["note"]) == merged == (most < 100_000)
    assert sum(counts) == len(whole["bars"]["start"]) and sum(data["messages"]["count"]) == torus._timeline.messages
    assert data["lanes"]["name"] == whole["lanes"]["name"]
    for name, drawn, every in zip(whole["lanes"]["name"], by_lane(data), by_lane(whole), strict=True):
        assert [drawn[0][0], drawn[-1][1]] == [every[0][0], every[-1][1]] if every else not drawn, name


def test_the_critical_path_comes_first(torus: Explanation) -> None:
    lanes = workbench.of_run(torus, torus.machine, "t")["lanes"]
    ranks = [on for kind, on in zip(lanes["kind"], lanes["path"], strict=True) if kind == "rank"]
    assert ranks == sorted(ranks, reverse=True) and sum(ranks) > 0
    links = workbench.of_run(torus, torus.machine, "t")["links"]
    assert {link["name"]: link["path"] for link in links} == {link.name: link.path_ps for link in torus.links}
    assert [link["path"] for link in links] == sorted((link.path_ps for link in torus.links), reverse=True)


def test_the_numbers_are_those_of_the_run() -> None:
    """Waits by what they wait for, messages, and how busy each link is."""
    why = small()
    data = workbench.of_run(why, why.machine, "t", 10**6)
    assert data["latency"] == why.latency_ps and not data["note"]
    sums: dict[str, int] = {}
    ranks = [at for at, kind in enumerate(data["lanes"]["kind"]) if kind == "rank"]
    for lane, start, end, group, _ in bars(data):
        if lane in ranks and group.startswith("waiting"):
            sums[group] = sums.get(group, 0) + end - start
    assert sums == {name: ps for name, ps in why.agents_by_category.items() if name.startswith("waiting")}
    assert sum(data["messages"]["count"]) == why._timeline.messages
    frames = data["heat"]["frames"]
    for link, load in zip(data["links"], data["heat"]["load"], strict=True):
        assert sum(load) / 100 * why.latency_ps / frames == pytest.approx(link["busy"], abs=0.005 * why.latency_ps)


def test_a_message_leads_from_its_send_to_its_receive_over_its_links() -> None:
    why = small()
    data = workbench.of_run(why, why.machine, "t", 10**6)
    every, names, parents = bars(data), data["lanes"]["name"], data["lanes"]["parent"]
    messages, first = data["messages"], 0
    for at, (source, target) in enumerate(zip(messages["from"], messages["to"], strict=True)):
        (sender, *_, send, _), (receiver, *_, read, _) = every[source], every[target]
        ranks = [int(names[lane].split()[1]) for lane in (sender, receiver)]
        assert ranks[1] == (ranks[0] + 1) % 8 and (send, read) == ("send", "receive")
        assert messages["sent"][at] >= every[source][1]
        links = messages["link"][first : first + messages["links"][at]]
        first += messages["links"][at]
        assert [names[link] for link in links] == [f"sends ->{ranks[1]}"] and parents[links[0]] == sender


def test_a_rank_of_many_pes_has_their_shares_and_the_pes_below() -> None:
    why = small(None)
    data = workbench.of_run(why, why.machine, "t")
    valid(data)
    lanes = data["lanes"]
    ranks = [at for at, kind in enumerate(lanes["kind"]) if kind == "rank"]
    assert [lanes["name"][at] for at in ranks] == ["rank 0", "rank 1"]
    for rank in ranks:
        shares = np.array(lanes["shares"][str(rank)])
        assert shares.shape[0] == len(data["classes"]) and (shares.sum(axis=0) <= 102).all() and shares.any()
        below = [at for at, parent in enumerate(lanes["parent"]) if parent == rank and lanes["kind"][at] == "pe"]
        assert len(below) == why.rank_of_agents.count(int(lanes["name"][rank].split()[1])) > 1


def test_of_very_many_lanes_the_others_are_in_the_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workbench, "MOST_LANES", 20)
    monkeypatch.setattr(workbench, "MOST_RANKS", 3)
    why = small("npu_torus_4x4")
    data = workbench.of_run(why, why.machine, "t")
    valid(data)
    assert "stand in the lanes of their ranks only" in data["note"]
    alone = sum(data["lanes"]["path"][at] for at, kind in enumerate(data["lanes"]["kind"]) if kind == "rank")
    assert ("share a lane" in data["note"]) == (16 - alone > 3)


def test_of_very_many_links_those_of_the_path_have_heat(
    monkeypatch: pytest.MonkeyPatch, torus: Explanation, whole: dict[str, Any]
) -> None:
    """And the picture says which have none."""
    on_path = sum(link["path"] > 0 for link in whole["links"])
    for most, kept in ((on_path + 5, on_path + 5), (1, on_path)):
        monkeypatch.setattr(workbench, "MOST_LINKS", most)
        data = workbench.of_run(torus, torus.machine, "t")
        valid(data)
        assert data["links"] == whole["links"][:kept] and len(data["heat"]["load"]) == kept
        left = whole["links"][kept:]
        assert f"{len(left)} links off the critical path" in data["note"] and not any(link["path"] for link in left)


def test_a_picture_is_the_same_every_time() -> None:
    found = {json.dumps(workbench.of_run(why, why.machine, "t")) for why in (small(), small())}
    assert len(found) == 1


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> JobReport:
    folder = tmp_path_factory.mktemp("job")
    words = "job new --layers 2 --hidden 256 --sequence 128 --tp 2 --pp 2 --dp 2 --micro-batches 2 -o"
    from typer.testing import CliRunner

    from ahbm.cli import app

    assert CliRunner().invoke(app, [*words.split(), str(folder / "step")]).exit_code == 0
    ran = open_(folder / "step", topology="dgx_h100").run()
    assert isinstance(ran, JobReport)
    return ran


def test_a_job_s_ranks_compute_and_expose_what_its_report_says(job: JobReport) -> None:
    data = job_lanes.of_job(job, job.explain(), "t")
    valid(data)
    lanes = data["lanes"]
    assert sorted(name for name, kind in zip(lanes["name"], lanes["kind"], strict=True) if kind == "rank") == [
        f"rank {rank.rank}" for rank in job.ranks
    ]
    for rank in job.ranks:
        lane = lanes["name"].index(f"rank {rank.rank}")
        sums: dict[str, int] = {}
        for at, start, end, group, _ in bars(data):
            if at == lane:
                sums[group] = sums.get(group, 0) + end - start
        exposed = sums.get("exposed communication", 0) + sums.get("waiting for other ranks", 0)
        assert sums["compute"] == round(1000 * rank.compute_ns) and exposed == round(1000 * rank.exposed_ns)
    assert "delay" not in json.dumps(data["texts"]) and "agent" not in json.dumps(data["lanes"])


def test_a_job_is_explained_in_words_of_the_field(job: JobReport) -> None:
    """JSON has the names of the core."""
    why = job.explain()
    shown = [str(why), *(str(section.rows) for section in reasons.sections({"job": why}, why.machine, {}))]
    assert any("delay" in step["what"] for step in why.to_json()["steps"])
    for text in shown:
        assert not re.search(r"\bdelay\b|\bcounter\b", text), re.search(r".*(delay|counter).*", text)
    assert re.search(r"  compute$", shown[0], re.MULTILINE) and re.search(r"compute [\d,]+\.\d{3} ns", shown[0])


def test_a_job_too_large_to_explain_has_its_ranks(job: JobReport) -> None:
    data = job_lanes.of_job(job, None, "t")
    valid(data)
    assert data["links"] == [] and data["bars"]["start"]


times = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30), st.integers(0, 3)), min_size=1, max_size=40)


@given(times, st.integers(2, 30))
def test_merging_keeps_every_operation_and_order(found: list[tuple[int, int, int]], most: int) -> None:
    """Whatever the gaps, lengths and lanes: each bar's ends are those of its own, and no two overlap."""
    rows, clock = [], dict.fromkeys(range(4), 0)
    for gap, length, lane in found:
        start = clock[lane] + gap
        clock[lane] = start + length
        rows.append((lane, start, start + length))
    columns = np.array(sorted(rows), np.int64).T
    zeros = np.zeros(columns.shape[1], np.int64)
    drawn = lanes.merged(Slices(*columns, zeros, np.arange(columns.shape[1])), most)
    assert drawn.count.sum() == len(rows) == len(drawn.of)
    for bar in range(len(drawn.count)):
        own = np.flatnonzero(drawn.of == bar)
        assert drawn.slices.start[bar] == columns[1][own].min() and drawn.slices.end[bar] == columns[2][own].max()
        assert set(columns[0][own]) == {drawn.slices.lane[bar]} and drawn.slices.text[bar] in own
    same = drawn.slices.lane[1:] == drawn.slices.lane[:-1]
    assert (drawn.slices.start[1:] >= drawn.slices.end[:-1])[same].all()


@given(times, st.integers(1, 40))
def test_shares_sum_to_the_time(found: list[tuple[int, int, int]], frames: int) -> None:
    starts = np.array([start for start, *_ in found], np.int64)
    ends = starts + np.array([length for _, length, _ in found], np.int64)
    latency = int(ends.max())
    parts = lanes.shares(starts, ends, latency, frames)
    assert parts.sum() == (ends - starts).sum() and (parts >= 0).all()


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_the_viewer_by_its_own_tests() -> None:
    assert NODE is not None
    done = subprocess.run([NODE, "--test", "web/test/"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-3000:]
