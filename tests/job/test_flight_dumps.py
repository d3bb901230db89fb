"""Dumps of PyTorch's Flight Recorder: which ranks disagree, and about which call."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

import ahbm
from ahbm.errors import AhbmError
from ahbm.job.open import open_
from ahbm.job.replay import JobReport
from support.commands import run

GROUPS = {"0": ("default_pg", [0, 1, 2]), "1": ("tensor", [0, 1])}


def entry(
    number: int, what: str, group: str = "0", seq: int = 1, state: str = "completed", **facts: Any
) -> dict[str, Any]:
    """As the recorder writes it."""
    frames = [
        {
            "name": "wrapper",
            "filename": "/opt/lib/python3.11/site-packages/torch/distributed/c10d_logger.py",
            "line": 83,
        },
        {"name": "step", "filename": "/home/me/train.py", "line": 10 + number},
    ]
    sizes = {"input_sizes": [[4, 8]], "output_sizes": [[4, 8]], "input_dtypes": ["Float"], "output_dtypes": ["Float"]}
    return {
        "frames": frames,
        "record_id": number,
        "pg_id": int(group),
        "process_group": (group, GROUPS[group][0]),
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": seq,
        "profiling_name": f"nccl:{what}",
        "time_created_ns": 1_700_000_000_000_000_000 + number,
        **sizes,
        "state": state,
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": state == "completed",
        "timeout_ms": 600_000,
        "is_p2p": what.startswith(("send", "recv")),
        **facts,
    }


def dumps(folder: Path, ranks: list[list[dict[str, Any]]], form: str = "pickle") -> Path:
    """A folder with the dump of every rank."""
    folder.mkdir(exist_ok=True)
    config = {name: {"name": name, "desc": desc, "ranks": str(ranks)} for name, (desc, ranks) in GROUPS.items()}
    for rank, entries in enumerate(ranks):
        document = {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": entries}
        if form == "pickle":
            (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(document, protocol=2 + rank))
        else:
            (folder / f"trace_{rank}.json").write_text(json.dumps(document))
    return folder


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_ranks_that_disagree_are_named_with_their_lines(tmp_path: Path, form: str) -> None:
    same = [entry(0, "all_reduce"), entry(1, "all_reduce", seq=2, state="scheduled")]
    other = [entry(0, "all_reduce"), entry(1, "all_gather", seq=2, state="started", output_sizes=[[12, 8]])]
    code, out, _ = run("ahbm", ["check", str(dumps(tmp_path / "d", [same, same, other], form))], tmp_path)
    assert code != 0 and 'AHBM-F149 the ranks of group "0 default_pg" disagree about its call number 2' in out
    assert "ranks 0, 1: all_reduce of 128 bytes" in out and "rank 2: all_gather of 128 bytes" in out
    assert "all_reduce train.py:11, call 2 of its group, scheduled" in out


def test_a_rank_that_did_not_call_is_named(tmp_path: Path) -> None:
    two = [entry(0, "all_reduce"), entry(1, "barrier", seq=2, state="started")]
    code, out, _ = run("ahbm", ["check", str(dumps(tmp_path / "d", [two, two[:1], two]))], tmp_path)
    assert code != 0 and "AHBM-F149 rank 1 does not take part in barrier" in out and "train.py:11" in out


def test_what_was_in_flight_is_told_where_all_agree(tmp_path: Path) -> None:
    def rank(state: str) -> list[dict[str, Any]]:
        return [entry(0, "all_reduce"), entry(1, "all_reduce", seq=2, state=state)]

    folder = dumps(tmp_path / "d", [rank("started"), rank("started"), rank("scheduled")])
    code, out, _ = run("ahbm", ["check", str(folder)], tmp_path)
    assert code == 0, out
    assert (
        'in flight: all_reduce train.py:11, call 2 of group "0 default_pg": scheduled on rank 2, started on ranks 0-1'
        in out
    )
    code, out, err = run("ahbm", ["run", str(folder), "-t", "npu_ring_8"], tmp_path)
    assert code == 0, err


def test_groups_in_different_orders_wait_for_each_other(tmp_path: Path) -> None:
    first = [entry(0, "all_reduce"), entry(1, "all_reduce", group="1", state="scheduled")]
    turned = [entry(0, "all_reduce", group="1", state="scheduled"), entry(1, "all_reduce")]
    folder = dumps(tmp_path / "d", [first, turned, [entry(0, "all_reduce")]])
    code, out, _ = run("ahbm", ["check", str(folder)], tmp_path)
    assert code != 0 and "default_pg" in out and "tensor" in out and "train.py" in out


def test_what_a_ring_has_forgotten_does_not_count(tmp_path: Path) -> None:
    """Ranks keep other numbers of calls: they agree from the first that all have."""
    long = [entry(number, "all_reduce", seq=1 + number) for number in range(5)]
    short = [entry(number, "all_reduce", seq=1 + number) for number in range(2, 5)]
    report = open_(str(dumps(tmp_path / "d", [long, short, long])), topology="npu_ring_8").run()
    assert isinstance(report, JobReport)
    assert len(report.calls) == 3 and any("forgotten" in finding.message for finding in report.warnings)


def test_messages_between_ranks_are_matched(tmp_path: Path) -> None:
    ranks = [[entry(0, "send 0->1", p2p_seq_id=1), entry(1, "all_reduce")],
             [entry(0, "recv 1<-0", p2p_seq_id=1), entry(1, "all_reduce")], [entry(0, "all_reduce")]]  # fmt: skip
    assert open_(str(dumps(tmp_path / "d", ranks)), topology="npu_ring_8").run().latency_ns > 0


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00trueq\x85R.version pg_config",
        b"\x80\x02}q\x00X\x07\x00\x00\x00entriesh\x00s.version pg_config",
        b"\x80\x02" + b"X\x11\x00\x00\x00version pg_config" + b"\x85" * 100_000 + b".",
        b"\x80\x02X\xff\xff\xff\xffpg_config version.",
        b"\x80\x02u.version pg_config",
        b"\x80\x02}.version pg_config",
    ],
)
def test_pickles_that_are_none_of_plain_values_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "trace_rank_0").write_bytes(content)
    with pytest.raises(AhbmError) as refused:
        ahbm.run(tmp_path, topology="npu_ring_8")
    assert refused.value.code in ("AHBM-F183", "AHBM-F139", "AHBM-B207", "AHBM-B208")


def test_dumps_of_some_ranks_are_judged_among_them(tmp_path: Path) -> None:
    """A rank that has crashed leaves none: the others' calls are matched, and a note names who is missing."""
    same = [entry(0, "all_reduce"), entry(1, "all_reduce", seq=2, state="started")]
    folder = dumps(tmp_path / "d", [same, same, same])
    (folder / "nccl_trace_rank_1").unlink()
    code, out, _ = run("ahbm", ["check", str(folder)], tmp_path)
    assert code == 0 and "rank 1 of 3 left no dump" in out, out
    assert "started on ranks 0, 2, no dump of rank 1" in out
    report = open_(str(folder), topology="npu_ring_8").run()
    assert isinstance(report, JobReport) and {call.ranks for call in report.calls} == {2}


