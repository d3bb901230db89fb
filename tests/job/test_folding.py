"""Of ranks that do the same one is simulated, and nothing else changes: every time is that of the whole job."""

from __future__ import annotations

import json
import os
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ahbm._core import Workload
from ahbm.base.request import Request
from ahbm.config.topology import load_machine
from ahbm.core.emulator import Emulator
from ahbm.errors import AhbmError
from ahbm.job.reading import How
from ahbm.job.replay import JobReport, replay
from ahbm.job.transformer import Transformer
from ahbm.ranks.setup import Setup
from support.choosing import compiled
from support.commands import run

STEP = Transformer(layers=4, hidden=256, heads=8, sequence=64, vocabulary=512, micro_batches=2)
CORPUS = Path(os.environ.get("AHBM_CORPUS", "/nonexistent"))


def facts(report: JobReport) -> dict[str, Any]:
    """Everything that a replay says about simulated time, in picoseconds."""
    run = report.replayed
    names = ("ends_ps", "computed_ps", "exposures", "waiting_ps", "exposed_ps", "path", "calls_ps", "untimed")
    found = {name: getattr(run, name) for name in names}
    return {**found, "hash": report.times_hash, "traffic": run.traffic[:2], "calls": report.calls}


def replayed(job: Workload, topology: str, sips: int, how: How, **more: Any) -> JobReport:
    # What is quickest alone need not treat all ranks alike.
    given = {"system.sips.count": sips, "defaults.algorithm": "ring_allreduce", **more}
    return replay(job, "job", Setup(topology, overrides=given), how)


def simulated(job: Workload, topology: str, sips: int, how: How | None = None, **more: Any) -> int:
    """How many ranks are simulated, after a look at all times."""
    how = how or How()
    folded = replayed(job, topology, sips, how, **more)
    whole = replayed(job, topology, sips, changed(how, fold=False), **more)
    assert facts(folded) == facts(whole)
    assert whole.simulated == job.ranks
    return folded.simulated


@pytest.mark.parametrize(
    ("topology", "cut", "left"),
    [
        ("npu_switch_8", {"dp": 8, "tp": 4}, 1),
        ("npu_fully_connected_8", {"dp": 4, "tp": 4}, 1),
        ("npu_switch_8", {"dp": 32, "zero": 3}, 1),
        ("npu_switch_8", {"dp": 4, "pp": 4}, 4),
        ("npu_ring_8", {"dp": 4, "tp": 8, "layers": 24, "hidden": 2048, "heads": 16, "micro_batches": 1}, 8),
        ("npu_ring_8", {"dp": 32}, 1),
    ],
)
def test_equal_ranks_are_simulated_once(topology: str, cut: dict[str, int], left: int) -> None:
    job = changed(STEP, **cut).workload()
    assert simulated(job, topology, job.ranks) == left


def test_a_line_does_not_fold() -> None:
    job = changed(STEP, dp=4, tp=4).workload()
    assert simulated(job, "npu_mesh_4x4", 16) == 16


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    tp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2]),
    dp=st.sampled_from([1, 2, 3, 4]),
    zero=st.integers(0, 3),
    schedule=st.sampled_from(["1f1b", "gpipe"]),
    experts=st.booleans(),
    parallel=st.booleans(),
    recompute=st.booleans(),
    topology=st.sampled_from(["npu_ring_8", "npu_switch_8", "npu_fully_connected_8"]),
    model=st.sampled_from(["cut_through", "flit", "analytic"]),
    lanes=st.sampled_from(["device", "astra", "unlimited"]),
    algorithm=st.sampled_from([None, "ring_allreduce", "tree_allreduce", "recursive_doubling_allreduce"]),
)
def test_folding_changes_no_time(
    tp: int,
    pp: int,
    dp: int,
    zero: int,
    schedule: str,
    experts: bool,
    parallel: bool,
    recompute: bool,
    topology: str,
    model: str,
    lanes: str,
    algorithm: str | None,
) -> None:
    more: dict[str, Any] = {"sequence_parallel": parallel and tp > 1, "recompute": recompute, "schedule": schedule}
    if experts and tp == 1:
        more |= {"ep": dp, "experts": 2 * dp}
    job = changed(STEP, tp=tp, pp=pp, dp=dp, zero=zero, bucket_bytes=1 << 18, **more).workload()
    reduces = any(call.collective == "all_reduce" for call in job.calls)
    setup = Setup(
        topology,
        overrides={"system.sips.count": tp * pp * dp, "system.network_model": model},
        algorithm=algorithm if reduces else None,
    )
    folded, whole = (replay(job, "job", setup, How(lanes=lanes, fold=fold)) for fold in (True, False))
    assert facts(folded) == facts(whole)


