"""Which collectives of a trace run, by what, and what is told of those that run as something else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ahbm
import ahbm.distributed as dist
from ahbm._core import Workload, write_recording
from ahbm.base.request import Request
from ahbm.core.emulator import Emulator
from ahbm.job.checking import check_job
from ahbm.job.replay import JobReport
from ahbm.ranks.setup import Setup
from ahbm.source.algorithm import PADDED
from support.astra_files import write
from support.choosing import compiled
from support.commands import run

RING = "npu_ring_8"
ARMS = {int: "int64Val", str: "stringVal"}


def attribute(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        arm = "boolList" if isinstance(value[0], bool) else "int64List"
        return {"name": name, arm: {"values": value}}
    return {"name": name, ARMS[type(value)]: value}


def job(folder: Path, ranks: Sequence[dict[str, Any]]) -> str:
    """A job of one collective, with what each rank states of it."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, facts in enumerate(ranks):
        attributes = [attribute(*fact) for fact in facts.items()]
        node = {"id": 3, "name": "together", "type": "COMM_COLL_NODE", "attr": attributes}
        lines = ({"version": "0.0.4"}, node)
        (folder / f"job.{rank}.json").write_text("\n".join(map(json.dumps, lines)))
    return str(folder / "job.0.json")


def replayed(target: str) -> JobReport:
    report = ahbm.open(target, topology=RING).run()
    assert isinstance(report, JobReport)
    return report


def test_every_collective_of_the_schema_runs(tmp_path: Path) -> None:
    facts = {"comm_size": 4096, "dtype": "f32", "op": "sum", "root": 1}
    performed = []
    for kind in range(10):
        target = job(tmp_path / f"{kind}", [facts | {"comm_type": kind}] * 4)
        checked = check_job(target, Setup(RING))
        assert (checked.verdict, checked.findings) == ("correct", ()), kind
        performed.append(replayed(target).calls[0])
    assert performed[8] == performed[7] and performed[8].collective == "reduce_scatter"
    assert len({call.collective for call in performed}) == 9
    beyond = check_job(job(tmp_path / "10", [facts | {"comm_type": 10}] * 4), Setup(RING))
    assert (beyond.verdict, beyond.findings[0].code) == ("malformed", "AHBM-F136")


def test_a_root_that_is_not_there_is_named_with_its_node(tmp_path: Path) -> None:
    facts = {"comm_type": 5, "comm_size": 4096, "root": 9}
    checked = check_job(job(tmp_path, [facts] * 2), Setup(RING))
    (finding,) = checked.findings
    assert (checked.verdict, finding.code) == ("malformed", "AHBM-F136")
    assert "root is 9" in finding.message and finding.sites[0].origin.endswith("job.0.json node 3")
    # A collective without a root has none, whatever is stated.
    assert replayed(job(tmp_path, [facts | {"comm_type": 0}] * 2)).calls[0].root == 0


def split(splits: list[int], size: int | None = None) -> dict[str, Any]:
    """What a rank states of an all_to_all of bytes."""
    stated = {"in_splits": splits, "out_splits": splits} if splits else {}
    return {"comm_type": 6, "comm_size": sum(splits) if size is None else size, **stated}


@pytest.mark.parametrize(
    ("ranks", "uneven"),
    [
        ([split([8, 8]), split([8, 8])], False),
        ([split([], 16), split([], 16)], False),
        ([split([4, 4], 32) | {"dtype": "f32"}] * 2, False),
        ([split([8, 0], 32) | {"dtype": "f32"}] * 2, False),
        ([split([4, 12]), split([12, 4])], False),
        ([split([8, 8]), split([4, 4])], False),
        ([split([], 16), split([], 64)], True),
        ([split([16], 16), split([12], 16)], True),
    ],
)
def test_splits_that_are_not_stated_are_told(ranks: list[dict[str, Any]], uneven: bool, tmp_path: Path) -> None:
    report = replayed(job(tmp_path, ranks))
    told = [warning.message for warning in report.warnings if warning.code == "AHBM-U237"]
    assert [text.startswith("1 all_to_all is uneven: the longest split") for text in told] == [True] * uneven
    assert ("AHBM-U237" in str(report)) is uneven and ("AHBM-U237" in json.dumps(report.to_json())) is uneven


