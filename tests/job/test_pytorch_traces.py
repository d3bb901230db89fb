"""Traces of PyTorch through every door: the command line, `ahbm.open`, `Workload.read`."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ahbm
from ahbm._core import Workload, trace_sort
from ahbm.cli import app
from ahbm.errors import BudgetError, ConfigError, FormatError
from ahbm.job.replay import JobReport
from ahbm.job.transformer import Transformer
from support.packed import repeated, zstandard

RING = "npu_ring_8"
REAL = Path(os.environ.get("AHBM_CORPUS", "")) / "real_traces"
corpus = pytest.mark.skipif("AHBM_CORPUS" not in os.environ, reason="the public traces are not at hand: AHBM_CORPUS")


def profile(rank: int, world: int = 2, steps: int = 2, gap: float = 500.0) -> dict[str, Any]:
    """Steps of a kernel of 10 us, an all_reduce of 1 MiB that it hides in part, and a kernel of 20 us behind it."""
    events: list[dict[str, Any]] = []
    ts = 1706850122846038.125 + 1000 * rank

    def add(cat: str, name: str, start: float, us: float, **args: object) -> None:
        events.append({"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": us, "args": args})

    def launch(name: str, us: float, stream: int, start: float, **facts: object) -> None:
        correlation = len(events)
        add("cuda_runtime", "cudaLaunchKernel", ts, 2, correlation=correlation)
        add("kernel", name, start, us, stream=stream, device=0, correlation=correlation, **facts)

    for step in range(steps):
        begin = ts
        launch("gemm", 10, 7, ts + 5)
        facts = {"Collective name": "allreduce", "In msg nelems": 1 << 19, "dtype": "Half", "Group size": world}
        launch("ncclDevKernel_AllReduce_Sum_f16_RING_LL", 300, 24, ts + 15, **facts)
        ts += gap
        launch("gemm", 20, 7, ts + 5)
        ts += 50
        add("user_annotation", f"ProfilerStep#{step + 3}", begin, ts - begin)
    groups = [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [*range(world)], "pg_size": world}]
    info = {"backend": "nccl", "rank": rank, "world_size": world, "pg_config": groups}
    return {"schemaVersion": 1, "distributedInfo": info, "traceEvents": events}


def write(folder: Path, ranks: int = 2, of: int = 2, **how: Any) -> Path:
    for rank in range(ranks):
        text = json.dumps(profile(rank, of, **how)).encode()
        (folder / f"rank{rank}_trace.json.gz").write_bytes(gzip.compress(text))
    return folder / "rank0_trace.json.gz"


def replayed(path: Path, **terms: Any) -> JobReport:
    report = ahbm.open(path, topology=RING, **terms).run()
    assert isinstance(report, JobReport)
    return report


def test_a_file_or_a_folder_is_a_job(tmp_path: Path) -> None:
    path = write(tmp_path)
    assert trace_sort(path) == trace_sort(tmp_path) == "job"
    one, folder = replayed(path), replayed(tmp_path)
    assert one.times_hash == folder.times_hash and one.job == "rank0_trace"
    assert [rank.compute_ns for rank in one.ranks] == [60_000.0, 60_000.0]
    assert [(call.collective, call.bytes, call.dtype) for call in one.calls] == [("all_reduce", 1 << 20, "f16")] * 2
    assert any("2 steps, all are replayed: 3, 4" in finding.message for finding in one.warnings)


def test_one_step_and_the_gaps_of_the_host(tmp_path: Path) -> None:
    path = write(tmp_path)
    step = replayed(path, step=4)
    assert len(step.calls) == 1 and [rank.compute_ns for rank in step.ranks] == [30_000.0] * 2
    assert not any(finding.code == "AHBM-F186" for finding in step.warnings)
    kept = replayed(path, step=4, host_gaps=True)
    assert step.latency_ns < 500_000 < kept.latency_ns
    with pytest.raises(FormatError, match="AHBM-F187"):
        replayed(path, step=9)


def test_what_was_recorded_stands_beside_what_is_simulated(tmp_path: Path) -> None:
    path = write(tmp_path)
    both, step, kept = replayed(path), replayed(path, step=4), replayed(path, step=4, host_gaps=True)
    assert both.recorded is not None and step.recorded is not None and kept.recorded is not None
    assert both.recorded.ranks_ns == pytest.approx([1_070_000, 1_070_000], abs=500)
    assert step.recorded.ranks_ns == pytest.approx([520_000, 520_000], abs=500)
    assert step.recorded.host_gaps_ns == kept.latency_ns - step.latency_ns and kept.recorded.host_gaps_ns is None
    gaps = f"{step.recorded.host_gaps_ns / 1e6:.3g} ms of the host's gaps are left out (--host-gaps)"
    assert step.notes[0] == f"recorded 0.52 ms; {gaps}" and f"note: {step.notes[0]}" in str(step)
    assert kept.notes[0] == "recorded 0.52 ms; the host's gaps are in the simulated time"
    assert step.notes[0] in step.explain().text() or step.notes[0] in step.beside
    assert step.to_json()["recorded"]["host_gaps_ns"] == step.recorded.host_gaps_ns


def test_the_recorded_time_is_that_of_the_ranks_that_are_replayed(tmp_path: Path) -> None:
    write(tmp_path)
    expected = replayed(tmp_path).recorded
    early = {"ph": "X", "cat": "kernel", "name": "ncclKernel_SendRecv", "pid": 0, "tid": 24, "ts": 1, "dur": 9}
    for rank in range(2):
        document = json.loads(gzip.decompress((old := tmp_path / f"rank{rank}_trace.json.gz").read_bytes()))
        document["traceEvents"].append({**early, "args": {"stream": 24, "correlation": 1 << 40}})
        (tmp_path / f"host_{4100 - rank}.170000000000{rank}.pt.trace.json").write_text(json.dumps(document))
        old.unlink()
    report = replayed(tmp_path / "host_4100.1700000000000.pt.trace.json")
    assert len(report.ranks) == 2 and report.recorded == expected
    assert any("2 kernels are left out" in finding.message for finding in report.warnings)


def test_a_trace_may_be_packed_by_zstandard(tmp_path: Path) -> None:
    expected = replayed(write(tmp_path))
    for rank in range(2):
        text = gzip.decompress((old := tmp_path / f"rank{rank}_trace.json.gz").read_bytes())
        (tmp_path / f"rank{rank}_trace.json.zst").write_bytes(zstandard(text + b" " * (1 << 18)))
        old.unlink()
    path = tmp_path / "rank0_trace.json.zst"
    found = replayed(path)
    assert (found.times_hash, found.recorded, found.job) == (expected.times_hash, expected.recorded, "rank0_trace")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(FormatError, match=r"AHBM-F132.*Zstandard"):
        replayed(path)
    path.write_bytes(repeated(b'{"traceEvents": [', b" ", 200))
    with pytest.raises(BudgetError, match="AHBM-B203"):
        replayed(path)


def test_a_job_that_nobody_profiled_has_no_recorded_time(tmp_path: Path) -> None:
    job = Transformer(layers=1, hidden=64, heads=4, sequence=16, vocabulary=64, tp=2).workload()
    job.write(tmp_path / "step")
    report = ahbm.open(tmp_path / "step", topology=RING).run()
    assert isinstance(report, JobReport)
    assert report.recorded is None and not any("recorded" in note for note in report.notes)


def test_a_job_needs_all_ranks_or_is_symmetric(tmp_path: Path) -> None:
    path = write(tmp_path, ranks=1, of=4)
    with pytest.raises(FormatError, match=r"AHBM-F185 .*4 ranks; 3 have no trace: 1, 2, 3"):
        replayed(path)
    report = replayed(path, symmetric=True)
    assert len(report.ranks) == 4 and len({rank.compute_ns for rank in report.ranks}) == 1
    assert Workload.read(path, symmetric=True).notes[0]["code"] == "AHBM-F186"


def test_terms_of_jobs_are_refused_elsewhere(tmp_path: Path) -> None:
    for terms in ({"step": 3}, {"host_gaps": True}, {"symmetric": True}):
        with pytest.raises(ConfigError, match="AHBM-C146"):
            ahbm.open("all_reduce", **terms).run()
    chakra = {"nodes": [{"id": 1, "name": "c", "node_type": "coll_comm_node", "comm_type": "ALL_REDUCE"}]}
    (tmp_path / "c.json").write_text(json.dumps(chakra), encoding="utf-8")
    with pytest.raises(ConfigError, match="AHBM-C146"):
        ahbm.open(tmp_path / "c.json", step=3).run()


def test_bytes_that_are_no_trace_are_findings(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(FormatError, match="AHBM-F132"):
        replayed(path)
    bomb = b'{"traceEvents": [' + b" " * (1 << 24) + b"]}"
    path.write_bytes(gzip.compress(bomb))
    with pytest.raises(BudgetError, match="AHBM-B203"):
        replayed(path)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "explain", "report"])
def test_commands_take_traces(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path)
    monkeypatch.chdir(tmp_path)
    options = ["--step", "3", "-t", RING]
    result = CliRunner().invoke(app, [command, str(path), *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert result.output if command != "report" else (tmp_path / "report.html").exists()


@pytest.mark.slow
@corpus
def test_a_recorded_step_is_the_job_that_was_made_of_it() -> None:
    direct, made = replayed(REAL / "megatron_tp8_kineto"), replayed(REAL / "megatron_tp8")
    assert direct.latency_ns == made.latency_ns and len(direct.calls) == 84
    assert direct.ranks == made.ranks
    ring = ahbm.open(REAL / "megatron_tp8_kineto", topology=RING, algorithm="ring_allreduce").run()
    assert 300e6 < ring.latency_ns < 330e6
    # The recording took 595 to 631 ms; with the host's gaps the replay does too.
    assert 590e6 < replayed(REAL / "megatron_tp8_kineto", algorithm="ring_allreduce", host_gaps=True).latency_ns < 632e6


def alone(groups: dict[str, int], host_us: float = 30.0) -> dict[str, Any]:
    """One rank's step in a world of one: three kernels of 10 us, a reduction without a kernel behind each of the first
    two per group and its bytes, and an optimizer that waits for all."""
    events: list[dict[str, Any]] = []
    host, device = 1000.0, 1000.0

    def add(cat: str, name: str, start: float, us: float, **args: object) -> None:
        events.append({"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": us, "args": args})

    def kernel(name: str) -> None:
        nonlocal host, device
        add("cuda_runtime", "cudaLaunchKernel", host, 2, correlation=len(events) + 1)
        device = max(device, host + 2)
        add("kernel", name, device, 10, stream=7, device=0, correlation=len(events))
        host, device = host + host_us, device + 10

    for number in range(2):
        kernel(f"backward {number}")
        for group, size in groups.items():
            facts = {
                "Collective name": "allreduce",
                "In msg nelems": size // 4,
                "Out msg nelems": size // 4,
                "dtype": "Float",
            }
            add("cpu_op", "c10d::allreduce_", host, 10)
            stated = {"Group size": 1, "Process Group Name": group, "Process Group Description": group}
            add("cpu_op", "record_param_comms", host + 1, 8, **facts, **stated)
            add("cuda_runtime", "cudaStreamWaitEvent", host + 2, 1)
            host += host_us
    kernel("backward 2")
    for _ in range(2 * len(groups)):
        add("cuda_runtime", "cudaStreamWaitEvent", host, 1)
        host += 2
    kernel("optimizer")
    info = {"backend": "nccl", "rank": 0, "world_size": 1}
    return {"schemaVersion": 1, "distributedInfo": info, "traceEvents": events}


def test_one_ranks_record_is_the_step_of_many(tmp_path: Path) -> None:
    path = tmp_path / "rank0_trace.json"
    path.write_text(json.dumps(alone({"dp": 1 << 20})))
    alone_ns = ahbm.run("all_reduce", topology=RING, bytes_per_rank=1 << 20, dtype="f32").latency_ns
    step = replayed(path, replicas=8)
    assert [(call.collective, call.ranks, call.bytes) for call in step.calls] == [("all_reduce", 8, 1 << 20)] * 2
    # The second reduction begins when the second kernel and the first reduction have ended; what follows waits for it.
    assert alone_ns > 10_000
    assert step.latency_ns == pytest.approx(10_000 + 2 * alone_ns + 10_000, abs=1e-3)
    for rank in step.ranks:
        assert rank.compute_ns == 40_000
        assert rank.compute_ns + rank.exposed_ns == pytest.approx(step.latency_ns, abs=1e-3)


def test_one_ranks_record_is_itself_before_it_is_scaled(tmp_path: Path) -> None:
    path = tmp_path / "rank0_trace.json"
    path.write_text(json.dumps(alone({"dp": 1 << 20}, host_us=200)))
    for terms in ({}, {"host_gaps": True}):
        assert replayed(path, replicas=1, **terms).latency_ns == replayed(path, **terms).latency_ns
    step = replayed(path, replicas=1, host_gaps=True)
    assert step.recorded is not None
    assert step.latency_ns == pytest.approx(step.recorded.mean_ns, rel=0.03)


def test_dimensions_of_a_mesh_besides_replicas_stay_one_rank(tmp_path: Path) -> None:
    path = tmp_path / "rank0_trace.json"
    path.write_text(json.dumps(alone({"mesh_dp": 1 << 20, "mesh_tp": 1 << 16})))
    step = replayed(path, replicas=4)
    assert {(call.group, call.bytes, call.ranks) for call in step.calls} == {("mesh_dp", 1 << 20, 4)}
    assert any("groups of one rank are left out" in finding.message for finding in step.warnings)


def test_marks_of_editors_and_nulls_do_no_harm(tmp_path: Path) -> None:
    expected = replayed(write(tmp_path)).times_hash
    for rank in range(2):
        old = tmp_path / f"rank{rank}_trace.json.gz"
        document = json.loads(gzip.decompress(old.read_bytes()))
        document["traceEvents"].append(None)
        (tmp_path / f"rank{rank}_trace.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(document).encode())
        old.unlink()
    assert replayed(tmp_path / "rank0_trace.json").times_hash == replayed(tmp_path).times_hash == expected


def test_kernels_that_communicate_by_themselves_are_named(tmp_path: Path) -> None:
    """They are no calls of a library: their recorded time, waiting included, is computing."""
    assert not any("communicate" in finding.message for finding in replayed(write(tmp_path)).warnings)
    name = "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)"
    for rank in range(2):
        document = json.loads(gzip.decompress((tmp_path / f"rank{rank}_trace.json.gz").read_bytes()))
        kernel = next(event for event in document["traceEvents"] if event["name"] == "gemm")
        kernel["name"] = name
        (tmp_path / f"rank{rank}_trace.json.gz").write_bytes(gzip.compress(json.dumps(document).encode()))
    (told,) = [w.message for w in replayed(tmp_path).warnings if "communicate" in w.message]
    assert told.endswith("waited for other ranks: vllm::cross_device_reduce_1stage")
