"""What is known of the error of a calibrated machine, wherever a time on it is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ahbm
from ahbm.runs import bands
from ahbm.runs.bands import Noted
from support.commands import run

pytestmark = pytest.mark.usefixtures("here")

ON = ["-t", "azure_nd_h100", "--sizes", "512,64K,1M", "--no-data"]
KNOWN = "calibrated: near 2 of 3 sizes, "
OUTSIDE = "1 of 3 sizes are outside the calibrated range, which is all_reduce of 8 ranks and 1024 to 8589934592 B"
OTHER = "calibrated with ring_allreduce: the error of nccl_ring_allreduce is not known"


def call(*args: str, cwd: Path) -> str:
    code, out, err = run("ahbm", list(args), cwd)
    assert code == 0, out + err
    return out


def of(*given: tuple[str, int, str | None], cases: str = "sizes") -> list[str]:
    return bands.over((Noted(*each) for each in given), cases)


def test_many_runs_have_one_line_for_each_kind() -> None:
    near = "calibrated: near this size, {} % on average, {} % at worst, of held-back measurements"
    outside = "outside the calibrated range, which is none: the error is not known"
    other = "calibrated with a: the error of {} is not known"
    assert of(("m", 8, near.format("2.0", "10.0"))) == [near.format("2.0", "10.0")]
    assert of(("m", 8, None)) == of() == []
    rows = [("m", 8, near.format("12.0", "9.5")), ("m", 16, near.format("2.0", "10.0")), ("m", 32, outside)]
    rows += [("m", 8, other.format("b")), ("m", 16, other.format("c"))]
    lines = [
        "calibrated: near 2 of 3 sizes, 2.0 to 12.0 % on average, 10.0 % at worst, of held-back measurements",
        "1 of 3 sizes are outside the calibrated range, which is none: the error is not known",
        "calibrated with a: the error of b, c is not known (2 of 3 sizes)",
    ]
    assert of(*rows) == lines
    assert of(*rows, ("n", 8, None)) == [f"m: {line}" for line in lines]
    assert of(*rows, cases="calls") == [line.replace("sizes", "calls") for line in lines]


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_explanation_tells_it(form: str, tmp_path: Path) -> None:
    given = ["explain", "all_reduce", "-t", "azure_nd_h100", "--what-if", "none"]
    notes = {
        ("--size", "64G"): "outside the calibrated range",
        ("--size", "64M", "--set", "launch.overhead_ns=1"): "not the calibrated machine",
        ("--size", "64M"): "calibrated: near this size",
        ("--size", "64M", "-a", "tree_allreduce"): "the error of tree_allreduce is not known",
    }
    for options, note in notes.items():
        out = call(*given, *options, *(["--json"] if form == "json" else []), cwd=tmp_path)
        told = json.loads(out)["notes"] if form == "json" else out.splitlines()[-1:]
        assert len(told) == 1 and note in told[0]


@pytest.mark.parametrize("command", ["bench", "compare", "ladder"])
def test_a_table_tells_each_kind_once(command: str, tmp_path: Path) -> None:
    by = ["-a", "ring_allreduce", "-a", "nccl_ring_allreduce"]
    out = call(command, "all_reduce", *ON, *by, cwd=tmp_path)
    assert [out.count(note) for note in (KNOWN, OUTSIDE, OTHER)] == [1, 1, 1]
    as_json = call(command, "all_reduce", *ON, *by, "--json", cwd=tmp_path)
    assert "outside the calibrated range" in as_json and OTHER in as_json


def test_files_that_are_compared_tell_it(tmp_path: Path) -> None:
    report = call("bench", "all_reduce", *ON, "--json", cwd=tmp_path)
    (tmp_path / "then.json").write_text(report, encoding="utf-8")
    assert OUTSIDE in call("compare", "then.json", "then.json", cwd=tmp_path)


@pytest.mark.slow
def test_a_page_tells_it(tmp_path: Path) -> None:
    call("report", "all_reduce", *ON, "--no-explain", "-o", "page.html", cwd=tmp_path)
    assert OUTSIDE in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_card_tells_where_winners_have_an_unknown_error(tmp_path: Path) -> None:
    by = ["-a", "ring_allreduce", "-a", "tree_allreduce"]
    given = ["tune", "all_reduce", "-t", "azure_nd_h100", "--sizes", "64K,16M", *by, "-o", "tuned"]
    note = "calibrated with ring_allreduce: the error of tree_allreduce is not known (1 of 2 sizes)"
    assert f"- The error of the quickest: {note}.\n" in call(*given, cwd=tmp_path)
    assert note in json.loads(call(*given, "--json", cwd=tmp_path))["errors"]


def test_a_sweep_tells_it(tmp_path: Path) -> None:
    table = ahbm.sweep("all_reduce", "ring_allreduce", "azure_nd_h100", sizes=[512, "64K", "1M"], data=False)
    assert [note.startswith((KNOWN, OUTSIDE)) for note in table.notes] == [True, True]
    space = "{collectives: all_reduce, topologies: azure_nd_h100, sizes: [512, 64K, 1M], data: false}"
    (tmp_path / "space.yaml").write_text(space, encoding="utf-8")
    call("sweep", "space.yaml", "-o", "rows", cwd=tmp_path)
    out = call("sweep", "show", "rows", cwd=tmp_path)
    assert out.count(f"note: {KNOWN}") == out.count(f"note: {OUTSIDE}") == 1
    rows = json.loads(call("sweep", "show", "rows", "--json", cwd=tmp_path))
    assert [row["calibration"].partition(",")[0] for row in rows] == [
        "outside the calibrated range",
        "calibrated: near this size",
        "calibrated: near this size",
    ]


def test_a_plan_that_runs_for_its_time_tells_it(tmp_path: Path) -> None:
    plan = "<algo name='a' proto='Simple' nchannels='1' nchunksperloop='1' ngpus='2' coll='custom' inplace='0'>"
    steps = {0: ("send='1' recv='-1'", "s"), 1: ("send='-1' recv='0'", "r")}
    for rank, (peers, kind) in steps.items():
        plan += f"<gpu id='{rank}' i_chunks='1' o_chunks='1' s_chunks='0'><tb id='0' {peers} chan='0'>"
        plan += f"<step s='0' type='{kind}' srcbuf='i' srcoff='0' dstbuf='o' dstoff='0' cnt='1' depid='-1' "
        plan += "deps='-1' hasdep='0'/></tb></gpu>"
    (tmp_path / "plan.xml").write_text(plan + "</algo>", encoding="utf-8")
    for command in ("run", "explain"):
        out = call(command, "plan.xml", "-t", "azure_nd_h100", "--size", "64K", cwd=tmp_path)
        assert "outside the calibrated range" in out


@pytest.fixture
def a_job(tmp_path: Path) -> str:
    """Three all-reduces of 8 ranks, one above 8 GiB, and one of 4."""
    nodes = []
    for number, (size, ranks) in enumerate([(1 << 20, 8), (1 << 16, 8), (1 << 34, 8), (1 << 20, 4)]):
        facts = [{"name": "comm_type", "int64Val": 0}, {"name": "comm_size", "int64Val": size}]
        facts += [{"name": "pg_name", "stringVal": str(ranks)}]
        before = {"ctrlDeps": [number - 1]} if number else {}
        nodes.append({"id": number, "name": "all_reduce", "type": "COMM_COLL_NODE", "attr": facts} | before)
    head = {"version": "0.0.4", "attr": [{"name": "world_size", "int32Val": 8}]}
    for rank in range(8):
        own = nodes if rank < 4 else nodes[:3]
        text = "\n".join(json.dumps(part) for part in (head, *own))
        (tmp_path / f"step.{rank}.json").write_text(text, encoding="utf-8")
    groups = {"8": list(range(8)), "4": list(range(4))}
    (tmp_path / "groups.json").write_text(json.dumps(groups), encoding="utf-8")
    return "step.0.json"


def test_a_job_tells_it_of_its_calls(a_job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ahbm.job.advice.SEARCHED", 0)  # jobs are not tried with every algorithm: it takes seconds
    given = [a_job, "-t", "azure_nd_h100", "--groups", "groups.json"]
    for command, options in (("run", []), ("explain", ["--what-if", "none"])):
        out = call(command, *given, *options, cwd=tmp_path)
        assert "note: calibrated: near 2 of 4 calls, " in out
        assert "note: 2 of 4 calls are outside the calibrated range, which is all_reduce of 8 ranks" in out
        notes = json.loads(call(command, *given, *options, "--json", cwd=tmp_path))["notes"]
        assert [f"note: {note}" for note in notes] == [line for line in out.splitlines() if line.startswith("note: ")]
    call("report", *given, "-o", "job.html", cwd=tmp_path)
    assert notes[0] in (tmp_path / "job.html").read_text(encoding="utf-8")
    assert "note: " not in call("run", *given[:1], "-t", "npu_switch_8", *given[3:], cwd=tmp_path)


def test_the_error_of_knobs_is_not_known(a_job: str, tmp_path: Path) -> None:
    ahead = "collectives: {all_reduce: [{selector: {kind: static, algorithms: {all_reduce: {algorithm: ring_allreduce, "
    told = {
        "protocol: simple": "not the library's own choice, but protocol simple: the error is not known",
        "channels: 1": "calibrated: near this size",
    }
    for knob, note in told.items():
        (tmp_path / "knobs.yaml").write_text(f"{ahead}{knob}}}}}}}}}]}}", encoding="utf-8")
        report = ahbm.run("all_reduce", topology="p5", bytes_per_rank="1M", ccl="knobs.yaml", data=False)
        assert report.notes[-1].startswith(note)
        assert (report.band is None) == (knob == "protocol: simple")
        out = call(*("run", a_job, "-t", "p5", "--groups", "groups.json", "--ccl", "knobs.yaml"), cwd=tmp_path)
        assert (f"4 of 4 calls are {note}" in out) == (knob == "protocol: simple")
