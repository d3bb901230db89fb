"""`ahbm sweep`: a space into a store, on and on until it is done, and what the store answers."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ahbm.table.store import Store
from support import rings
from support.commands import environment, run

SPACE = """
algorithms: [ring_allreduce, tree_allreduce]
topologies: [npu_ring_8, npu_switch_8]
overrides:
  system.sips.link.bandwidth_gbs: [50, 100]
  n_slots: [2, 4]
sizes: [1K, 64K]
data: false
"""


@pytest.fixture
def store(here: Path) -> Path:
    Path("space.yaml").write_text(SPACE, encoding="utf-8")
    assert told("space.yaml", "-o", "rows") == "32 cases in rows: 0 were there, 32 are new\n"
    return here / "rows"


def told(*arguments: str) -> str:
    code, out, err = run("ahbm", ["sweep", *arguments], Path())
    assert code == 0, err
    return out


def shown(*arguments: str) -> Any:
    return json.loads(told("show", "rows", *arguments, "--json"))


def test_a_repeated_sweep_runs_what_is_new(store: Path) -> None:
    assert told("space.yaml", "-o", "rows") == "32 cases in rows: 32 were there, 0 are new\n"
    Path("space.yaml").write_text(SPACE.replace("[1K, 64K]", "[1K, 64K, 128K]"), encoding="utf-8")
    found = json.loads(told("space.yaml", "-o", "rows", "--json"))
    assert found == {"cases": 48, "known": 32, "run": 16, "failed": 0, "wrong": 0, "store": "rows"}


def test_cases_that_are_one_are_counted_once(here: Path) -> None:
    Path("space.yaml").write_text("sizes: [1K, 1025]\nroots: [0, 1]\ndata: false\n", encoding="utf-8")
    note = "note: 1025 B became 1024 B: all_reduce of f16 takes multiples of 2 B\n"
    assert told("space.yaml", "-o", "rows") == f"1 cases in rows: 0 were there, 1 are new\n{note}"


def test_rows_are_the_runs(store: Path) -> None:
    rows = shown()
    assert [row["at"] for row in rows] == list(range(32))
    assert rows == list(map(_typed, csv.DictReader(io.StringIO(told("show", "rows", "--csv"))), rows))
    command = [
        "run",
        "all_reduce",
        "-a",
        "tree_allreduce",
        "-t",
        "npu_switch_8",
        "--size",
        "64K",
        "--no-data",
        "--json",
    ]
    keys = ["--set", "system.sips.link.bandwidth_gbs=100", "--set", "n_slots=4"]
    alone = json.loads(run("ahbm", [*command, *keys], Path())[1])
    (row,) = [
        row
        for row in rows
        if (row["algorithm"], row["topology"], row["bytes"], row["n_slots"]) == ("tree_allreduce", "switch", 65536, 4)
        and row["system.sips.link.bandwidth_gbs"] == 100
    ]
    assert {key: row[key] for key in ("latency_ns", "timeline_hash", "messages", "percent_of_bound")} == {
        key: alone[key] for key in ("latency_ns", "timeline_hash", "messages", "percent_of_bound")
    }
    assert row["links"] == 16 and row["link_gbs"] == 100


def _typed(read: dict[str, str], row: dict[str, Any]) -> dict[str, Any]:
    return {key: None if value == "" else type(row[key])(value) for key, value in read.items()}


def test_the_best_and_the_front_are_what_a_search_of_all_rows_finds(store: Path) -> None:
    rows = shown()
    for nbytes in (1024, 65536):
        group = [row for row in rows if row["bytes"] == nbytes]
        (best,) = [row for row in shown("--best") if row["bytes"] == nbytes]
        assert best == min(group, key=lambda row: (row["latency_ns"], row["at"]))
        front = [row for row in shown("--pareto", "time,bandwidth") if row["bytes"] == nbytes]
        ends = [(row["latency_ns"], row["link_gbs"]) for row in group]
        wanted = {e for e in ends if not any(o != e and o[0] <= e[0] and o[1] <= e[1] for o in ends)}
        assert {(row["latency_ns"], row["link_gbs"]) for row in front} == wanted and len(front) == len(wanted) == 2


def test_what_matters_is_told_first(store: Path) -> None:
    effects = shown("--sensitivity")
    assert [effect["key"] for effect in effects] == [
        "topology",
        "algorithm",
        "system.sips.link.bandwidth_gbs",
        "n_slots",
    ]
    assert all(effect["factor"] >= other["factor"] >= 1 for effect, other in itertools.pairwise(effects))
    lines = told("show", "rows", "--sensitivity").splitlines()
    assert len(lines) == 4 and "system.sips.link.bandwidth_gbs: 50 1." in lines[2]


@pytest.mark.parametrize("kind", ["svg", "png", "html"])
def test_charts_are_drawn(store: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("altair")
    # Seconds for every page.
    monkeypatch.setattr("ahbm.views.page.Page.html", lambda page: f"<html>{len(page.sections)}")
    found = []
    for option in (["--pareto", "time,links"], ["--sensitivity"], ["--best"], []):
        assert told("show", "rows", *option, "-o", f"c.{kind}") == f"wrote c.{kind}\n"
        begin = {"svg": b"<svg", "png": b"\x89PNG", "html": b"<html>4" if not option else b"<html>2"}
        found.append(Path(f"c.{kind}").read_bytes())
        assert found[-1].startswith(begin[kind])
    assert kind == "html" or len(set(found)) == 4, "each option draws what it prints"


def test_sweeps_of_two_versions_are_compared_by_what_they_are(store: Path) -> None:
    Path("other.yaml").write_text(SPACE.replace("sizes: [1K, 64K]", "sizes: [64K, 128K]"), encoding="utf-8")
    told("other.yaml", "-o", "after")
    found = json.loads(told("diff", "rows", "after", "--json"))
    assert found["same"] == 16 and len(found["changes"]) == 32
    assert {(change["before"] is None, change["after"] is None) for change in found["changes"]} == {
        (True, False),
        (False, True),
    }
    assert told("diff", "rows", "after").endswith("32 cases differ, 16 are the same\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["space.yaml"], "AHBM-C146"),
        (["space.yaml", "rows", "-o", "x"], "AHBM-C146"),
        (["space.yaml", "-o", "x", "--best"], "AHBM-C146"),
        (["nowhere.yaml", "-o", "x"], "AHBM-C185"),
        (["show"], "AHBM-C146"),
        (["show", "nowhere"], "AHBM-C186"),
        (["show", "rows", "--jobs", "2"], "AHBM-C146"),
        (["show", "rows", "--pareto", "time,link"], "AHBM-C187"),
        (["show", "rows", "--pareto", "time,algorithm"], "AHBM-C187"),
        (["show", "rows", "--pareto", ""], "AHBM-C187"),
        (["show", "rows", "--best", "--sensitivity"], "AHBM-C146"),
        (["show", "rows", "--csv", "--json"], "AHBM-C146"),
        (["space.yaml", "-o", "x", "--range", "4/3"], "AHBM-C146"),
        (["space.yaml", "-o", "x", "--range", "one"], "AHBM-C146"),
        (["space.yaml", "-o", "x", "--halving"], "AHBM-C146"),
        (["space.yaml", "--optimize", "--range", "1/2"], "AHBM-C146"),
        (["space.yaml", "--optimize", "--halving", "--trials", "3"], "AHBM-C129"),
        (["space.yaml", "-o", "x", "--dask", "a", "--ray", "b"], "AHBM-C146"),
        (["show", "rows", "--widen", "dollars"], "AHBM-C146"),
        (["show", "rows", "--widen", "dollars:10"], "AHBM-C187"),
        (["show", "rows", "-o", "x.pdf"], "AHBM-C161"),
        (["diff", "rows"], "AHBM-C146"),
        (["diff", "rows", "nowhere"], "AHBM-C186"),
        (["compact", "nowhere"], "AHBM-C186"),
    ],
)
def test_what_is_no_sweep_is_refused(store: Path, arguments: list[str], code: str) -> None:
    exit_code, _, err = run("ahbm", ["sweep", *arguments], Path())
    assert exit_code == 3 and code in err, err


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_sweep_that_is_stopped_leaves_whole_parts_and_no_process(here: Path, how: signal.Signals) -> None:
    space = SPACE + "seeds: [0]\nranges: {sizes: [1K, 1M]}\nrandom: "
    Path("space.yaml").write_text(f"{space}150\n", encoding="utf-8")
    command = [sys.executable, "-m", "ahbm", "sweep", "space.yaml", "-o", "rows", "--jobs", "2"]
    left, stopped = "", 0
    while stopped < 3:
        process = subprocess.Popen(
            command, env=environment(), stderr=subprocess.PIPE, start_new_session=True, text=True
        )
        before = len(Store("rows").parts()) if Path("rows/parts").exists() else 0
        while not Path("rows/parts").exists() or len(Store("rows").parts()) < before + 2:
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        os.killpg(process.pid, how) if how is signal.SIGINT else process.kill()
        left = process.communicate(timeout=20)[1]
        assert process.returncode == (130 if how is signal.SIGINT else -9)
        stopped += 1
        end = time.monotonic() + 20
        while _alive(process.pid):
            assert time.monotonic() < end, "a process of the pool is left"
            time.sleep(0.02)
    keys = Store("rows").read(("key",)).column("key")
    assert len(keys) == len(set(keys)) > 0
    assert how is signal.SIGKILL or "AHBM-I101 interrupted: ahbm sweep" in left
    # What is drawn first is a part of what is drawn in all.
    Path("space.yaml").write_text(f"{space}15\n", encoding="utf-8")
    code, out, err = run("ahbm", ["sweep", "space.yaml", "-o", "rows", "--jobs", "1", "--json"], here)
    assert code == 0, err
    found = json.loads(out)
    after = Store("rows").read(("key",)).column("key")
    assert found["known"] > 0 and len(set(after)) == len(after) == len(keys) + found["run"]


def _alive(group: int) -> bool:
    """Whether a process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_wrong_rows_are_told_whenever_they_were_run(here: Path) -> None:
    rings.write(here, **rings.SPOILT)
    space = "algorithms: [short, ring_allreduce]\ntopologies: npu_ring_8\nsizes: [1K, 4K]\n"
    Path("space.yaml").write_text(space, encoding="utf-8")
    for known in (0, 4):
        code, out, err = run("ahbm", ["sweep", "space.yaml", "-o", "rows"], Path())
        assert code == 8, err
        assert out == f"4 cases in rows: {known} were there, {4 - known} are new, 2 of them wrong\n"


