"""Jobs with other numbers of data-parallel replicas than were recorded."""

from pathlib import Path

import pytest

import ahbm
from ahbm._core import Workload
from ahbm.errors import ConfigError, UnsupportedError
from ahbm.job.transformer import Transformer

PLACES = "system.sips.count"


def step(data: int, **sizes: int) -> Workload:
    return Transformer(layers=2, hidden=256, heads=2, ffn=512, sequence=64, dp=data, **sizes).workload("step")


@pytest.mark.parametrize("sizes", [{}, {"tp": 2}, {"tp": 2, "pp": 2}])
def test_a_job_of_two_replicas_takes_the_time_of_four_when_it_has_four(sizes: dict[str, int], tmp_path: Path) -> None:
    ranks = 4
    for size in sizes.values():
        ranks *= size
    reports = []
    for name, data, replicas in (("recorded", 2, 4), ("made", 4, None)):
        step(data, **sizes).write(tmp_path / name)
        opened = ahbm.open(tmp_path / name, topology="npu_switch_8", overrides={PLACES: ranks}, replicas=replicas)
        reports.append(opened.run())
    scaled, made = reports
    assert scaled.latency_ns == made.latency_ns and scaled.rows() == made.rows()
    assert len(scaled.ranks) == ranks
    told = [finding.message for finding in scaled.warnings]
    assert any("4 in place of 2 replicas" in text and "as it was recorded" in text for text in told)


def test_numbers_of_replicas_are_changes_like_others(tmp_path: Path) -> None:
    step(2).write(tmp_path / "step")
    found = ahbm.open(tmp_path / "step", topology="npu_switch_8").what_if({"replicas": 1}, {"replicas": 8})
    assert [len(point.report.ranks) for point in found.points if point.report is not None] == [2, 1, 8]


def test_what_cannot_be_scaled_says_so(tmp_path: Path) -> None:
    step(1, pp=2).write(tmp_path / "stages")
    with pytest.raises(UnsupportedError, match="AHBM-U236 no groups of the job"):
        ahbm.open(tmp_path / "stages", replicas=4).run()
    with pytest.raises(UnsupportedError, match="AHBM-U236"):
        step(2).replicated(1 << 31)
    with pytest.raises(ConfigError, match=r"AHBM-C146.*--replicas"):
        ahbm.open("all_reduce", replicas=2).run()
