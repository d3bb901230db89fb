"""Knobs beside a program: those that the emulator models change the time, the rest is carried and said to be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ahbm
from ahbm.base import packaged
from ahbm.base.knobs import Knobs
from ahbm.cli import app
from ahbm.errors import FormatError
from ahbm.runs import knobs
from support import plans

SIZE = 1 << 20


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "ring.xml"
    path.write_text(plans.ring(4))
    return path


def run(program: Path, **terms: object) -> ahbm.Report:
    opened = ahbm.open(program, bytes_per_rank=SIZE, **terms)
    report = opened.run(data=False)
    assert isinstance(report, ahbm.Report)
    return report


@pytest.mark.parametrize(
    ("given", "terms"),
    [
        (Knobs(channels=4), {"instances": 4}),
        (Knobs(chunk_bytes=4096), {"slice_bytes": 4096}),
        (Knobs(protocol="ll"), {"protocol": "LL"}),
        (Knobs(threads=128), {"overrides": {"pe.math.f16_per_ns": 64}}),
    ],
    ids=str,
)
def test_each_knob_changes_the_time_as_its_option_does(given: Knobs, terms: dict[str, object], program: Path) -> None:
    plain = run(program)
    assert not plain.notes
    same = run(program, **terms)
    knobs.write(given, program)
    tuned = run(program)
    assert tuned.timeline_hash == same.timeline_hash != plain.timeline_hash
    assert tuned.notes == (f"ring.knobs.json: {given.text} in the time",)


def test_what_a_run_says_itself_holds(program: Path) -> None:
    knobs.write(Knobs(channels=4, threads=256), program)
    wanted = run(program, instances=2, overrides={"pe.math.f16_per_ns": 256}, knobs=False)
    assert run(program, instances=2, overrides={"pe.math.f16_per_ns": 256}).timeline_hash == wanted.timeline_hash


def test_explain_and_inspect_run_with_the_knobs_too(program: Path) -> None:
    knobs.write(Knobs(channels=2, threads=64), program)
    opened = ahbm.open(program, bytes_per_rank=SIZE)
    explained = opened.explain()
    assert explained.timeline_hash == run(program).timeline_hash != run(program, knobs=False).timeline_hash


def test_a_plan_that_states_its_own_knobs_carries_the_rest_and_says_so(program: Path, tmp_path: Path) -> None:
    target = tmp_path / "ring.json"
    ahbm.convert(str(program), target)
    plain = run(target)
    knobs.write(Knobs(protocol="ll128", channels=8, threads=512, chunk_bytes=1 << 16), target)
    tuned = run(target)
    assert tuned.timeline_hash == plain.timeline_hash
    assert tuned.notes == (
        "ring.knobs.json: threads 512 in the time; protocol ll128, channels 8, chunk_bytes 65536 carried, not modelled",
    )


def test_converting_carries_them_for_what_the_program_became(program: Path, tmp_path: Path) -> None:
    given = Knobs(protocol="simple", channels=2, threads=256, chunk_bytes=8192)
    knobs.write(given, program)
    other = tmp_path / "other" / "plan.json"
    other.parent.mkdir()
    paths = ahbm.convert(str(program), other)
    assert paths == [other, other.with_name("plan.knobs.json")]
    assert knobs.read(other) == given
    assert json.loads(paths[1].read_text())["program"] == knobs.digest(other) != knobs.digest(program)


def test_a_trace_has_one_set_of_knobs_for_the_files_of_its_ranks(program: Path, tmp_path: Path) -> None:
    knobs.write(Knobs(channels=2), program)
    paths = ahbm.convert(str(program), tmp_path / "trace.et")
    assert paths[-1] == tmp_path / "trace.knobs.json"
    for name in ("trace.et", "trace.0.et"):
        assert run(tmp_path / name).notes == ("trace.knobs.json: channels 2 in the time",)


def test_threads_change_nothing_where_math_takes_no_time(program: Path) -> None:
    knobs.write(Knobs(threads=64), program)
    machine = {"topology": "npu_ring_8", "overrides": {"system.sips.count": 4}}
    tuned = run(program, **machine)
    assert tuned.notes == ("ring.knobs.json: none in the time; threads 64 carried, not modelled",)
    assert tuned.timeline_hash == run(program, **machine, knobs=False).timeline_hash


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("a.xml", "a"), ("a.b.json", "a.b"), ("a.et", "a"), ("a.12.et", "a"), ("a.1.xml", "a.1"), ("a", "a")],
)
def test_the_name_of_knobs_is_that_of_the_program(name: str, wanted: str) -> None:
    assert knobs.beside(Path("folder") / name) == Path("folder") / f"{wanted}.knobs.json"


def test_the_command_line_says_what_the_knobs_did(program: Path) -> None:
    knobs.write(Knobs(channels=2), program)
    out = CliRunner().invoke(app, ["run", str(program), "--size", "64K", "--no-data"])
    assert out.exit_code == 0, out.output
    assert "note: ring.knobs.json: channels 2 in the time" in out.output


def test_knobs_of_another_content_are_refused(program: Path) -> None:
    knobs.write(Knobs(channels=2), program)
    program.write_text(program.read_text() + "\n")
    with pytest.raises(FormatError, match="AHBM-F199"):
        run(program)
    assert run(program, knobs=False)


@pytest.mark.parametrize(
    "changed",
    [
        {"channels": 0},
        {"channels": True},
        {"channels": 1 << 20},
        {"chunk_bytes": -1},
        {"threads": 1.5},
        {"protocol": "LL"},
        {"protocols": "ll"},
        {"protocol": ["ll"]},
        {"threads": 10**400},
    ],
    ids=lambda changed: str(changed)[:30],
)
def test_a_value_that_is_none_is_refused(changed: dict[str, object], program: Path) -> None:
    path = knobs.write(Knobs(), program)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"knobs": changed}))
    with pytest.raises(FormatError, match="AHBM-F188"):
        knobs.read(program)


@pytest.mark.parametrize("text", ["", "[", "[" * 60_000, "{}", '{"version": 2, "program": "", "knobs": {}}', "9" * 999])
def test_what_is_no_set_of_knobs_is_refused(text: str, program: Path) -> None:
    knobs.beside(program).write_text(text)
    with pytest.raises(FormatError, match="AHBM-F188"):
        knobs.read(program)


def test_a_long_file_is_not_read(program: Path) -> None:
    with knobs.beside(program).open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(FormatError, match="AHBM-F101"):
        knobs.read(program)


def test_the_schema_is_that_of_the_reader(program: Path) -> None:
    text = (packaged.SCHEMAS / "knobs.schema.json").read_text(encoding="utf-8")
    assert text == knobs.schema(), "run python scripts/schemas.py"
    schema = json.loads(text)
    written = json.loads(knobs.text(Knobs(protocol="ll", channels=1, threads=2, chunk_bytes=3), program))
    assert set(written) == set(schema["required"])
    assert set(written["knobs"]) == set(schema["properties"]["knobs"]["properties"])


def test_bench_and_runs_by_the_name_of_the_file_have_the_knobs_too(program: Path) -> None:
    knobs.write(Knobs(channels=2, threads=256), program)
    wanted = run(program)
    by_name = ahbm.run("all_reduce", str(program), bytes_per_rank=wanted.bytes, data=False)
    assert (by_name.latency_ns, by_name.notes) == (wanted.latency_ns, wanted.notes)
    size = str(wanted.bytes)
    for line in (["bench", str(program)], ["bench", "all_reduce", "-a", str(program)]):
        out = CliRunner().invoke(app, [*line, "--sizes", size, "--json"])
        assert json.loads(out.output)["results"][0]["in_place"]["time"] == pytest.approx(wanted.latency_ns / 1000)
        assert wanted.notes[0] in CliRunner().invoke(app, [*line, "--sizes", size]).output


@pytest.mark.parametrize("other", ["other.xml", "ring_allreduce"])
def test_threads_of_one_plan_are_not_the_machine_of_another(other: str, program: Path) -> None:
    if other.endswith(".xml"):
        other = str(program.with_name(other))
        Path(other).write_bytes(program.read_bytes())
    knobs.write(Knobs(threads=64), program)
    failed = CliRunner().invoke(app, ["bench", "all_reduce", "-a", str(program), "-a", other, "--sizes", "64K"])
    assert "AHBM-C178 the knobs of ring change the machine" in str(failed.exception)
