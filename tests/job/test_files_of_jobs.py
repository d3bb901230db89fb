"""What a replayed job leaves: its timeline, and the trace with the operations of its calls."""

import json
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ahbm
from ahbm._core import Workload
from ahbm.cli import app
from ahbm.config.reading import Reading
from ahbm.errors import BudgetError
from ahbm.job.replay import JobReport

PIPELINE = "--dp 2 --tp 2 --pp 2 --layers 2 --hidden 256 --heads 4 --sequence 128 --micro-batches 2"


def made(folder: Path, shape: str = PIPELINE) -> str:
    name = str(folder / "step")
    done = CliRunner().invoke(app, ["job", "new", *shape.split(), "-o", name])
    assert done.exit_code == 0, done.output
    return name


def run(name: str, **terms: Any) -> JobReport:
    report = ahbm.open(name, **terms).run()
    assert isinstance(report, JobReport)
    return report


def test_the_timeline_shows_every_rank_and_joins_the_parts_of_calls(tmp_path: Path) -> None:
    report = run(made(tmp_path), topology="npu_ring_8")
    path = tmp_path / "timeline.json"
    slices = report.write_timeline(path)
    events = json.loads(path.read_text())["traceEvents"]
    begins = [event for event in events if event["ph"] == "B"]
    assert len(begins) == slices
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    groups = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    assert [name for name in groups.values() if name.startswith("rank ")] == [f"rank {rank}" for rank in range(8)]
    assert not any("host" in name for name in names.values())
    # Computing is there to the picosecond.
    open_at: dict[tuple[int, int], float] = {}
    computed: Counter[str] = Counter()
    for event in events:
        row = (event["pid"], event.get("tid", 0))
        if event["ph"] == "B" and names.get(row) == "computing":
            args = event["args"]
            computed[groups[event["pid"]]] += args.get("end_ps", 0) - args.get("start_ps", 0)
            if "start_ps" not in args:
                open_at[row] = event["ts"]
        elif event["ph"] == "E" and row in open_at:
            computed[groups[event["pid"]]] += round((event["ts"] - open_at.pop(row)) * 1_000_000)
    assert [computed[f"rank {rank.rank}"] for rank in report.ranks] == [
        round(r.compute_ns * 1000) for r in report.ranks
    ]
    # Each call is one flow of as many parts as it has ranks; the other flows are messages of two.
    flows: Counter[int] = Counter(event["id"] for event in events if event["ph"] in "stf" and event["pid"] in groups)
    of_ranks = Counter(e["id"] for e in events if e["ph"] in "st" and groups[e["pid"]].startswith("rank "))
    assert sorted(of_ranks.values()) == sorted(call.ranks for call in report.calls)
    assert set(flows.values()) == {2}


def test_a_job_too_long_for_the_machine_shows_its_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = run(made(tmp_path, "--tp 2 --layers 1 --hidden 64 --heads 2"), topology="npu_ring_8")
    whole = report.write_timeline(tmp_path / "whole.json")
    replayed = report.replayed

    class Long:
        def write_timeline(self, path: Path, ranks_only: bool = False) -> int:
            if not ranks_only:
                raise BudgetError("AHBM-B122", "the run has 99 pieces")
            return replayed.write_timeline(path, ranks_only=True)

    monkeypatch.setitem(vars(report), "replayed", Long())
    with pytest.warns(UserWarning, match="shows the ranks without the machine: the run has 99 pieces"):
        assert 0 < report.write_timeline(tmp_path / "ranks.json") < whole
    monkeypatch.undo()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report.write_timeline(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "whole.json").read_bytes()