def test_an_exchange_takes_what_its_splits_say(tmp_path: Path) -> None:
    """From either side, in any order of the group, whatever else is stated."""
    unit = 1 << 16
    rows = [[unit] * 8 for _ in range(8)]
    rows[0][1] = 13 * unit
    heavy = [{"comm_type": 6, "comm_size": 4 * sum(row), "in_splits": row, "dtype": "f32"} for row in rows]
    received = [
        {"comm_type": 6, "comm_size": 4 * sum(row), "out_splits": [row[at] for row in rows], "dtype": "f32"}
        for at, row in enumerate(rows)
    ]
    even = [{"comm_type": 6, "comm_size": 32 * 13 * unit, "in_splits": [13 * unit] * 8, "dtype": "f32"}] * 8

    def took(name: str, ranks: list[dict[str, Any]]) -> float:
        return replayed(job(tmp_path / name, ranks)).latency_ns

    alone = took("heavy", heavy)
    assert took("received", received) == alone < took("even", even) / 2
    live: list[float] = []

    def worker(rank: int) -> None:
        dist.init_process_group(backend="ahbm")
        gets, gives = [row[rank] for row in rows], rows[rank]
        out = np.zeros(sum(gets), np.float32)
        dist.all_to_all_single(out, np.ones(sum(gives), np.float32), gets, gives)
        assert out.all()
        live.append(dist.simulated_time())

    ahbm.spawn(worker, topology=RING)
    assert live == [alone] * 8
    # An algorithm that pads is told of.
    ccl = {"algorithms.direct.synth": {"method": "direct"}}
    padded = ahbm.open(job(tmp_path / "heavy", heavy), topology=RING, algorithm="direct", overrides=ccl).run()
    assert [note for note in padded.notes if PADDED in note] == [f"direct: {PADDED}"]
    assert not any(PADDED in note for note in replayed(job(tmp_path / "heavy", heavy)).notes)


def set_up(folder: Path, dimensions: list[bool]) -> list[str]:
    """ASTRA-sim's files of an all_reduce on rings of 4 and of 2; the options that name them."""
    options = write(folder, ranks=8, size=1 << 20)
    (folder / "network.yml").write_text(
        "topology: [Ring, Ring]\nnpus_count: [4, 2]\nbandwidth: [50.0, 50.0]\nlatency: [500.0, 500.0]\n"
    )
    for rank in range(8):
        (folder / f"job.{rank}.et").unlink()
    target = job(folder, [{"comm_type": 0, "comm_size": 1 << 20, "involved_dim": dimensions}] * 8)
    Workload.read(target).write(folder / "job")
    return ["astra", *options]


def test_a_call_is_of_the_ranks_along_its_dimensions(tmp_path: Path) -> None:
    found = {}
    for dimensions in ([True, True], [True, False], [False, True], [True, True, False]):
        folder = tmp_path / str(dimensions)
        folder.mkdir()
        code, out, err = run("ahbm", [*set_up(folder, dimensions), "--json"], folder)
        assert (code, err) == (0, ""), (dimensions, out)
        data = json.loads(out)
        found[str(dimensions)] = [(call["ranks"], call["latency_ns"]) for call in data["calls"]]
        assert data["warnings"] == []
    whole, first, second, beyond = found.values()
    assert [ranks for ranks, _ in whole] == [8] and beyond == whole
    assert [ranks for ranks, _ in first] == [4, 4] and [ranks for ranks, _ in second] == [2] * 4
    assert max(second)[1] < max(whole)[1]


def test_without_a_network_dimensions_are_told(tmp_path: Path) -> None:
    facts = {"comm_type": 0, "comm_size": 4096}
    warned = check_job(job(tmp_path, [facts | {"involved_dim": [True, False]}] * 4), Setup(RING))
    (finding,) = warned.findings
    assert (warned.verdict, finding.code) == ("correct", "AHBM-U238")
    assert "involved_dim" in finding.message and finding.sites[0].origin.endswith("node 3")
    assert check_job(job(tmp_path, [facts | {"involved_dim": [True, True]}] * 4), Setup(RING)).findings == ()


def test_a_recorded_call_runs_as_it_did_among_ranks(tmp_path: Path) -> None:
    facts = [("comm_size", 1 << 20), ("dtype", "f32"), ("op", "sum")]
    for rank in range(8):
        write_recording(tmp_path / "recorded", rank, 8, [("COMM_COLL_NODE", "all_reduce", [], 0, 0, facts)])
    live = compiled(Emulator.load(RING), Request("all_reduce", range(8), 1 << 18, "f32"))
    (call,) = replayed(str(tmp_path / "recorded.0.et")).calls
    assert (call.algorithm, call.latency_ns) == (live.algorithm, live.latency_ps / 1000)
    # Converted it is the same recording.
    assert Workload.read(tmp_path / "recorded").recorded
    Workload.read(tmp_path / "recorded").write(tmp_path / "again")
    assert replayed(str(tmp_path / "again.0.et")).calls == (call,)
    # The advice is about the algorithms that ran.
    best = ahbm.open(str(tmp_path / "recorded.0.et"), topology=RING).best()
    assert best.before.calls == (call,) and best.choices[0].algorithm == live.algorithm
    # So does the job of another tool.
    other = replayed(job(tmp_path, [{"comm_type": 0, **dict(facts)}] * 8)).calls[0]
    assert (other.algorithm, other.latency_ns) == (live.algorithm, live.latency_ps / 1000)
