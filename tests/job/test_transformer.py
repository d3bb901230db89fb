"""Generated jobs: made from a manifest or options, written, read and replayed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ahbm
from ahbm._core import Workload
from ahbm.errors import ConfigError
from ahbm.job.models import like, names, source
from ahbm.job.replay import JobReport
from ahbm.job.transformer import Transformer, read_manifest, transformer_of
from support.commands import run

SMALL = Transformer(layers=4, hidden=64, heads=4, sequence=32, vocabulary=100, micro_batches=2)
ROOF = {"pe.roofline.peak_tflops": 10, "pe.roofline.memory_gbs": 1000}


def replayed(prefix: Path) -> JobReport:
    report = ahbm.open(prefix, topology="npu_ring_8", overrides=ROOF).run()
    assert isinstance(report, JobReport)
    return report


@pytest.mark.parametrize(
    "cut",
    [
        {"tp": 2, "pp": 2, "dp": 2},
        {"tp": 2, "pp": 2, "dp": 2, "sequence_parallel": True, "zero": 3, "schedule": "gpipe"},
        {"dp": 4, "tp": 2, "ep": 2, "experts": 4, "ffn": 32, "sequence_parallel": True, "zero": 1},
        {"pp": 4, "dp": 2, "zero": 2, "recompute": True},
        {},
    ],
)
def test_every_way_of_cutting_is_replayed(cut: dict[str, Any], tmp_path: Path) -> None:
    job = Transformer(**{**vars(SMALL), **cut}).workload()
    files = job.write(tmp_path / "step")
    assert len(files) == job.ranks + (job.ranks > 1)
    again = Workload.read(tmp_path / "step")
    told = [(call.collective, call.group, call.ranks, call.bytes, call.op, call.dtype) for call in job.calls]
    assert told == [(call.collective, call.group, call.ranks, call.bytes, call.op, call.dtype) for call in again.calls]
    assert (again.ranks, again.nodes, again.graphs) == (job.ranks, job.nodes, job.graphs)
    report = replayed(tmp_path / "step")
    assert report.untimed == 0 and report.latency_ns > 0
    for rank in report.ranks:
        assert rank.compute_ns > 0


def test_a_pipeline_has_its_bubble(tmp_path: Path) -> None:
    """(p - 1) / m of the ideal time is lost (Narayanan et al. 2021, section 2.2)."""
    times = []
    for micro_batches in (4, 8, 16):
        of = Transformer(layers=4, hidden=256, heads=4, sequence=256, vocabulary=1, pp=4, micro_batches=micro_batches)
        of.workload().write(tmp_path / f"m{micro_batches}")
        report = replayed(tmp_path / f"m{micro_batches}")
        times.append(report.latency_ns)
    # Every further micro-batch costs the slowest stage's pass; what is left is the bubble of three passes and an end.
    assert times[2] - times[1] == pytest.approx(2 * (times[1] - times[0]), rel=0.02)
    assert times[0] - (times[1] - times[0]) > 0.5 * (times[1] - times[0])


def test_a_manifest_and_options_that_replace_it(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text("layers: 2\nhidden: 64\nheads: 4\nsequence: 16\ndp: 2\nsequence_parallel: false\n")
    code, out, err = run(
        "ahbm", ["job", "new", "m.yaml", "--layers", "4", "--fsdp", "-o", "out.et", "--json", "-d", "float"], tmp_path
    )
    told = json.loads(out)
    assert (code, told["ranks"], told["files"]) == (0, 2, ["out.0.et", "out.1.et", "out.groups.json"]), err
    job = Workload.read(tmp_path / "out")
    named = transformer_of({**read_manifest(tmp_path / "m.yaml"), "layers": 4, "zero": 3, "dtype": "f32"})
    assert job.nodes == named.workload().nodes
    assert {call.dtype for call in job.calls} == {"f32"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("layers: 4\n", "hidden missing"),
        ("layers: 4\nhiden: 64\n", "hiden"),
        ("layers: x\nhidden: 64\n", "layers is 'x'"),
        ("layers: true\nhidden: 64\n", "layers is 'True'"),
        ("layers: 1\nhidden: -64\n", "hidden is '-64'"),
        ("layers: 1\nhidden: 99999999999999999999999\n", "hidden is"),
        ("layers: 1\nhidden: 18446744073709551615\n", "hidden"),
        ("layers: 1\nhidden: 1.5\n", "hidden is '1.5'"),
        ("layers: 1\nhidden: 64\nrecompute: 1\n", "recompute is '1'"),
        ("layers: 1\nhidden: 64\ndtype: [f16]\n", "dtype is"),
        ("layers: 1\nhidden: 64\ndtype: f12\n", "dtype is"),
        ("layers: 1\nhidden: 64\nschedule: zb\n", "schedule is 'zb'"),
        ("layers: 4\nhidden: 64\npp: 2\nschedule: zbv\n", "virtual_stages of 2"),
        ("layers: 8\nhidden: 64\npp: 4\nvirtual_stages: 2\nschedule: dualpipev\nmicro_batches: 4\n", "twice pp, 8"),
        ("layers: 1\nhidden: 64\nskew: .nan\n", "skew is 'nan'"),
        ("layers: 1\nhidden: 64\nskew: 1.5\n", "skew is 1.5, not a number from 1 to ep, 1"),
        ("layers: 1\nhidden: 64\ndp: 4\nep: 4\nexperts: 8\nskew: 4.5\n", "skew is 4.5, not a number from 1 to ep, 4"),
        ("layers: 1\nhidden: 64\ndp: 4\nzero: 1\nshard: 3\n", "shard is 3, which does not divide"),
        ("layers: 1\nhidden: 64\ndp: 4\nshard: 2\n", "shard needs zero"),
        ("layers: 1\nhidden: 64\ndp: 4\nzero: 3\nprefetch: true\n", "prefetch needs zero"),
        ("layers: 3\nhidden: 64\npp: 2\nzero: 3\nep: 2\n", "pp is 2, which does not divide layers, 3"),
        ("layers: 60000\nhidden: 64\nmicro_batches: 60000\n", "at most"),
        ("- 1\n", "no mapping"),
    ],
)
def test_manifests_that_make_no_job(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(text)
    with pytest.raises(ConfigError) as raised:
        transformer_of(read_manifest(tmp_path / "m.yaml")).workload()
    assert told in str(raised.value)
    assert all(finding.code in ("AHBM-C157", "AHBM-C102") for finding in raised.value.findings)


def test_a_manifest_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="C157"):
        read_manifest(tmp_path / "m.yaml")


@pytest.mark.parametrize(
    "given",
    [["old", "-o", "x"], ["new", "--layers", "1", "--hidden", "64"], ["new", "-o", "x", "--fsdp", "--zero", "1"]],
)
def test_terms_that_do_not_go_together(given: list[str], tmp_path: Path) -> None:
    code, _, err = run("ahbm", ["job", *given], tmp_path)
    assert code == 3 and "AHBM-C146" in err and not list(tmp_path.iterdir())


def test_nothing_is_written_where_it_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ahbm.errors.FormatError, match="F102"):
        SMALL.workload().write(tmp_path / "missing" / "step")


def test_sizes_of_the_border_are_named() -> None:
    words = {"schedule": "1f1b", "recompute": "none", "arithmetic": "f16"}
    with pytest.raises(ConfigError, match="layers is missing"):
        Workload.transformer("x", {}, ("f16", 2), words)
    with pytest.raises(ConfigError, match="1f1b, gpipe"):
        Workload.transformer("x", {}, ("f16", 2), {**words, "schedule": "zb"})


LLAMA = {"kv_heads": 2, "gated": True, "ffn": 96, "unfused": True}


@pytest.mark.parametrize(
    "cut",
    [
        {**LLAMA, "tp": 2, "pp": 2, "dp": 2, "virtual_stages": 2, "sequence_parallel": True, "zero": 1},
        {**LLAMA, "cp": 4, "tp": 2},
        {**LLAMA, "layers": 6, "pp": 4, "dp": 2, "end_layers": 1},
        {"materialized": True, "recompute": "selective", "arithmetic": "f32"},
        {"recompute": "full", "recompute_layers": 1, "arithmetic": "f8", "dp": 8, "zero": 3},
        {"dp": 8, "zero": 3, "shard": 2},
        {"pp": 2, "dp": 4, "zero": 1, "prefetch": True, "schedule": "zb1"},
        {"layers": 8, "pp": 4, "dp": 2, "virtual_stages": 2, "schedule": "zbv", "zero": 2},
        {"layers": 4, "pp": 2, "tp": 2, "virtual_stages": 2, "schedule": "dualpipev", "micro_batches": 5},
    ],
)
def test_steps_of_today_are_replayed_as_they_are_written(cut: dict[str, Any], tmp_path: Path) -> None:
    job = Transformer(**{**vars(SMALL), **cut}).workload()
    job.write(tmp_path / "step")
    written = replayed(tmp_path / "step")
    report = ahbm.open(job, topology="npu_ring_8", overrides=ROOF).run()
    assert isinstance(report, JobReport)
    assert report.times_hash == written.times_hash and report.untimed == 0


def test_virtual_stages_shorten_the_bubble() -> None:
    """With v chunks it is (p - 1) / (m v) of the ideal time (Narayanan et al. 2021, section 2.2)."""
    of = Transformer(layers=8, hidden=256, heads=4, sequence=256, vocabulary=1, pp=4, micro_batches=8)
    took = {}
    for chunks in (1, 2):
        job = replace(of, virtual_stages=chunks).workload()
        report = ahbm.open(job, topology="npu_ring_8", overrides=ROOF).run()
        assert isinstance(report, JobReport)
        computed = max(rank.compute_ns for rank in report.ranks)
        took[chunks] = report.latency_ns - computed
    assert took[2] < 0.75 * took[1]


def test_gradients_of_weights_fill_the_bubble() -> None:
    """(p - 1)(F + B + W), (p - 1)(F + B - W) and less than that (Qi et al. 2024)."""
    of = Transformer(layers=8, hidden=256, heads=4, sequence=256, vocabulary=1, pp=4, micro_batches=8)
    waits = {}
    for schedule, chunks in (("1f1b", 1), ("zb1", 1), ("zbv", 2), ("dualpipev", 2)):
        job = replace(of, schedule=schedule, virtual_stages=chunks).workload()
        report = ahbm.open(job, topology="npu_ring_8", overrides=ROOF).run()
        assert isinstance(report, JobReport)
        waits[schedule] = report.latency_ns - max(rank.compute_ns for rank in report.ranks)
    assert waits["zb1"] < 0.6 * waits["1f1b"] and waits["zbv"] < waits["zb1"] and waits["dualpipev"] < waits["1f1b"]


def test_parameters_that_come_early_lie_behind_the_first_micro_batch() -> None:
    of = Transformer(
        layers=4, hidden=512, heads=4, sequence=512, vocabulary=1, dp=8, zero=1, micro_batches=2, bucket_bytes=1 << 20
    )
    late, early = (
        ahbm.open(replace(of, prefetch=prefetch).workload(), topology="npu_ring_8", overrides=ROOF).run()
        for prefetch in (False, True)
    )
    assert isinstance(early, JobReport) and isinstance(late, JobReport) and early.latency_ns < late.latency_ns


def test_shards_of_a_node_leave_the_network_between_nodes_alone() -> None:
    of = Transformer(layers=2, hidden=512, heads=4, sequence=256, vocabulary=1, dp=16, zero=3, micro_batches=1)
    whole, hybrid = (ahbm.open(replace(of, shard=shard).workload(), topology="h100_2_nodes").run() for shard in (0, 8))
    assert isinstance(whole, JobReport) and isinstance(hybrid, JobReport) and hybrid.latency_ns < whole.latency_ns


def test_products_take_what_their_shape_takes_where_the_machine_has_a_law() -> None:
    """The same operations in narrower products take longer, and f32 takes longer than f16."""
    of = Transformer(layers=2, hidden=1024, heads=8, sequence=512, micro_batches=1)

    def computed(step: Transformer) -> float:
        report = ahbm.open(step.workload(), topology="dgx_h100").run()
        assert isinstance(report, JobReport)
        return report.ranks[0].compute_ns

    assert 8 * computed(replace(of, tp=8)) > 1.3 * computed(of)
    assert computed(replace(of, arithmetic="f32")) > 3 * computed(of)


def test_public_models_are_steps(tmp_path: Path) -> None:
    for name in names():
        values = like(name)
        assert source(name) and transformer_of({**values, "layers": 2, "micro_batches": 1}).workload().nodes
    code, out, err = run(
        "ahbm", ["job", "new", "--like", "llama3-8b", "--layers", "2", "-o", "llama", "--json"], tmp_path
    )
    assert code == 0 and json.loads(out)["ranks"] == 1, err
    code, _, err = run("ahbm", ["job", "new", "--like", "lama3-8b", "-o", "llama"], tmp_path)
    assert code != 0 and "llama3-8b" in err


def test_a_job_in_memory_has_no_options_of_reading() -> None:
    with pytest.raises(ConfigError, match="in memory"):
        ahbm.open(SMALL.workload(), topology="npu_ring_8", step=1)