@pytest.mark.parametrize("topology", ["npu_ring_8", "npu_switch_8"])
@pytest.mark.parametrize("shape", ["--dp 4 --tp 2", "--dp 2 --tp 2 --pp 2", "--dp 4 --zero 3"])
def test_the_merged_trace_is_a_job_of_the_same_work(tmp_path: Path, topology: str, shape: str) -> None:
    step = made(tmp_path, f"{shape} {PIPELINE[PIPELINE.index('--layers') :]}")
    ring = {"algorithm": "ring_allreduce"}
    report = run(step, topology=topology, overrides=ring)
    files = report.write_trace(tmp_path / "merged")
    assert [file.name for file in files] == [f"merged.{rank.rank}.et" for rank in report.ranks]
    assert ahbm.open(tmp_path / "merged", topology=topology).is_job
    merged = run(str(tmp_path / "merged"), topology=topology)
    assert {call.collective for call in merged.calls} == {"send_recv"}
    assert merged.replayed.traffic[1] == report.replayed.traffic[1]
    assert [rank.compute_ns for rank in merged.ranks] == [rank.compute_ns for rank in report.ranks]
    if "--pp" not in shape:
        # A pipeline sends messages of two calls in the same picosecond: their order on a link is open.
        assert merged.latency_ns == report.latency_ns
    # Export, import, export: the same files, but for the times of the replay.
    Workload.read(tmp_path / "merged").write(tmp_path / "again")
    Workload.read(tmp_path / "again").write(tmp_path / "third")
    for rank in range(len(files)):
        assert (tmp_path / f"again.{rank}.et").read_bytes() == (tmp_path / f"third.{rank}.et").read_bytes()


def call(number: int, comm_type: int, nbytes: int, ranks: list[int], after: list[int]) -> dict[str, Any]:
    """A node that calls a collective of a group."""
    facts: list[dict[str, Any]] = [
        {"name": "comm_type", "int64Val": comm_type},
        {"name": "comm_size", "int64Val": nbytes},
        {"name": "pg_name", "stringVal": f"of {ranks}"},
        {"name": "ranks", "int64List": {"values": ranks}},
        {"name": "root", "int64Val": ranks[0]},
    ]
    return {"id": number, "name": "coll", "type": "COMM_COLL_NODE", "dataDeps": after, "attr": facts}


def message(number: int, kind: str, source: int, target: int, nbytes: int) -> dict[str, Any]:
    """A node that sends or receives."""
    facts = {"comm_size": nbytes, "comm_src": source, "comm_dst": target, "comm_tag": 0}
    attributes = [{"name": name, "int64Val": value} for name, value in facts.items()]
    return {"id": number, "name": kind, "type": f"COMM_{kind.upper()}_NODE", "attr": attributes}


ALL_REDUCE, ALL_GATHER, GATHER, BROADCAST = 0, 2, 3, 5
FOUR = [0, 1, 2, 3]
GATHERS = call(0, GATHER, 1 << 18, FOUR, [])
SPREADS = call(0, BROADCAST, 1 << 14, FOUR, [])


@pytest.mark.parametrize(
    ("topology", "noted", "ranks"),
    [
        (
            "npu_fully_connected_8",
            True,
            [
                [GATHERS],
                [GATHERS, call(1, ALL_GATHER, 128, [1, 2], [0])],
                [GATHERS, call(1, ALL_GATHER, 128, [1, 2], [])],
                [GATHERS],
            ],
        ),
        (
            "npu_fully_connected_8",
            False,
            [
                [SPREADS],
                *[[SPREADS, call(1, GATHER, 3 << 20, [1, 2, 3], after)] for after in ([0], [0], [])],
            ],
        ),
        (
            "npu_switch_8",
            True,
            [
                [],
                [call(3, ALL_REDUCE, 196608, [1, 2, 3], [])],
                [message(0, "recv", 3, 2, 100_000), call(1, ALL_REDUCE, 196608, [1, 2, 3], [0])],
                [message(0, "send", 3, 2, 100_000), call(2, ALL_REDUCE, 196608, [1, 2, 3], [0])],
            ],
        ),
    ],
)
def test_a_wait_for_another_call_is_paid_once(
    tmp_path: Path, topology: str, noted: bool, ranks: list[list[dict[str, Any]]]
) -> None:
    for rank, nodes in enumerate(ranks):
        lines = [{"version": "0.0.4"}, *nodes]
        (tmp_path / f"job.{rank}.json").write_text("\n".join(map(json.dumps, lines)))
    terms = {"topology": topology, "overrides": {"system.sips.count": 4, "pe.dma.channels": 1}}
    report = run(str(tmp_path / "job.0.json"), **terms)
    with warnings.catch_warnings(record=True) as notes:
        report.write_trace(tmp_path / "merged")
    assert [str(note.message).partition(": ")[2][:27] for note in notes] == ["calls that overlap at rank "] * noted
    assert run(str(tmp_path / "merged"), **terms).latency_ns == report.latency_ns


