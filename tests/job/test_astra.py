"""ASTRA-sim's set-ups: its numbers, its lines, and what it does not say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ahbm.errors import AhbmError, BudgetError, ConfigError, DeadlockError, FormatError
from ahbm.job.astra import AstraFiles, AstraFlags, AstraReport, simulate
from support.astra_files import write
from support.commands import run

BYTES_PER_NS = 50 * 2**30 / 10**9
STEP = int(500 + 1000 / BYTES_PER_NS)
"""A message of a quarter of 4000 bytes."""
ALL_REDUCE = 10 + 6 * (STEP + 10) + 3 * 3 * (1000 // 50)
"""The ring's closed form: six steps, three reductions of two reads and a write."""


def files(folder: Path) -> AstraFiles:
    return AstraFiles(
        workload=folder / "job",
        system=folder / "system.json",
        network=folder / "network.yml",
        memory=folder / "memory.json",
    )


def called(folder: Path, *options: str) -> tuple[int, str, str]:
    return run("ahbm", ["astra", "--parity", *options], folder)


def simulated(folder: Path, **flags: object) -> AstraReport:
    return simulate(files(folder), AstraFlags(**flags), times=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", ["congestion_unaware", "congestion_aware"])
def test_a_step_takes_the_sum_of_its_parts(tmp_path: Path, backend: str) -> None:
    write(tmp_path)
    report = simulated(tmp_path, backend=backend)
    assert [rank.cycles for rank in report.ranks] == [3000 + ALL_REDUCE] * 4
    assert [rank.exposed for rank in report.ranks] == [ALL_REDUCE] * 4
    assert [(rank.comm_ns, rank.gpu_ns) for rank in report.ranks] == [(ALL_REDUCE, 3000)] * 4
    assert report.times is not None
    assert report.times[2] == ((0, 0, 1000), (1, 1000, 1000 + ALL_REDUCE), (2, 1000 + ALL_REDUCE, 3000 + ALL_REDUCE))
    assert report.lines[3] == f"sys[3] finished, {3000 + ALL_REDUCE} cycles, exposed communication {ALL_REDUCE} cycles."
    (kind,) = report.calls
    assert (kind.collective, kind.nodes, kind.longest_ns) == ("all_reduce", 4, ALL_REDUCE)
    (dimension,) = report.dimensions
    assert (dimension.messages, dimension.bytes) == (4 * 6, 4 * 6 * 1000)
    assert sum(link.bytes for link in report.links) == (24_000 if backend == "congestion_aware" else 0)


def test_ranks_that_come_late_are_waited_for(tmp_path: Path) -> None:
    write(tmp_path, late={2: 5})
    ends = [rank.cycles or 0 for rank in simulated(tmp_path).ranks]
    assert all(8000 < end <= 8000 + ALL_REDUCE for end in ends), "its neighbours have sent their first parts by then"


def test_the_command_prints_its_lines_and_what_has_no_effect(tmp_path: Path) -> None:
    options = write(tmp_path, **{"boost-mode": 1})
    code, out, err = called(tmp_path, *options, "--comm-scale", "2", "--logging-folder", "logs")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == (
        f"sys[0] finished, {3000 + ALL_REDUCE} cycles, exposed communication {ALL_REDUCE} cycles."
    )
    for text in ("ranks 0-3", "all_reduce", "0 Ring", "boost-mode", "scheduling-policy", "--comm-scale", "--logging"):
        assert text in out, text


def test_json_has_every_node(tmp_path: Path) -> None:
    code, out, _ = called(tmp_path, "--json", *write(tmp_path))
    data = json.loads(out)
    assert code == 0 and len(data["times"]) == 4 and data["times"][0][0] == [0, 0, 1000]
    assert data["ranks"][0]["exposed"] == ALL_REDUCE and data["findings"] == []


@pytest.mark.parametrize("spelled", ["{}", "{} true", "{}=true"])
def test_the_switch_in_all_its_spellings(tmp_path: Path, spelled: str) -> None:
    code, out, _ = called(tmp_path, *spelled.format("--rendezvous-protocol").split(), *write(tmp_path))
    cycles = int(out.split()[2])
    assert code == 0 and cycles == 3000 + ALL_REDUCE + 6 * int(500 + 8192 / BYTES_PER_NS)


def test_scales_and_queues(tmp_path: Path) -> None:
    write(tmp_path)
    scaled = simulated(tmp_path, injection_scale=3.0).ranks[0].cycles
    assert scaled == 3000 + ALL_REDUCE + 7 * 20
    write(tmp_path, **{"preferred-dataset-splits": 2, "active-chunks-per-dimension": 2})
    assert simulated(tmp_path, queues=2).ranks[0].cycles != simulated(tmp_path, queues=1).ranks[0].cycles


def test_what_never_ends_there_exits_with_a_finding(tmp_path: Path) -> None:
    options = write(tmp_path, size=0, **{"preferred-dataset-splits": 4})
    assert simulated(tmp_path).ranks[0].cycles, "nothing is made at least a byte per rank"
    (tmp_path / "groups.json").write_text('{"1": [1]}')
    code, out, err = called(tmp_path, *options, "--comm-group-configuration", str(tmp_path / "groups.json"))
    assert code == 0 and out and not err, "a group that nobody calls"


def test_findings_name_file_and_key(tmp_path: Path) -> None:
    options = write(tmp_path, **{"all-reduce-implementation": ["rings"]})
    code, out, err = called(tmp_path, *options)
    assert code == ConfigError.exit_code and not out
    assert "AHBM-C190 all-reduce-implementation" in err and "system.json" in err
    for backend, flag in (("packets", "--backend"), ("congestion_aware", "--injection-scale=nan")):
        code, _, err = called(tmp_path, *write(tmp_path), "--backend", backend, *([flag] if "=" in flag else []))
        assert code == ConfigError.exit_code and flag.partition("=")[0] in err


def test_a_rank_that_lacks_a_collective(tmp_path: Path) -> None:
    from ahbm._core import write_recording

    options = write(tmp_path)
    write_recording(tmp_path / "job", 3, 4, [("COMP_NODE", "forward", [], 0, 10**6, [])])
    code, out, err = called(tmp_path, *options)
    assert code == FormatError.exit_code and not out and "AHBM-F149 rank 3 does not take part" in err


def test_ranks_that_never_end_are_named(tmp_path: Path) -> None:
    """Two collectives of a group, and a rank that is ready for the second one first."""
    from ahbm._core import write_recording

    write(tmp_path)
    size = [("comm_size", 4000)]
    first = {
        0: ("COMM_RECV_NODE", "late", [], 0, 0, [("comm_src", 1), *size]),
        1: ("COMM_SEND_NODE", "late", [], 0, 0, [("comm_dst", 0), *size]),
    }
    for rank in range(4):
        events = [
            first.get(rank, ("COMP_NODE", "forward", [], 0, 10**6, [])),
            ("COMM_COLL_NODE", "all_reduce", [0] if rank == 0 else [], 0, 0, size),
            ("COMM_COLL_NODE", "all_gather", [], 0, 0, size),
        ]
        write_recording(tmp_path / "job", rank, 4, events)
    report = simulated(tmp_path)
    with pytest.raises(DeadlockError, match="never ends there: 4 ranks of 4, rank 0 in node 2") as told:
        report.raise_findings()
    assert "depends on time" in str(told.value) and "rank 1: all_reduce" in str(told.value)
    assert report.lines == []


def test_limits_hold(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(BudgetError, match="AHBM-B204"):
        files(tmp_path).read([("steps", 3)])
    with pytest.raises(BudgetError, match="AHBM-B120"):
        simulate(files(tmp_path), max_events=5)
    with pytest.raises(AhbmError, match="AHBM-F101"):
        AstraFiles(workload=tmp_path / "job", system="/dev/zero", network="/dev/zero", memory="/dev/zero").read()


def test_an_unknown_version_of_the_schema_is_told(tmp_path: Path) -> None:
    options = write(tmp_path)
    for rank in range(4):
        path = tmp_path / f"job.{rank}.et"
        path.write_bytes(path.read_bytes().replace(b"0.0.4", b"9.9.9", 1))
    report = simulated(tmp_path)
    assert [warning.code for warning in report.warnings if warning.code != "AHBM-C191"] == ["AHBM-F182"]
    code, out, _ = called(tmp_path, *options)
    assert code == 0 and out.count("AHBM-F182") == 1
    assert [rank.cycles for rank in report.ranks] == [3000 + ALL_REDUCE] * 4