def test_dumps_of_some_ranks_that_disagree_are_told(tmp_path: Path) -> None:
    same = [entry(0, "all_reduce"), entry(1, "all_reduce", seq=2)]
    other = [entry(0, "all_reduce"), entry(1, "all_gather", seq=2, output_sizes=[[12, 8]])]
    folder = dumps(tmp_path / "d", [same, same, other])
    (folder / "nccl_trace_rank_0").unlink()
    code, out, _ = run("ahbm", ["check", str(folder)], tmp_path)
    assert code != 0 and "AHBM-F149" in out and "train.py:11" in out


def test_a_group_of_which_one_rank_left_a_dump_is_left_out(tmp_path: Path) -> None:
    alone = [entry(0, "all_reduce", group="1"), entry(1, "all_reduce")]
    folder = dumps(tmp_path / "d", [alone, alone, [entry(0, "all_reduce")]])
    (folder / "nccl_trace_rank_1").unlink()
    report = open_(str(folder), topology="npu_ring_8").run()
    assert isinstance(report, JobReport) and [call.ranks for call in report.calls] == [2]


def test_who_has_not_begun_is_named(tmp_path: Path) -> None:
    def rank(state: str) -> list[dict[str, Any]]:
        return [entry(0, "all_reduce", state=state)]

    folder = dumps(tmp_path / "d", [rank("started"), rank("scheduled"), rank("started")])
    _, out, _ = run("ahbm", ["check", str(folder)], tmp_path)
    assert "rank 1 is waited for: not begun there" in " ".join(out.split())


