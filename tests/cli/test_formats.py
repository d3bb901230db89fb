"""What a CI reads of check, run and bench: each form by its own reader, with the lines of findings."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

import ahbm
from ahbm.cli import app
from ahbm.errors import AhbmError

WRONG = """
def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, dtype="f16"):
    return (n_elem, world_size, dtype)


def kernel(t_ptr, n_elem, n_sips, dtype, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, *, tl):
    right, left = (tl.peer(sip=(sip_rank + step) % n_sips) for step in (1, -1))
    acc = tl.load(t_ptr, shape=(n_elem,), dtype=dtype)
    for _ in range(n_sips - 1):
        tl.send(dir=right, src=acc)
        acc = tl.recv(dir=left, shape=(n_elem,), dtype=dtype)
    tl.store(t_ptr, acc)
"""
COMMANDS = {
    "check": "check -a a,b%wrong.py -t npu_ring_8",
    "run": "run all_reduce -a ring_allreduce -a ./a,b%wrong.py -t npu_ring_8 --size 1K",
    "bench": "bench all_reduce -a ring_allreduce -a ./a,b%wrong.py -t npu_ring_8 --sizes 1K",
}


@pytest.fixture
def wrong(here: Path) -> Path:
    (here / "a,b%wrong.py").write_text(WRONG, encoding="utf-8")
    return here / "a,b%wrong.py"


@pytest.mark.parametrize("command", COMMANDS)
def test_an_annotation_stands_at_the_line_that_is_wrong(
    command: str, wrong: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*COMMANDS[command].split(), "--format", "github"]
    monkeypatch.setattr(sys, "argv", ["ahbm", *words])
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 8
    *lines, last = done.stdout.splitlines()
    assert len(lines) == 1, "findings that differ in ranks alone are one annotation"
    found = re.fullmatch(r"::error file=(.*?),line=(\d+),title=(AHBM-V\d+) (.*?)::(.*)", lines[0])
    assert found is not None and found[1] == "a%2Cb%25wrong.py"
    assert "tl." in WRONG.splitlines()[int(found[2]) - 1] and "%0A" in found[5]
    assert last == ("0 of 1 are right" if command == "check" else "1 of 2 are right")


@pytest.mark.parametrize("command", COMMANDS)
def test_junit_counts_what_failed(command: str, wrong: Path) -> None:
    done = CliRunner().invoke(app, [*COMMANDS[command].split(), "--format", "junit"])
    suite = ElementTree.fromstring(done.stdout)[0]
    cases = suite.findall("testcase")
    failed = [case for case in cases if case.find("failure") is not None]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == (str(len(cases)), "1", "0")
    assert len(failed) == 1 and "wrong.py" in str(failed[0].get("name"))
    assert str(failed[0].find("failure").text).startswith("AHBM-V")  # type: ignore[union-attr]
    if command != "check":
        report = ahbm.run("all_reduce", "ring_allreduce", "npu_ring_8", bytes_per_rank=1024)
        assert float(str(cases[0].get("time"))) == pytest.approx(report.latency_ns / 1e9)


@pytest.mark.parametrize("command", COMMANDS)
def test_sarif_has_rules_and_places(command: str, wrong: Path) -> None:
    done = CliRunner().invoke(app, [*COMMANDS[command].split(), "--format", "sarif"])
    document = json.loads(done.stdout)
    (one,) = document["runs"]
    assert document["version"] == "2.1.0" and one["tool"]["driver"]["version"] == ahbm.__version__
    (result,) = one["results"]
    assert result["ruleId"] in {rule["id"] for rule in one["tool"]["driver"]["rules"]} and result["level"] == "error"
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].endswith("wrong.py") and place["region"]["startLine"] > 1


def test_what_is_right_says_no_error() -> None:
    for kind, text in (("github", "1 of 1 are right"), ("junit", 'failures="0"'), ("sarif", '"results": []')):
        done = CliRunner().invoke(app, ["run", "all_reduce", "-t", "npu_ring_8", "--size", "1K", "--format", kind])
        assert done.exit_code == 0 and text in done.stdout and "error" not in done.stdout.replace('errors="0"', "")


@pytest.mark.parametrize("kind", ["github", "junit", "sarif"])
def test_what_does_not_run_is_in_it_too(kind: str) -> None:
    done = CliRunner().invoke(app, ["run", "all_reduce", "-a", "nowhere", "--format", kind])
    assert isinstance(done.exception, AhbmError) and done.exception.code in done.stdout


def test_a_format_stands_alone() -> None:
    for words in (["--json"], ["--best"]):
        done = CliRunner().invoke(app, ["run", "all_reduce", "--format", "junit", *words])
        assert isinstance(done.exception, AhbmError) and done.exception.code == "AHBM-C146"


def test_two_is_for_options_alone() -> None:
    """A defect has a code of its own."""
    assert CliRunner().invoke(app, ["run", "all_reduce", "--format", "xml"]).exit_code == 2
    codes = {kind.exit_code for kind in [AhbmError, *AhbmError.__subclasses__()]}
    assert 2 not in codes and AhbmError.exit_code == 70


@pytest.mark.slow
def test_a_test_that_fails_shows_no_source_of_this_package(wrong: Path) -> None:
    wrong.with_name("wrong.py").write_text(WRONG, encoding="utf-8")
    text = "def test_mine(run_collective):\n    run_collective('all_reduce', './wrong.py', 'npu_ring_8', elements=4)\n"
    wrong.with_name("test_mine.py").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"],
        cwd=wrong.parent,
        capture_output=True,
        text=True,
    )
    assert "AHBM-V" in done.stdout and "wrong.py:" in done.stdout
    assert "run_collective('all_reduce'" in done.stdout and "python/ahbm" not in done.stdout
    assert "ahbm/runs/" not in done.stdout and "def measure" not in done.stdout
