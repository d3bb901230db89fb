"""`ahbm explain CODE`: what an error means, where it was met."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ahbm._core import codes
from ahbm.cli import app
from ahbm.errors import AhbmError
from support.commands import run

OF_RUN = ("--set", "-t", "-a", "--size", "--ranks", "--trace")
COMMANDS = {
    code: example.strip("`").removeprefix("ahbm ").split()
    for code, _, example, _ in codes()
    if re.fullmatch(r"`(ahbm (?!new ring)|--?)[^`]*`", example) and not re.search(r"plan\.xml|\.et\b", example)
}
"""Examples that are a whole command, or an option of `ahbm run`."""


@pytest.mark.parametrize("spelled", ["AHBM-L108", "L108", "l108"])
def test_a_code_is_explained_as_it_is_met(spelled: str, tmp_path: Path) -> None:
    code, out, _ = run("ahbm", ["explain", spelled], tmp_path)
    assert code == 0 and out.startswith("AHBM-L108: ") and "exit code 6" in out and "docs/errors.md#l-lints" in out
    facts = json.loads(run("ahbm", ["explain", spelled, "--json"], tmp_path)[1])
    assert (facts["error"], facts["exit_code"]) == ("LintError", 6)
    assert facts["example"] in out and facts["advice"] in out and "buffer_kind" in facts["advice"]


def test_codes_near_one_that_there_is_not_are_named(tmp_path: Path) -> None:
    code, _, err = run("ahbm", ["explain", "K999"], tmp_path)
    assert code == 3 and "there is no code AHBM-K999" in err and "did you mean AHBM-K" in err
    assert run("ahbm", ["explain", "Q101"], tmp_path)[0] == 3
    told = run("ahbm", ["explain", "all_redcue"], tmp_path)[2]
    assert "all_redcue is no collective" in told and "did you mean all_reduce" in told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "line"),
    [(code, line) for code, line in COMMANDS.items() if not line[0].startswith("-") or line[0] in OF_RUN],
)
def test_an_example_leads_to_its_code(
    code: str, line: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one_row.csv").write_text("# op: all_reduce\n# ranks: 8\nbytes,time_us\n1024,10\n", encoding="utf-8")
    given = line if not line[0].startswith("-") else ["run", "all_reduce", *line]
    failed = CliRunner().invoke(app, given)
    # `ahbm check` tells of each file what is wrong, and raises nothing.
    said = failed.exception.code if isinstance(failed.exception, AhbmError) else failed.output
    assert failed.exit_code and code in said


def test_there_are_examples_to_follow() -> None:
    assert len(COMMANDS) > 20
