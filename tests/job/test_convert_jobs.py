"""Jobs as files: read, written and read again they are the same, whoever wrote them first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ahbm
from ahbm._core import Workload
from ahbm.errors import AhbmError, ConfigError
from ahbm.job.replay import JobReport
from ahbm.runs.measure import prepare
from support.commands import run
from support.traces import attribute, write

RING = "npu_ring_8"
COLLECTIVES = ["allreduce", "allgather", "reduce_scatter", "broadcast"]


def files(paths: list[Path]) -> dict[str, bytes]:
    """The content of each file, by the part of its name behind the prefix."""
    return {path.name.partition(".")[2]: path.read_bytes() for path in paths}


def facts(report: JobReport) -> tuple[Any, ...]:
    calls = [
        (call.collective, call.group, call.ranks, call.bytes, call.start_ns, call.latency_ns) for call in report.calls
    ]
    return report.times_hash, report.latency_ns, calls


def same(source: Path, folder: Path, **terms: Any) -> None:
    """The trace of a source and the trace of that trace are equal byte by byte, and run alike."""
    first = ahbm.convert(source, folder / "first.et")
    again = Workload.read(folder / "first").write(folder / "second")
    assert files(first) == files(again)
    reports = [ahbm.open(path, topology=RING, kind="job", **terms).run() for path in (source, folder / "first")]
    assert all(isinstance(report, JobReport) for report in reports)
    assert facts(reports[0]) == facts(reports[1])


Event = tuple[str, int, int, int, int]
EVENT = st.tuples(
    st.sampled_from(["gemm", *COLLECTIVES]),
    st.integers(7, 9),
    st.integers(0, 400),
    st.integers(0, 60),
    st.integers(1, 999),
)


def kineto(folder: Path, events: list[Event], ranks: int = 2) -> Path:
    """The profiler's traces of ranks that do the same: kernels on streams, collectives among all or each alone."""
    for rank in range(ranks):
        found: list[dict[str, Any]] = []
        ts = 1000.0 * rank
        for number, (what, stream, us, gap, count) in enumerate(events):
            launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": ts, "dur": 1}
            found.append({"ph": "X", **launch, "args": {"correlation": number}})
            args: dict[str, Any] = {"stream": stream, "correlation": number}
            name = what
            if what in COLLECTIVES:
                name = f"ncclDevKernel_{what}_RING_LL(ncclDevComm*)"
                sizes = {"In msg nelems": count * ranks, "Out msg nelems": count * ranks, "dtype": "Float"}
                args |= {"Collective name": what, **sizes, "Group size": ranks, "Process Group Name": "0"}
                args |= {"Process Group Ranks": json.dumps([*range(ranks)]), "Root": 0}
            gpu = {"cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": ts + 5 + gap, "dur": us + 0.125}
            found.append({"ph": "X", **gpu, "args": args})
            ts += us + gap + 10
        info = {"rank": rank, "world_size": ranks}
        (folder / f"rank{rank}.json").write_text(json.dumps({"distributedInfo": info, "traceEvents": found}))
    return folder / "rank0.json"


