"""Profiles in which no GPU computes: of the CPU with gloo, of other devices and libraries, in folders of ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ahbm
from ahbm.errors import FormatError
from ahbm.job.replay import JobReport
from support.commands import run

Event = dict[str, Any]


def event(category: str, name: str, ts: float, us: float, thread: int = 1, **args: Any) -> Event:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, "ts": ts, "dur": us, "args": args}


def profile(path: Path, events: list[Event], rank: int = 0, world: int = 2) -> Path:
    groups = [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": world, "ranks": list(range(world))}]
    info = {"backend": "gloo", "rank": rank, "world_size": world, "pg_count": 1, "pg_config": groups}
    path.write_text(json.dumps({"schemaVersion": 1, "distributedInfo": info, "traceEvents": events}))
    return path


def reduce(ts: float, until: float, library: str = "gloo") -> list[Event]:
    """An operator issues it, a thread of the library performs it."""
    dims = {"Input Dims": [[[1000]], [], [], [], [], []], "Input type": ["TensorList", "", "", "", "Scalar", "Scalar"]}
    own = {"Input Dims": [[1000]], "Input type": ["float"], "Concrete Inputs": [""]}
    return [
        event("cpu_op", "c10d::allreduce_", ts, 20.0, **dims),
        event("user_annotation", f"{library}:all_reduce", ts + 5, until - ts - 5, 9, **own),
    ]


def job(folder: Path, events: list[Event], **options: Any) -> JobReport:
    for rank in range(2):
        profile(folder / f"rank{rank}_trace.json", events, rank)
    report = ahbm.open(folder / "rank0_trace.json", topology="npu_ring_8", **options).run()
    assert isinstance(report, JobReport)
    return report


def test_operators_are_what_a_rank_computes(tmp_path: Path) -> None:
    """The call overlaps with what ran before it ended, and what began later waits for it."""
    inner = event("cpu_op", "aten::addmm", 10, 20)
    events = [event("cpu_op", "aten::linear", 0, 100), inner, *reduce(100, 500), event("cpu_op", "aten::relu", 130, 50)]
    report = job(tmp_path, [*events, event("cpu_op", "aten::sum", 510, 40)])
    (call,) = report.calls
    assert (call.collective, call.bytes, call.dtype, call.ranks) == ("all_reduce", 4000, "f32", 2)
    assert {rank.compute_ns for rank in report.ranks} == {190_000}
    # The call, of about a microsecond, ends while relu computes.
    assert report.latency_ns == pytest.approx(190_000, abs=1)
    assert "no device computes" in str(report.warnings[0])


def test_what_waits_for_a_call_begins_when_it_has_ended(tmp_path: Path) -> None:
    events = [event("cpu_op", "a", 0, 100), *reduce(100, 120), event("cpu_op", "b", 121, 50)]
    report = job(tmp_path, events)
    assert report.latency_ns > 150_500 and report.ranks[0].exposed_ns > 0


def test_an_operator_around_a_call_is_computing_without_it(tmp_path: Path) -> None:
    """DDP issues its calls from within operators of the backward pass."""
    report = job(tmp_path, [event("cpu_op", "backward", 0, 100), *reduce(40, 300)])
    assert {rank.compute_ns for rank in report.ranks} == {80_000}


def test_the_hosts_gaps_count_where_they_are_asked_for(tmp_path: Path) -> None:
    events = [event("cpu_op", "a", 0, 100), event("cpu_op", "b", 150, 100), *reduce(260, 300)]
    plain, gaps = job(tmp_path, events), job(tmp_path, events, host_gaps=True)
    assert gaps.latency_ns - plain.latency_ns == pytest.approx(60_000)


def test_the_profile_of_a_run_under_ahbm_is_read(tmp_path: Path) -> None:
    assert [call.bytes for call in job(tmp_path, reduce(0, 15, "ahbm")).calls] == [4000]


def test_a_step_of_a_cpu_profile(tmp_path: Path) -> None:
    steps = [event("user_annotation", f"ProfilerStep#{at}", 1000 * at, 900) for at in range(2)]
    events = [call for at in range(2) for call in reduce(1000 * at + 10, 1000 * at + 100)]
    assert len(job(tmp_path, [*steps, *events]).calls) == 2
    assert len(job(tmp_path, [*steps, *events], step=1).calls) == 1


def test_an_empty_profile_says_what_it_has(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="AHBM-F184") as caught:
        job(tmp_path, [event("python_function", "main", 0, 10), event("Trace", "x", 0, 10)])
    assert "python_function" in str(caught.value)


FACTS = {"Collective name": "allreduce", "In msg nelems": 500, "dtype": "Half", "Group size": 2}


@pytest.mark.parametrize(
    ("category", "runtime", "name", "args"),
    [
        ("mtia_ccp_events", "mtia_runtime", "matmul", {}),
        ("hpu_op", "privateuse1_runtime", "node_fc", {}),
        ("kernel", "xpu_runtime", "gemm", {"device": 0, "queue": 3}),
        ("kernel", "hip_runtime", "Cijk_Ailk_Bljk", {"device": 0, "stream": 3}),
    ],
)
def test_kernels_of_other_devices(tmp_path: Path, category: str, runtime: str, name: str, args: dict[str, Any]) -> None:
    events = [
        event(runtime, "launch", 0, 2, correlation=1),
        event(category, name, 10, 40, 7, correlation=1, **args),
        event(runtime, "launch", 5, 2, correlation=2),
        event(category, "nccl_kernel_all_reduce", 60, 500, 8, correlation=2, **args, **FACTS),
    ]
    report = job(tmp_path, events)
    assert {rank.compute_ns for rank in report.ranks} == {40_000} and [call.bytes for call in report.calls] == [1000]


@pytest.mark.parametrize(
    "name", ["ncclDevKernel_Generic_1(x<4096ul>)", "mscclKernel_Sum_half_Simple", "oneccl_allreduce_x"]
)
def test_kernels_of_libraries_of_collectives(tmp_path: Path, name: str) -> None:
    """What it does is said by the operator that launched it, where its name does not."""
    facts = {key: value for key, value in FACTS.items() if key != "Collective name"}
    events = [
        event("cpu_op", "record_param_comms", 0, 9, **FACTS),
        event("cuda_runtime", "launch", 5, 2, correlation=2),
        event("kernel", name, 60, 500, 8, correlation=2, device=0, stream=8, **facts),
    ]
    assert [call.bytes for call in job(tmp_path, events).calls] == [1000]


def test_folders_of_ranks(tmp_path: Path) -> None:
    """Some tools write a folder for each rank."""
    for rank in range(2):
        folder = tmp_path / "traces" / f"rank_{rank}"
        folder.mkdir(parents=True)
        profile(folder / "step.json", reduce(0, 50), rank)
    code, out, err = run("ahbm", ["run", "traces", "-t", "npu_ring_8"], tmp_path)
    assert code == 0 and "2 ranks" in out and "1 calls" in out, err