def test_rows_whose_result_was_to_be_checked_are_right_or_wrong(here: Path) -> None:
    names = rings.write(here, **rings.OPAQUE, **rings.ROUNDABOUT)
    space = f"algorithms: [{', '.join(names)}]\ntopologies: npu_ring_8\nsizes: 1K\ndtypes: f32\n"
    Path("space.yaml").write_text(f"{space}data: false\ncheck: result\n", encoding="utf-8")
    assert run("ahbm", ["sweep", "space.yaml", "-o", "rows"], Path())[0] == 8
    (best,) = shown("--best")
    assert (best["algorithm"], best["wrong"]) == ("roundabout", 0)


@pytest.mark.parametrize("answer", [[], ["--best"], ["--pareto", "time,links"], ["--sensitivity"]])
def test_an_unfinished_sweep_says_so_in_every_answer(here: Path, answer: list[str]) -> None:
    Path("space.yaml").write_text(SPACE, encoding="utf-8")
    told("space.yaml", "-o", "rows", "--range", "1/2")
    note = "note: rows is unfinished: 16 of 32 cases have run; what is missing may change this answer"
    for form in ([], ["--json"]):
        assert note in run("ahbm", ["sweep", "show", "rows", *answer, *form], Path())[2]
    assert note in run("ahbm", ["sweep", "diff", "rows", "rows"], Path())[2]
    told("space.yaml", "-o", "rows", "--range", "2/2")
    assert "unfinished" not in run("ahbm", ["sweep", "show", "rows", *answer], Path())[2]