@settings(max_examples=25, deadline=None)
@given(events=st.lists(EVENT, min_size=1, max_size=20))
def test_the_profilers_traces(events: list[Event], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("kineto")
    same(kineto(folder, events), folder)


def host(folder: Path, calls: list[tuple[str, int]], ranks: int = 2) -> Path:
    """The host's traces: collectives with sizes, types and groups, in between operators."""
    groups = json.dumps([{"pg_name": "0", "ranks": [], "group_size": ranks}])
    tensor, lists = "GenericList[Tensor(c10::Half)]", ["GenericList[]", "GenericList[]"]
    types = [tensor, "Int", "Tuple[String,String]", "Int", "String", *lists, "Int", "Int", "Int"]
    for rank in range(ranks):
        nodes: list[dict[str, Any]] = [{"id": 4, "name": "## process_group:init ##"}]
        nodes[0]["inputs"] = {"values": [groups], "types": ["String"]}
        for at, (name, count) in enumerate(calls, 5):
            values = [[[131, 132, 0, count, 2, "cuda:0"]], 33, ["0", "data"], 0, name, [], [], 0, 1, ranks]
            inputs = {"values": values, "shapes": [], "types": types}
            attrs = [{"name": "dtype", "type": "string", "value": "Half"}]
            nodes.append({"id": at, "name": "record_param_comms", "ctrl_deps": 1, "inputs": inputs, "attrs": attrs})
        content = {"schema": "1.1.1-chakra.0.0.4", "pid": 1, "start_ts": 0, "nodes": nodes}
        (folder / f"host.{rank}.json").write_text(json.dumps(content))
    return folder / "host.0.json"


@settings(max_examples=10, deadline=None)
@given(
    calls=st.lists(st.tuples(st.sampled_from(["allreduce", "broadcast"]), st.integers(1, 999)), min_size=1, max_size=8)
)
def test_the_hosts_traces(calls: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("host")
    same(host(folder, calls), folder)


def test_the_json_form_with_groups_of_several_sizes(tmp_path: Path) -> None:
    """Pairs, a group of four and one of eight in one job."""
    for rank in range(8):
        nodes = []
        for number, ranks in enumerate([[rank & ~1, rank | 1], [*range(rank & ~3, (rank & ~3) + 4)], [*range(8)]]):
            call = [attribute("comm_type", 0), attribute("comm_size", 4096 << number), attribute("dtype", "bf16")]
            call += [
                attribute("pg_name", f"of{len(ranks)}.{ranks[0]}"),
                {"name": "ranks", "int64List": {"values": ranks}},
            ]
            deps = [number - 1] if number else []
            nodes.append(
                {"id": number, "name": f"sum {number}", "type": "COMM_COLL_NODE", "dataDeps": deps, "attr": call}
            )
        write(tmp_path / "step", rank, nodes)
    job = Workload.read(tmp_path / "step.0.json")
    first = job.write(tmp_path / "first")
    again = Workload.read(tmp_path / "first").write(tmp_path / "second")
    assert files(first) == files(again)
    report = ahbm.open(tmp_path / "first", topology=RING).run()
    assert isinstance(report, JobReport) and sorted({call.ranks for call in report.calls}) == [2, 4, 8]
    assert facts(report) == facts(ahbm.open(tmp_path / "step.0.json", topology=RING).run())


def test_the_command(tmp_path: Path) -> None:
    kineto(tmp_path, [("gemm", 7, 10, 0, 1), ("allreduce", 8, 10, 0, 64)])
    code, out, err = run("ahbm", ["convert", "rank0.json", "step.et", "--json"], tmp_path)
    assert (code, err) == (0, "")
    assert {Path(file).name for file in json.loads(out)["files"]} >= {"step.0.et", "step.1.et"}
    for arguments, wanted in [
        (["rank0.json", "step.xml"], "AHBM-U292"),
        (["rank0.json", "step.et", "--size", "1K"], "AHBM-C146"),
        (["step.0.et", "other.et", "--symmetric"], "AHBM-C146"),
        (["step.0.et", "other.et", "--replicas", "2"], "AHBM-C146"),
        (["rank0.json", "step.et", "--step", "3"], "AHBM-F1"),
    ]:
        code, out, err = run("ahbm", ["convert", *arguments], tmp_path)
        assert code not in (0, 1) and wanted in err, err
    code, out, err = run("ahbm", ["convert", "step.0.et", "other.et", "-t", "npu_ring_8"], tmp_path)
    assert code not in (0, 1) and "AHBM-C146" in err and "is a job: it takes no collective, topology" in err, err
    assert not (tmp_path / "other.0.et").exists()
    code, out, err = run("ahbm", ["convert", "rank0.json", "four.et", "--replicas", "4", "--json"], tmp_path)
    assert (code, err) == (0, "") and {Path(file).name for file in json.loads(out)["files"]} >= {"four.3.et"}
    assert Workload.read(tmp_path / "four").ranks == 4


def test_an_unknown_version_of_the_schema_is_told_once(tmp_path: Path) -> None:
    facts = [attribute("comm_type", 0), attribute("comm_size", 64)]
    for rank in range(3):
        write(tmp_path / "step", rank, [{"id": 0, "name": "all", "type": "COMM_COLL_NODE", "attr": facts}], "9.9.9")
    report = ahbm.open(tmp_path / "step.0.json", topology=RING).run()
    assert isinstance(report, JobReport)
    assert [(warning.code, warning.sites[0].label) for warning in report.warnings] == [("AHBM-F182", "rank 0")]
    assert ahbm.features(tmp_path / "step.0.json", topology=RING).warnings == report.warnings
    for form, where in (([], 1), (["--json"], 1), (["--csv"], 2)):
        assert "AHBM-F182" in run("ahbm", ["features", "step.0.json", *form], tmp_path)[where]  # type: ignore[operator]
    for rank in range(3):
        write(tmp_path / "step", rank, [{"id": 0, "name": "all", "type": "COMM_COLL_NODE", "attr": facts}], "1.0.0")
    assert not ahbm.open(tmp_path / "step.0.json", topology=RING).run().warnings


def test_run_takes_files(tmp_path: Path) -> None:
    facts = [attribute("comm_type", 0), attribute("comm_size", 64)]
    for rank in range(2):
        path = write(tmp_path / "step", rank, [{"id": 0, "name": "all", "type": "COMM_COLL_NODE", "attr": facts}])
    opened = ahbm.open(path, topology=RING, algorithm="tree_allreduce").run()
    for target in (path, str(path)):
        report: object = ahbm.run(target, "tree_allreduce", RING)
        assert isinstance(report, JobReport) and isinstance(opened, JobReport)
        assert report.times_hash == opened.times_hash and report.calls[0].algorithm == "tree_allreduce"
        with pytest.raises(ConfigError) as refused:
            ahbm.run(target, check="all")
        assert refused.value.code == "AHBM-C146"
    with pytest.raises(ConfigError) as error:
        prepare(str(path))
    assert error.value.findings[0].hint == f"ahbm.open({str(path)!r}) opens a file"
    with pytest.raises(AhbmError) as error:
        ahbm.run("all_reduc")
    assert "all_reduce" in str(error.value)


def test_a_target_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is a job is asked of the file a single time, however often the answer is used."""
    import ahbm.job.open as opening

    facts = [attribute("comm_type", 0), attribute("comm_size", 64)]
    path = write(tmp_path / "step", 0, [{"id": 0, "name": "all", "type": "COMM_COLL_NODE", "attr": facts}])
    asked: list[object] = []
    sort = opening.trace_sort
    monkeypatch.setattr(opening, "trace_sort", lambda *a, **k: (asked.append(a), sort(*a, **k))[1])
    opened = ahbm.open(path, topology=RING)
    assert not opened.measured and opened.is_job
    opened.run()
    assert len(asked) == 1
