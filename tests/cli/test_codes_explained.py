"""`ahbm explain CODE`: what an error means, where it was met."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.commands import run


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
    assert "unknown collective" in run("ahbm", ["explain", "all_redcue"], tmp_path)[2]
