"""Jobs as graphs: lanes, costs by the roofline, answers, checks, the best algorithm per call."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ahbm
from ahbm._core import Workload, trace_sort, write_recording
from ahbm.cli import app
from ahbm.config.topology import load_machine
from ahbm.errors import AhbmError, ConfigError
from ahbm.job.best import best
from ahbm.job.checking import check_job
from ahbm.job.reading import AS_IT_IS, How
from ahbm.job.replay import JobReport, replay
from ahbm.ranks.setup import Setup
from support import rings


def node(number: int, kind: str, after: list[int], name: str = "", **facts: Any) -> dict[str, Any]:
    arms = {int: "int64Val", str: "stringVal", float: "doubleVal", bool: "boolVal"}
    attributes = [
        {"name": key, "int64List": {"values": value}}
        if isinstance(value, list)
        else {"name": key, arms[type(value)]: value}
        for key, value in facts.items()
    ]
    return {"id": number, "name": name or kind, "type": f"{kind}_NODE", "dataDeps": after, "attr": attributes}


def written(folder: Path, *ranks: list[dict[str, Any]]) -> Path:
    head = {"version": "0.0.4", "attr": [{"name": "world_size", "int32Val": len(ranks)}]}
    for rank, nodes in enumerate(ranks):
        (folder / f"job.{rank}.json").write_text("\n".join(map(json.dumps, (head, *nodes))))
    return folder / "job.0.json"


def replayed(path: Path, how: How = AS_IT_IS, **overrides: object) -> JobReport:
    return replay(path, "job", Setup("npu_ring_8", None, overrides or None), how)


def comp(number: int, after: list[int], us: float, name: str = "", **facts: Any) -> dict[str, Any]:
    return node(number, "COMP", after, name, duration_ns=us * 1000, **facts)


def test_lanes_say_what_runs_side_by_side(tmp_path: Path) -> None:
    work = [comp(0, [], 5.0, stream=7), comp(1, [], 3.0, stream=8), comp(2, [], 2.0, is_cpu_op=True), comp(3, [1], 1.0)]
    path = written(tmp_path, work)
    taken = {
        lanes: replayed(path, How(lanes=lanes)).latency_ns for lanes in ("unlimited", "device", "streams", "astra")
    }
    assert taken == {"unlimited": 5000, "device": 9000, "streams": 5000, "astra": 9000}
    with pytest.raises(ConfigError, match="AHBM-C205"):
        replayed(path, How(lanes="few"))


def test_one_communication_at_a_time(tmp_path: Path) -> None:
    facts = {"comm_type": 0, "comm_size": 1 << 20}
    calls = [node(number, "COMM_COLL", [], ranks=[0, 1], pg_name=f"{number + 1}", **facts) for number in range(2)]
    path = written(tmp_path, calls, calls)
    side, after = (replayed(path, How(lanes=lanes)) for lanes in ("device", "astra"))
    assert (side.together, after.together) == (2, 0)
    assert {stretch.what for stretch in after.path} == {"call"}


def test_ranks_that_a_lane_holds_in_different_calls(tmp_path: Path) -> None:
    """The job is sound, but with one communication at a time the ranks enter their calls as they become ready."""
    calls = [
        node(number + 2, "COMM_COLL", [number], ranks=[0, 1], pg_name=f"{number + 1}", comm_type=0, comm_size=8)
        for number in range(2)
    ]
    ranks = [[comp(0, [], 1.0 + rank), comp(1, [], 2.0 - rank), *calls] for rank in range(2)]
    path = written(tmp_path, *ranks)
    assert replayed(path, How(lanes="unlimited")).latency_ns > 2000
    work = [[comp(0, [], 1.0 + rank), comp(1, [], 2.0 - rank, is_cpu_op=True), *calls] for rank in range(2)]
    with pytest.raises(AhbmError, match="AHBM-D102") as caught:
        replayed(written(tmp_path, *work), How(lanes="astra"))
    assert [site.label for site in caught.value.sites] == [
        'rank 0 waits in all_reduce of group "1", for rank 1',
        'rank 1 waits in all_reduce of group "2", for rank 0',
    ]


def test_computations_without_a_duration_take_what_the_roofline_says(tmp_path: Path) -> None:
    work = [
        node(0, "COMP", [], num_ops=10**9, tensor_size=1000),
        node(1, "COMP", [0], num_ops=1000, tensor_size=10**6),
        node(2, "COMP", [1], num_ops=1, tensor_size=1),
        node(3, "COMP", [2]),
    ]
    report = replayed(written(tmp_path, work), **{"pe.roofline.peak_tflops": 2, "pe.roofline.memory_gbs": 100})
    # 10^9 operations at 2e12 a second, 10^6 bytes at 100e9 a second, one byte.
    assert report.ranks[0].total_ns == pytest.approx(500_000 + 10_000 + 0.01)
    assert report.untimed == 1
    assert "1 computations take no time: they state none\n" in f"{report}\n"


def test_a_computation_of_a_class_takes_what_the_machine_says_of_it(tmp_path: Path) -> None:
    """The class and its dimensions go from a recording to the machine; one without a law takes the roofline."""
    sheet = {"pe.roofline.peak_tflops": 2, "pe.roofline.memory_gbs": 100}
    law = sheet | {"compute.units": 108, "compute.clock_mhz": 1410, "compute.l2_mib": 40}
    dims = [1, 1000, 1000, 500]
    facts: list[tuple[str, int | str | list[int]]] = [("num_ops", 10**9), ("tensor_size", 4 * 10**6)]
    of = [("kernel_kind", "product"), ("kernel_dims", dims)]
    path = write_recording(tmp_path / "r", 0, 1, [("COMP_NODE", "mm", [], 0, 0, [*facts, *of])])
    plain, known = (load_machine("npu_ring_8", overrides) for overrides in (sheet, law))
    one = {"operations": 10**9, "nbytes": 4 * 10**6}
    assert plain.compute is None and known.compute is not None
    assert known.compute.values["units"] == 108 and known.compute.fit is None
    for machine, overrides in ((plain, sheet), (known, law)):
        ps = machine.kernel_ps("mm", **one, kind="product", dims=dims)
        assert machine.kernels_ps([("product", dims, *one.values(), "f16", False)] * 2) == [ps, ps]
        assert replayed(path, **overrides).ranks[0].total_ns == ps / 1000
    assert known.kernel_ps("mm", **one) == plain.kernel_ps("mm", **one, kind="product", dims=dims) == 500_000_000
    assert known.kernel_ps("mm", **one, kind="product", dims=dims) > 500_000_000
    for code, refused in (("C205", {"kind": "gemm"}), ("C129", {"dims": [1] * 11}), ("C129", {"dims": [-1]})):
        with pytest.raises(ConfigError, match=f"AHBM-{code}"):
            known.kernel_ps("mm", **one, **refused)
    with pytest.raises(ConfigError, match="AHBM-C205"):
        known.kernels_ps([("gemm", [], 1, 1, "f16", False)])


def test_computations_by_name_take_another_time(tmp_path: Path) -> None:
    path = written(tmp_path, [comp(0, [], 4.0, "gemm_1"), comp(1, [0], 2.0, "norm")])
    assert replayed(path, How(factors=[("gemm", 0.5)])).latency_ns == 4000
    shown = CliRunner().invoke(app, ["run", str(path), "-t", "npu_ring_8", "--compute", "gemm=2", "--json"])
    assert json.loads(shown.stdout)["latency_ns"] == 10_000
    bad = CliRunner().invoke(app, ["run", str(path), "--compute", "gemm"])
    assert isinstance(bad.exception, ConfigError) and bad.exception.code == "AHBM-C146"


def step(rank: int) -> list[dict[str, Any]]:
    facts = {"comm_type": 0, "comm_size": 1 << 20, "dtype": "f16"}
    return [
        comp(0, [], 10.0 + 5 * rank, "forward"),
        node(1, "COMM_COLL", [0], "all_reduce", **facts),
        comp(2, [0], 20.0, "next layer"),
        comp(3, [1, 2], 5.0, "optimizer"),
    ]


def test_exposed_time_is_that_of_its_calls(tmp_path: Path) -> None:
    report = replayed(written(tmp_path, *(step(rank) for rank in range(4))))
    for rank in report.ranks:
        own = [part for part in report.exposed if part.rank == rank.rank]
        assert sum(part.exposed_ns for part in own) == pytest.approx(rank.exposed_ns)
        assert sum(part.waiting_ns for part in own) == pytest.approx(rank.waiting_ns)
    # The last rank computes until 25 us; what follows is the call, then the optimizer.
    assert [(stretch.what, stretch.node) for stretch in report.path] == [
        ("compute", "forward"),
        ("call", "all_reduce"),
        ("compute", "optimizer"),
    ]
    assert report.path[0].rank == 3 and report.path[0].end_ns == 25_000
    assert sum(stretch.end_ns - stretch.start_ns for stretch in report.path) == pytest.approx(report.latency_ns)


def test_twice_gives_the_same(tmp_path: Path) -> None:
    path = written(tmp_path, *(step(rank) for rank in range(4)))
    assert replayed(path) == replayed(path)


def test_a_trace_says_whether_it_is_a_job(tmp_path: Path) -> None:
    assert trace_sort(written(tmp_path, step(0))) == "job"
    (tmp_path / "plan.json").write_text('{"name": "x", "collective": "allreduce", "gpus": []}')
    assert trace_sort(tmp_path / "plan.json") == "none"
    ends = [
        [node(0, "COMM_SEND", [], comm_dst=1, comm_size=8, comm_tag=0)],
        [node(0, "COMM_RECV", [], comm_src=0, comm_size=8)],
    ]
    for rank, nodes in enumerate(ends):
        (tmp_path / f"p2p.{rank}.json").write_text("\n".join(map(json.dumps, ({"version": "0.0.4"}, *nodes))))
    path = tmp_path / "p2p.0.json"
    assert trace_sort(path) == "either"
    assert isinstance(ahbm.open(path, topology="npu_ring_8", kind="job").run(), JobReport)
    assert not isinstance(ahbm.open(path, topology="npu_ring_8").run(), JobReport)


def test_ranks_share_graphs(tmp_path: Path) -> None:
    path = written(tmp_path, *(step(0) for _ in range(8)))
    workload = Workload.read(path)
    assert (workload.ranks, workload.graphs, workload.nodes, len(workload.calls)) == (8, 1, 32, 1)


def test_lenient_reading_opens_circles(tmp_path: Path) -> None:
    path = written(tmp_path, [comp(0, [2], 1.0), comp(1, [0], 1.0), comp(2, [1, 77], 1.0)])
    with pytest.raises(AhbmError, match="AHBM-F134"):
        replayed(path)
    report = ahbm.open(path, topology="npu_ring_8", reading=ahbm.config.reading.Reading(lenient=True)).run()
    assert [warning.code for warning in report.warnings] == ["AHBM-F134", "AHBM-F135"]
    assert report.latency_ns == 3000


def test_check_says_what_is_wrong_with_a_job(tmp_path: Path) -> None:
    sound = written(tmp_path, *(step(rank) for rank in range(2)))
    answer = check_job(sound, Setup("npu_ring_8"))
    assert (answer.verdict, answer.format, answer.ranks, answer.ops) == ("correct", "job", 2, 8)
    facts = {"comm_type": 0, "comm_size": 8, "ranks": [0, 1]}
    first = [node(0, "COMM_COLL", [], pg_name="1", **facts), node(1, "COMM_COLL", [0], pg_name="2", **facts)]
    second = [node(0, "COMM_COLL", [], pg_name="2", **facts), node(1, "COMM_COLL", [0], pg_name="1", **facts)]
    crossed = written(tmp_path, first, second)
    shown = CliRunner().invoke(app, ["check", str(crossed), "-t", "npu_ring_8"])
    assert shown.exit_code == 7 and "AHBM-D102" in shown.stdout
    short = written(tmp_path, first, first[:1])
    assert check_job(short, Setup("npu_ring_8")).verdict == "malformed"


@pytest.mark.slow
def test_the_best_algorithm_for_every_call(tmp_path: Path) -> None:
    facts = {"comm_type": 0, "dtype": "f32"}
    sizes = (256, 1 << 22)
    nodes = [
        node(number, "COMM_COLL", [number - 1] if number else [], comm_size=size, **facts)
        for number, size in enumerate(sizes)
    ]
    path = written(tmp_path, *(nodes for _ in range(8)))
    setup = Setup("npu_ring_8", None, None, "tree_allreduce")
    found = best(Workload.read(path), "job", setup)
    assert found.after.latency_ns < found.before.latency_ns
    assert sum(choice.saves_ns for choice in found.choices) == pytest.approx(
        found.before.latency_ns - found.after.latency_ns
    )
    assert all(choice.saves_ns == 0 for choice in found.choices if choice.best == choice.algorithm)
    singles = [
        replay(path, "job", Setup("npu_ring_8", None, None, name)).latency_ns
        for name in ("ring_allreduce", "tree_allreduce")
    ]
    assert found.after.latency_ns <= min(singles)
    shown = CliRunner().invoke(app, ["run", str(path), "-t", "npu_ring_8", "-a", "tree_allreduce", "--best"])
    assert shown.exit_code == 0 and "instead of tree_allreduce" in shown.stdout
    refused = CliRunner().invoke(app, ["run", "all_reduce", "--best"])
    assert isinstance(refused.exception, ConfigError) and refused.exception.code == "AHBM-C146"


@pytest.mark.slow
def test_a_choice_that_changes_nothing_saves_nothing(tmp_path: Path) -> None:
    sizes = (1 << 16, 1 << 20)
    calls = [
        node(n, "COMM_COLL", [n - 1] * n, comm_size=size, comm_type=0, dtype="f32") for n, size in enumerate(sizes)
    ]
    path = written(tmp_path, *(calls for _ in range(8)))
    rules = "[{max_bytes: 65536, algorithm: all_pairs_allreduce}, {algorithm: tree_allreduce}]"
    (tmp_path / "ccl.yaml").write_text(f"collectives: {{all_reduce: {rules}}}", encoding="utf-8")
    large, small = best(Workload.read(path), "job", Setup("npu_switch_8", tmp_path / "ccl.yaml"), candidates=1).choices
    assert large.best != large.algorithm and large.saves_ns > 0
    assert small.best == small.algorithm == "all_pairs_allreduce" and small.saves_ns == 0


def test_a_run_that_was_recorded_is_a_job_of_messages(tmp_path: Path) -> None:
    """Many of its moments are equal, on both ranks: the critical path has to end all the same."""
    ahbm.run("all_reduce", bytes_per_rank=4096).write_trace(tmp_path / "run")
    report = ahbm.open(tmp_path / "run.0.et", kind="job").run()
    assert len(report.calls) == 32
    assert sum(stretch.end_ns - stretch.start_ns for stretch in report.path) == pytest.approx(report.latency_ns)


@pytest.mark.slow
def test_the_best_algorithm_is_none_that_is_wrong(tmp_path: Path, here: Path) -> None:
    nothing = {"idle": {"missing": 8}, "exponential": {"missing": 8, **rings.OPAQUE["exponential"]}}
    call = node(0, "COMM_COLL", [], comm_size=1 << 16, comm_type=0, dtype="f32")
    path = written(here, *([call] for _ in range(8)))
    entries = {f"algorithms.{name}.module": name for name in rings.write(here, **nothing)}
    found = best(Workload.read(path), "job", Setup("npu_ring_8", None, entries, "tree_allreduce"))
    assert found.choices[0].best not in nothing and found.after.latency_ns < found.before.latency_ns
    assert set(found.wrong) == set(nothing)
    assert "exponential gives wrong results, and was not chosen there" in str(found)
    asked = ["run", str(path), "-t", "npu_ring_8", "-a", "tree_allreduce", "--best"]
    asked += [f"--set={key}={value}" for key, value in entries.items()]
    assert CliRunner().invoke(app, asked).exit_code == 8