def test_very_many_cases_are_asked_about_first(here: Path) -> None:
    many = "sizes: [1K]\nseeds: [0]\ndata: false\noverrides:\n"
    many += "".join(f"  {key}: [{', '.join(map(str, range(1, 231)))}]\n" for key in ("n_slots", "event_budget"))
    many += "  system.sips.link.bandwidth_gbs: [" + ", ".join(map(str, range(1, 229))) + "]\n"
    Path("space.yaml").write_text(many, encoding="utf-8")
    code, _, err = run("ahbm", ["sweep", "space.yaml", "-o", "rows"], Path())
    assert code == 3 and "AHBM-C146 the space has 12,061,200 cases" in err and "--yes" in err
    assert not Path("rows").exists()
    # A task of an array has so many less.
    assert run("ahbm", ["sweep", "space.yaml", "-o", "rows", "--range", "1/12061200"], Path())[0] == 0


def test_columns_have_units(store: Path) -> None:
    head, units, *_ = told("show", "rows", "--best").splitlines()
    for name, unit in (("latency_ns", "(ns)"), ("busbw_gbs", "(GB/s)"), ("percent_of_bound", "(%)")):
        at = head.index(name) + len(name)
        assert units[:at].endswith(unit) or units[at - len(name) :].startswith(unit), name
    import pyarrow.parquet as parquet

    (part, *_) = Path("rows/parts").iterdir()
    schema = parquet.read_schema(part)
    assert schema.field("latency_ns").metadata == {b"unit": b"ns"}
    assert schema.field("system.sips.link.bandwidth_gbs").metadata == {b"unit": b"GB/s"}


def test_the_quickest_is_found_without_running_all(store: Path) -> None:
    best = shown("--best")
    found = json.loads(told("space.yaml", "--optimize", "--json"))
    assert found["sure"] and found["run"] + found["spared"] == found["cases"] == 32
    assert sorted((row["bytes"], row["latency_ns"], row["algorithm"]) for row in found["best"]) == sorted(
        (row["bytes"], row["latency_ns"], row["algorithm"]) for row in best
    )


def test_what_to_widen_is_told_with_its_evidence(here: Path) -> None:
    priced = SPACE + "cost: {dollars: links * system.sips.link.bandwidth_gbs + 10 * n_slots}\n"
    Path("space.yaml").write_text(priced.replace("[50, 100]", "[50, 52]"), encoding="utf-8")
    told("space.yaml", "-o", "rows")
    found = told("show", "rows", "--widen", "dollars:10%")
    assert found.startswith("stands: topology ring_1d, system.sips.link.bandwidth_gbs 50, n_slots 2; dollars 820\n")
    assert "system.sips.link.bandwidth_gbs: 50 -> 52, dollars 852 (+3.9 %)" in found
    assert "n_slots: 2 -> 4, dollars 840 (+2.4 %)" in found and "all_reduce 65536 f16: " in found
    assert json.loads(told("show", "rows", "--widen", "dollars:3", "--json"))["dearer"] == 1