def late_job(folder: Path, late: int | None) -> Workload:
    """Four ranks that compute and reduce, twice; rank `late` computes longer."""
    for rank in range(4):
        nodes: list[dict[str, Any]] = []
        for step in range(2):
            took = 7000 + 50 * (rank == late) * (step + 1)
            attr = [{"name": "comm_type", "int64Val": 0}, {"name": "comm_size", "int64Val": 65536}]
            after = [2 * step - 1] if step else []
            compute = {"name": "work", "type": "COMP_NODE", "ctrlDeps": after}
            compute["attr"] = [{"name": "duration_ns", "int64Val": took}]
            nodes.append({"id": 2 * step, **compute})
            call = {"name": "reduce", "type": "COMM_COLL_NODE", "ctrlDeps": [2 * step], "attr": attr}
            nodes.append({"id": 2 * step + 1, **call})
        lines = [json.dumps(document) for document in ({"version": "0.0.4"}, *nodes)]
        (folder / f"job.{rank}.json").write_text("\n".join(lines))
    return Workload.read(folder / "job.0.json")


def test_a_late_rank_stands_for_no_other(tmp_path: Path) -> None:
    even, late = (tmp_path / name for name in ("even", "late"))
    for folder in (even, late):
        folder.mkdir()
    jobs = late_job(even, None), late_job(late, 2)
    assert simulated(jobs[0], "npu_switch_8", 4) == 1
    assert simulated(jobs[1], "npu_switch_8", 4) > 1
    # What a fold that overlooks the late rank would answer is told from what is right.
    overlooked = replayed(jobs[0], "npu_switch_8", 4, How())
    right = replayed(jobs[1], "npu_switch_8", 4, How(fold=False))
    wrong = {name for name, value in facts(right).items() if facts(overlooked)[name] != value}
    assert wrong >= {"ends_ps", "computed_ps", "exposures", "waiting_ps", "path", "calls_ps", "hash"}


@pytest.mark.parametrize(
    "fault",
    [
        {"faults.jitter.latency_ns": 10},
        {"faults.jitter.skew_ns": 10},
        {"faults.links": [{"from": 0, "to": 1, "slowdown": 2}]},
    ],
)
def test_a_machine_with_faults_does_not_fold(fault: dict[str, Any]) -> None:
    job = changed(STEP, dp=4).workload()
    assert simulated(job, "npu_ring_8", 4, **fault) == 4


NETWORKS = ["npu_switch_8", "npu_fully_connected_8", "npu_ring_8", "npu_torus_4x4", "npu_hypercube_16", "npu_mesh_4x4"]


@settings(max_examples=60, deadline=None)
@given(
    topology=st.sampled_from(NETWORKS),
    model=st.sampled_from(["cut_through", "flit"]),
    groups=st.integers(2, 6).flatmap(
        lambda size: st.tuples(*[st.lists(st.integers(0, 7), min_size=size, max_size=size, unique=True)] * 2)
    ),
    collective=st.sampled_from(["all_reduce", "all_gather", "all_to_all", "broadcast", "barrier"]),
    count=st.integers(1, 500),
)
def test_what_the_machine_carries_takes_the_same_time(
    topology: str, model: str, groups: tuple[list[int], list[int]], collective: str, count: int
) -> None:
    """Of two groups, the second of which is the first one moved, every algorithm has the same timeline."""
    one, other = (tuple(sorted(group)) for group in groups)
    emulator = Emulator.load(topology, overrides={"system.network_model": model})
    machine = emulator.machine
    # Groups that two lists happen to be are seldom alike: a translation of the first one is tried, too.
    for target in (other, tuple(sorted((sip + other[0]) % machine.sips for sip in one))):
        if machine.carries(list(one), list(target)):
            requests = [Request(collective, ranks, count) for ranks in (one, target)]
            first, second = (compiled(emulator, request) for request in requests)
            assert emulator.runs_anywhere(first.by)
            assert first.timeline_hash == second.timeline_hash, (one, target)
            assert (first.messages, first.bytes) == (second.messages, second.bytes)
        else:
            assert one != target