def test_a_dump_with_text_that_nobody_needs_is_read_and_run(tmp_path: Path) -> None:
    folder = dumps(tmp_path / "dumps", [[entry(0, "all_reduce")]] * 3, form="json")
    for file in folder.iterdir():
        file.write_text(file.read_text().replace("pg_status", "pg\0status"))
    assert isinstance(report := open_(folder, topology="npu_ring_8").run(), JobReport)
    assert len(report.ranks) == 3


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_values_that_stand_in_several_places(tmp_path: Path, protocol: int) -> None:
    """Dumps that a script has read and written again share lists: `pickle` names what it has written before."""
    sizes, types, frames = [[4, 8]], ["Float"], [{"name": "step", "filename": "/home/me/train.py", "line": 7}]
    calls = [
        entry(number, "all_reduce", seq=number + 1, input_sizes=sizes, output_sizes=sizes, input_dtypes=types,
              output_dtypes=types, frames=frames)
        for number in range(3)
    ]  # fmt: skip
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    (tmp_path / "d").mkdir()
    for rank in range(2):
        document = {"version": "2.10", "pg_config": config, "entries": calls[: 3 - rank], "again": [calls, calls]}
        (tmp_path / "d" / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(document, protocol=protocol))
    code, out, _ = run("ahbm", ["check", "d"], tmp_path)
    assert code != 0 and "rank 1 does not take part in all_reduce" in out
    assert "all_reduce of 128 bytes  [all_reduce train.py:7, call 3 of its group" in out


def test_a_list_that_stands_in_itself_is_refused(tmp_path: Path) -> None:
    entries: list[Any] = [entry(0, "all_reduce")]
    entries[0]["frames"] = entries
    (tmp_path / "d").mkdir()
    document = {"version": "2.10", "pg_config": {}, "entries": entries}
    (tmp_path / "d" / "nccl_trace_rank_0").write_bytes(pickle.dumps(document, protocol=4))
    code, out, _ = run("ahbm", ["check", "d"], tmp_path)
    assert code != 0 and "AHBM-F183" in out and "stands in two places" in out


def test_dumps_of_the_first_schema(tmp_path: Path) -> None:
    """Version 1.x states no groups, and numbers calls as `seq_id`."""
    (tmp_path / "d").mkdir()
    for rank, count in ((0, 2), (1, 1)):
        calls = [entry(number, "all_reduce", seq=number + 1) for number in range(count)]
        for call in calls:
            call["seq_id"] = call.pop("collective_seq_id")
            del call["process_group"]
        document = {"version": "1.5", "entries": calls}
        (tmp_path / "d" / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(document, protocol=2))
    code, out, _ = run("ahbm", ["check", "d"], tmp_path)
    assert code != 0 and "rank 1 does not take part in all_reduce" in out and "its call number 2" in out


def test_a_dump_of_json_without_entries_is_none(tmp_path: Path) -> None:
    (tmp_path / "trace_0.json").write_text(json.dumps({"version": "2.10", "pg_config": {}}))
    code, out, _ = run("ahbm", ["check", "trace_0.json"], tmp_path)
    assert code != 0 and "the dump has no entries" in out
