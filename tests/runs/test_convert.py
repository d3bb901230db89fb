"""`ahbm convert` and `ahbm.convert`: what is written means what was read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ahbm
from ahbm._core import read_plan
from ahbm.cli import app
from ahbm.errors import ConfigError, FormatError, UnsupportedError
from ahbm.runs import plans
from ahbm.runs.verdict import check_file
from support.plans import FOUR, TOPOLOGY, all_gather, document, ring, step


@pytest.fixture
def ring_xml(tmp_path: Path) -> Path:
    path = tmp_path / "ring.xml"
    path.write_text(ring(4))
    return path


def test_a_trace_of_a_plan_runs_like_the_plan(ring_xml: Path, tmp_path: Path) -> None:
    written = ahbm.convert(ring_xml, tmp_path / "traced.et", size="64K")
    assert [path.name for path in written] == [f"traced.{rank}.et" for rank in range(4)]
    checked = check_file(tmp_path / "traced")
    assert (checked.verdict, checked.format, checked.collective, checked.min_slots) == (
        "correct",
        "chakra",
        "all_reduce",
        2,
    )
    runs = [
        plans.run(path, TOPOLOGY, bytes_per_rank=1 << 16, overrides=FOUR)
        for path in (ring_xml, written[1], tmp_path / "traced")
    ]
    assert [run.wrong for run in runs] == [0, 0, 0]
    assert len({(run.timeline_hash, run.program_hash) for run in runs}) == 1


def test_there_and_back(ring_xml: Path, tmp_path: Path) -> None:
    ahbm.convert(ring_xml, tmp_path / "again.xml")
    ahbm.convert(ring_xml, tmp_path / "traced.et", link_order=True)
    ahbm.convert(tmp_path / "traced.et", tmp_path / "back.xml")
    assert (tmp_path / "back.xml").read_text() == (tmp_path / "again.xml").read_text()


def test_the_command(ring_xml: Path, tmp_path: Path) -> None:
    run = CliRunner().invoke
    result = run(app, ["convert", str(ring_xml), str(tmp_path / "t.et"), "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["files"] == [str(tmp_path / f"t.{rank}.et") for rank in range(4)]
    result = run(app, ["convert", str(ring_xml), str(tmp_path / "t.xml")])
    assert result.stdout == f"{tmp_path / 't.xml'}: {(tmp_path / 't.xml').stat().st_size} bytes\n"
    for arguments, error, code in [
        (["t.txt"], UnsupportedError, "AHBM-U291"),
        (["no/t.xml"], FormatError, "AHBM-F102"),
        (["t.et", "--size", "1001"], FormatError, "AHBM-F127"),
        (["t.et", "--limit", "ranks"], ConfigError, "AHBM-C147"),
    ]:
        found = run(app, ["convert", str(ring_xml), str(tmp_path / arguments[0]), *arguments[1:]]).exception
        assert isinstance(found, error)
        assert found.findings[0].code == code


def test_what_would_be_lost_is_refused(tmp_path: Path) -> None:
    """A wait that nothing ends is a deadlock of the plan; a graph has no words for it."""
    path = tmp_path / "waits.xml"
    path.write_text(all_gather(2, inplace=0).replace('depid="-1" deps="-1"', 'depid="0" deps="0"', 1))
    with pytest.raises(UnsupportedError) as caught:
        ahbm.convert(path, tmp_path / "t.et")
    assert caught.value.findings[0].code == "AHBM-U292"
    assert caught.value.findings[0].sites[0].origin == f"{path}:2"
    assert not list(tmp_path.glob("t.*"))


def test_roots_are_kept(tmp_path: Path) -> None:
    """MSCCL-IR roots at rank 0, a trace at any rank: what one cannot say is refused, what both can is run."""
    block = '<tb id="0" send="{}" recv="{}" chan="0">{}</tb>'
    gpus = [
        '<gpu id="0" i_chunks="1" o_chunks="1" s_chunks="0">'
        + block.format(1, -1, step(0, "s", "i:0", "o:0"))
        + "</gpu>",
        '<gpu id="1" i_chunks="1" o_chunks="1" s_chunks="0">'
        + block.format(-1, 0, step(0, "r", "i:0", "o:0"))
        + "</gpu>",
    ]
    path = tmp_path / "broadcast.xml"
    path.write_text(document(2, 1, "broadcast", gpus))
    ahbm.convert(path, tmp_path / "t.et")
    assert read_plan(str(tmp_path / "t")).root == 0
    two = {"system.sips.count": 2}
    assert plans.run(tmp_path / "t.et", TOPOLOGY, bytes_per_rank=64, overrides=two).wrong == 0
    for trace in tmp_path.glob("t.*.et"):
        # int64_val (field 9) of "root" is 0 here, and 1 there.
        data = trace.read_bytes()
        assert b"root\x48\x00" in data
        trace.write_bytes(data.replace(b"root\x48\x00", b"root\x48\x01"))
    assert read_plan(str(tmp_path / "t")).root == 1
    assert check_file(tmp_path / "t").verdict == "wrong"
    assert plans.run(tmp_path / "t.et", TOPOLOGY, bytes_per_rank=64, overrides=two).wrong
    with pytest.raises(UnsupportedError) as caught:
        ahbm.convert(tmp_path / "t.et", tmp_path / "t.xml")
    assert caught.value.findings[0].code == "AHBM-U292"


@pytest.mark.parametrize("slots", [2, 3])
def test_all_three_formats_in_a_circle(ring_xml: Path, tmp_path: Path, slots: int) -> None:
    last = ring_xml
    for name in ("a.et", "b.json", "c.et", "d.xml", "e.json"):
        ahbm.convert(last, tmp_path / name, slots=slots)
        last = tmp_path / name
        assert check_file(last).verdict == "correct", name
    assert plans.run(last, TOPOLOGY, bytes_per_rank=1 << 12, overrides=FOUR).wrong == 0
