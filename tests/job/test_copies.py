"""Jobs whose ranks are copies of each other, of which one is replayed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ahbm
from ahbm._core import Workload
from ahbm.cli import app
from ahbm.config.topology import with_ranks
from ahbm.errors import BudgetError
from ahbm.job.replay import JobReport
from ahbm.job.transformer import Transformer
from ahbm.ranks.calls import kinds

STEP = Transformer(
    layers=8, hidden=1024, sequence=128, tp=8, pp=4, dp=128, micro_batches=32, zero=1, sequence_parallel=True
)


def run(job: Workload, machine: str = "h100_2_nodes", **settings: float) -> JobReport:
    report = ahbm.open(job, topology=machine, overrides=with_ranks(job.ranks, machine, dict(settings))).run()
    assert isinstance(report, JobReport)
    return report


@pytest.fixture(scope="module")
def large() -> JobReport:
    return run(STEP.workload())


def test_one_of_many_copies_is_replayed_and_all_are_counted(large: JobReport) -> None:
    job = large.asked.workload
    assert (job.ranks, job.copies) == (4096, 1024)
    assert (large.simulated, len(large.ranks)) == (4, 4096)
    assert {job.leads[rank.rank] for rank in large.ranks} == {0, 1024, 2048, 3072}
    of_stage = {(rank.rank // 1024, rank.total_ns) for rank in large.ranks}
    assert len(of_stage) == 4, "ranks of a stage take the same"
    calls = {(row.collective, row.ranks): row.calls for row in large.rows()}
    # Forth and back, each of 3 borders, 32 micro-batches, 1,024 ranks of a stage.
    assert calls["send_recv", 2] == 2 * 3 * 32 * 1024
    assert sum(calls.values()) == sum(call.copies for call in large.calls) == large.performed.count
    assert f"{large.performed.count} calls" in str(large)


@pytest.mark.parametrize(
    ("machine", "cut"),
    [
        ("dgx_h100", {"dp": 4, "tp": 2}),
        ("h100_2_nodes", {"dp": 2, "tp": 4, "pp": 2, "micro_batches": 4, "zero": 1}),
        # Trees tell three ranks apart: all ranks are replayed.
        ("gb200_nvl72", {"dp": 3, "tp": 2}),
        ("npu_mesh_8x8", {"dp": 4, "tp": 4}),
    ],
)
def test_one_of_few_copies_tells_the_same_as_all_of_them(machine: str, cut: dict[str, int]) -> None:
    step = Transformer(layers=4, hidden=512, sequence=128, **cut)
    whole, thin = (run(step.workload(thin=thin), machine) for thin in (False, True))
    for of in (
        lambda report: (report.latency_ns, report.ranks, report.calibration, report.performed.count),
        lambda report: [(row.collective, row.ranks, row.calls, row.bytes, row.time_ps) for row in report.rows()],
        lambda report: (report.times_hash, report.shares(), report.topology),
    ):
        assert of(thin) == of(whole)


def test_calls_are_counted_by_kind_as_their_records_say(large: JobReport) -> None:
    report = run(Transformer(layers=2, hidden=512, sequence=128, dp=2, tp=2).workload(), "dgx_h100")
    for each in (large, report):
        assert list(each.performed.kinds().items()) == list(kinds(each.calls).items())


def test_fewer_replicas_take_the_same_until_they_reduce(large: JobReport) -> None:
    """A job that is small enough to be whole, of the same stages."""
    few = run(Transformer(**{**STEP.__dict__, "dp": 2}).workload())
    assert few.asked.workload.copies == 1
    kinds = [
        {(row.collective, row.ranks): row.time_ps / row.calls for row in report.rows() if row.ranks in (2, 8)}
        for report in (large, few)
    ]
    for kind in set(kinds[0]) & {("all_gather", 8), ("reduce_scatter", 8)}:
        assert kinds[0][kind] == pytest.approx(kinds[1][kind], rel=1e-3)
    # The optimizer has a smaller part of the parameters.
    assert large.ranks[0].compute_ns <= few.ranks[0].compute_ns


def test_what_needs_every_rank_says_so(large: JobReport, tmp_path: Path) -> None:
    with pytest.raises(BudgetError, match="AHBM-B127"):
        large.program()
    with pytest.warns(UserWarning, match="without the machine"):
        large.write_timeline(tmp_path / "ranks.json")
    events = json.loads((tmp_path / "ranks.json").read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event.get("name") == "process_name"}
    assert names == {"run", "rank 0", "rank 1024", "rank 2048", "rank 3072"}


def test_a_network_that_tells_copies_apart_replays_all_ranks() -> None:
    """On a mesh no two ranks are alike: the whole job is replayed."""
    job = Transformer(layers=40, hidden=64, sequence=8, tp=1, dp=64, micro_batches=96).workload()
    assert job.copies == 64
    report = run(job, "npu_mesh_8x8", **{"pe.roofline.peak_tflops": 100, "pe.roofline.memory_gbs": 1000})
    assert (report.simulated, report.asked.workload.copies) == (64, 1)


def test_a_step_runs_without_being_written() -> None:
    def of(words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, words.split())
        return done.exit_code, done.output

    status, text = of("job run --layers 2 --hidden 64 --dp 2 --json")
    assert (status, json.loads(text)["job"], len(json.loads(text)["ranks"])) == (0, "step", 2)
    for wrong in ("job new --layers 2 --hidden 64 -t npu_ring_8 -o x", "job run --layers 2 --hidden 64 -o x", "job go"):
        assert of(wrong)[0] != 0
