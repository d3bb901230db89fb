"""Plans of thousands of thread blocks that share memory: whether their accesses are ordered is decided."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ahbm.base.codes import ORDER_UNDECIDED
from ahbm.runs.verdict import Checked, check_file
from support.large import direct, hierarchical


def verdict(path: Path, text: str) -> Checked:
    path.write_text(text)
    return check_file(path)


@pytest.mark.parametrize(("nodes", "between", "blocks"), [(4, 2, 1856), (16, 8, 8192)])
def test_blocks_that_share_scratch_are_decided(nodes: int, between: int, blocks: int, tmp_path: Path) -> None:
    text = hierarchical(nodes, 8, 4, between)
    assert text.count("<tb ") == blocks
    checked = verdict(tmp_path / "plan.xml", text)
    assert (checked.verdict, [finding.code for finding in checked.findings]) == ("correct", [])


@pytest.mark.parametrize("without", [0, 7, 900, 1791])
def test_one_dependency_less_of_many_blocks_is_a_race_with_both_lines(without: int, tmp_path: Path) -> None:
    lines = hierarchical(4, 8, 4, 2, without=without).splitlines()
    (line,) = (number for number, text in enumerate(lines, 1) if "<!--" in text)
    checked = verdict(tmp_path / "plan.xml", "\n".join(lines))
    races = [finding for finding in checked.findings if finding.code == "AHBM-V403"]
    assert checked.verdict in ("wrong", "race") and races
    assert ORDER_UNDECIDED not in [finding.code for finding in checked.findings]
    ends = [[site.origin.rsplit(":", 1)[1] for site in finding.sites] for finding in races]
    assert any(str(line) in pair and len(pair) == 2 for pair in ends)


def test_blocks_that_put_into_each_others_scratch_are_decided(tmp_path: Path) -> None:
    plan = direct(32, 4)
    assert sum(len(gpu["threadblocks"]) for gpu in plan["gpus"]) == 3968
    assert verdict(tmp_path / "plan.json", json.dumps(plan)).verdict == "correct"
    checked = verdict(tmp_path / "early.json", json.dumps(direct(32, 4, waits=False)))
    races = [finding for finding in checked.findings if finding.code == "AHBM-V403"]
    assert checked.verdict in ("wrong", "race") and races
    assert all(len(finding.sites) == 2 for finding in races)
