"""A rule of ccl.yaml for another number of ranks than a call has: the call says so."""

from __future__ import annotations

from pathlib import Path

import pytest

import ahbm
from ahbm.job.transformer import Transformer
from support.plans import ring


def ccl(folder: Path, *rules: str) -> Path:
    (folder / "ring.xml").write_text(ring(4))
    path = folder / "ccl.yaml"
    entry = f"algorithms:\n  four: {{plan: {folder / 'ring.xml'}}}\n"
    path.write_text(f"{entry}collectives:\n  all_reduce: [{', '.join(rules)}]\n")
    return path


def told(report: ahbm.Report) -> list[str]:
    return [note for note in report.notes if "the rule" in note]


@pytest.mark.parametrize("ranks", [4, 8])
def test_a_rule_for_other_ranks_is_told(ranks: int, tmp_path: Path) -> None:
    config = ccl(tmp_path, "{ranks: 4, algorithm: four}", "{algorithm: ring_allreduce}")
    overrides = {"system.sips.count": ranks}
    report = ahbm.run("all_reduce", topology="npu_ring_8", ccl=config, overrides=overrides, bytes_per_rank=4096)
    assert report.algorithm == ("four" if ranks == 4 else "ring_allreduce")
    assert told(report) == ([] if ranks == 4 else ["the rule 'four of 4 ranks' is not for 8 ranks"])


def test_a_rule_that_is_not_reached_is_not_told(tmp_path: Path) -> None:
    config = ccl(tmp_path, "{max_bytes: 64, ranks: 4, algorithm: four}", "{algorithm: ring_allreduce}")
    report = ahbm.run("all_reduce", topology="npu_ring_8", ccl=config, bytes_per_rank=4096)
    assert told(report) == []


def test_a_job_tells_of_rules_that_no_call_meets(tmp_path: Path) -> None:
    job = Transformer(layers=1, hidden=64, heads=4, sequence=16, vocabulary=64, tp=2).workload()
    job.write(tmp_path / "step")
    config = ccl(tmp_path, "{ranks: 4, algorithm: four}", "{algorithm: ring_allreduce}")
    report = ahbm.open(tmp_path / "step", topology="npu_ring_8", ccl=config, overrides={"system.sips.count": 2}).run()
    assert "no all_reduce meets the rule 'four of 4 ranks'" in report.notes