ONE_SIDED = """
from mscclpp.language.channel import MemoryChannel, SyncType
from mscclpp.language.collectives import AllGather
from mscclpp.language.general import JSON
from mscclpp.language.program import CollectiveProgram
from mscclpp.language.rank import Rank

with CollectiveProgram("put", AllGather(4, 1, True), 4, protocol="Simple"):
    pairs = [(source, peer) for source in range(4) for peer in range(4) if peer != source]
    channels = {pair: MemoryChannel(pair[1], pair[0]) for pair in pairs}
    for channel in channels.values():
        channel.signal(tb=0, relaxed=True)
    for (source, peer), channel in channels.items():
        channel.wait(tb=0, relaxed=True)
        here, there = (Rank(rank).get_output_buffer()[source : source + 1] for rank in (source, peer))
        channel.put(there, here, tb=0)
    for channel in channels.values():
        channel.signal(tb=0, data_sync=SyncType.before)
    for channel in channels.values():
        channel.wait(tb=0)
    print(JSON())
"""


def test_one_sided_transfers_become_messages(tmp_path: Path) -> None:
    script = tmp_path / "put.py"
    script.write_text(ONE_SIDED)
    facts = {"comm_type": 2, "comm_size": 1 << 16}
    attributes = [{"name": name, "int64Val": value} for name, value in facts.items()]
    nodes = [
        {"id": 0, "name": "all_gather", "type": "COMM_COLL_NODE", "attr": attributes},
        {"id": 1, "name": "after", "type": "COMP_NODE", "dataDeps": [0], "durationMicros": 7},
    ]
    head = {"version": "0.0.4", "attr": [{"name": "world_size", "int32Val": 4}]}
    for rank in range(4):
        (tmp_path / f"job.{rank}.json").write_text("\n".join(json.dumps(part) for part in (head, *nodes)))
    machine = {"topology": "npu_fully_connected_8", "overrides": {"system.sips.count": 4, "pe.dma.channels": 1}}
    report = run(str(tmp_path / "job.0.json"), algorithm=str(script), **machine)
    report.write_trace(tmp_path / "merged")
    merged = run(str(tmp_path / "merged"), **machine)
    sizes = Counter(call.bytes for call in merged.calls)
    # Every rank puts its chunk to three others; signals are messages without bytes.
    assert sizes[1 << 16] == 12 and set(sizes) == {0, 1 << 16}
    assert [rank.compute_ns for rank in merged.ranks] == [7000.0] * 4
    assert merged.latency_ns == pytest.approx(report.latency_ns, rel=0.1)


@pytest.mark.slow
def test_the_launches_of_a_job_fit_one_by_one(tmp_path: Path) -> None:
    """Together, the queues of all calls are larger than the memory that holds those of one."""
    shape = "--dp 2 --tp 2 --layers 4 --hidden 1024 --heads 8 --sequence 512 --micro-batches 4"
    report = run(made(tmp_path, shape), topology="npu_ring_8")
    assert "the critical path" in report.explain().text()


def test_the_limit_that_is_hinted_is_enough_for_the_whole_job(tmp_path: Path) -> None:
    """Not only for the file at which reading stopped."""
    name = made(tmp_path)
    with pytest.raises(BudgetError, match=r"AHBM-B201") as refused:
        run(name, topology="npu_ring_8", reading=Reading(limits=(("file_bytes", 20_000),)))
    total = int(str(refused.value.hint).split("file_bytes=")[1].split()[0])
    assert total == sum(file.stat().st_size for file in tmp_path.glob("step.*.et"))
    run(name, topology="npu_ring_8", reading=Reading(limits=(("file_bytes", total),)))