def test_a_machine_carries_groups_of_one_size() -> None:
    ring = load_machine("npu_ring_8")
    assert ring.carries([0, 1, 2], [3, 4, 5])
    assert not ring.carries([0, 1, 2], [3, 4, 6])
    assert not ring.carries([0, 1], [3, 4, 5])
    assert not ring.carries([0, 1], [7, 8])
    mesh = load_machine("npu_mesh_4x4")
    assert mesh.carries([0, 1], [0, 1])
    assert not mesh.carries([0, 1], [1, 2])


def test_programs_made_for_other_ranks_are_checked() -> None:
    job = changed(STEP, dp=2, tp=2).workload()
    machine = load_machine("npu_mesh_4x4")
    calls = len(job.calls)
    for wrong in ([0], [calls] * calls, [0] * calls):
        with pytest.raises(AhbmError, match="AHBM-V125"):
            job.replay(machine, [None] * calls, made_for=wrong)


def test_programs_of_another_machine_are_no_calls_of_a_job() -> None:
    job = changed(STEP, dp=4).workload()
    report = replay(job, "job", Setup("npu_switch_8", overrides={"system.sips.count": 4}))
    machine, programs = report.emulator.machine, [made.program for made in report.performed.programs]
    assert max(job.replay(machine, programs).ends_ps) == 1000 * report.latency_ns
    with pytest.raises(AhbmError, match="was made for another machine"):
        job.replay(machine.changed([("system.sips.link.bandwidth_gbs", "200")]), programs)


def test_the_command_says_how_many_ranks_it_simulates(tmp_path: Path) -> None:
    files = changed(STEP, dp=4).workload().write(tmp_path / "step")
    target = [str(files[0]), "-t", "npu_switch_8", "--set", "system.sips.count=4"]
    ran = {flag: run("ahbm", ["run", *target, *flag.split(), "--json"], tmp_path) for flag in ("", "--no-fold")}
    told = {flag: json.loads(output) for flag, (_, output, _) in ran.items()}
    assert told[""]["simulated"] == 1
    assert told["--no-fold"]["simulated"] == 4
    assert told[""]["times_hash"] == told["--no-fold"]["times_hash"]


@pytest.mark.skipif(not CORPUS.is_dir(), reason="AHBM_CORPUS is not set")
@pytest.mark.parametrize("number", range(8))
def test_the_jobs_of_the_corpus(number: int) -> None:
    """Every eighth of the jobs that ASTRA-sim was run on."""
    folders = sorted({path.parent for path in (CORPUS / "astra_sim").rglob("*.0.et")})[number::8]
    compared = 0
    for folder in folders:
        for path in sorted(folder.glob("*.0.et")):
            try:
                job = Workload.read(path)
                if not 0 < job.ranks <= 64 or job.nodes > 20_000:
                    continue
                whole = replayed(job, "npu_ring_8", job.ranks, How(fold=False))
            except AhbmError:
                continue
            assert facts(replayed(job, "npu_ring_8", job.ranks, How())) == facts(whole), path
            compared += 1
    assert compared or not folders


@pytest.mark.parametrize(
    ("cut", "left"),
    [
        ({"tp": 8, "dp": 4}, 1),
        ({"tp": 8, "pp": 2, "dp": 2}, 2),
        ({"tp": 4, "pp": 4, "dp": 2, "sequence_parallel": True, "zero": 1}, 4),
        ({"tp": 8, "dp": 4, "zero": 3}, 1),
        ({"tp": 2, "cp": 4, "dp": 4}, None),
        ({"dp": 32}, 8),
    ],
)
@pytest.mark.parametrize("machine", ["h100_2_nodes", "dgx_a100_2_nodes"])
def test_ranks_of_nodes_are_alike(cut: dict[str, Any], left: int | None, machine: str) -> None:
    job = changed(STEP, kv_heads=8, micro_batches=4, layers=8, **cut).workload()
    found = simulated(job, machine, 32)
    assert left is None or found == left


def test_a_tapered_spine_is_shared_in_turn() -> None:
    """Messages that wait for each other between nodes are those of all ranks."""
    job = changed(STEP, tp=8, dp=4).workload()
    assert simulated(job, "h100_2_nodes", 32, **{"system.sips.nodes.taper": 4}) == 32
