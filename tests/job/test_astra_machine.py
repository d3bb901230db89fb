"""ASTRA-sim's set-ups on machines of this project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ahbm
from ahbm._core import write_recording
from ahbm.base.request import Request
from ahbm.job.astra import AstraFiles, simulate
from ahbm.job.astra_machine import GB, machine, replay
from ahbm.job.replay import JobReport
from ahbm.ranks.setup import Setup
from support.astra_files import write
from support.choosing import compiled
from support.commands import run


def files(folder: Path) -> AstraFiles:
    names = {"workload": "job", "system": "system.json", "network": "network.yml", "memory": "memory.json"}
    return AstraFiles(**{name: folder / file for name, file in names.items()})


def test_messages_take_what_the_network_file_says(tmp_path: Path) -> None:
    """Around a ring, one after the other: both simulators send whole messages over one link each."""
    write(tmp_path)
    size, events = [("comm_size", 1 << 20)], []
    for rank in range(4):
        send = ("COMM_SEND_NODE", "out", [] if rank == 0 else [0], 0, 0, [("comm_dst", (rank + 1) % 4), *size])
        recv = ("COMM_RECV_NODE", "in", [0] if rank == 0 else [], 0, 0, [("comm_src", (rank - 1) % 4), *size])
        events = [send, recv] if rank == 0 else [recv, send]
        write_recording(tmp_path / "job", rank, 4, events)
    theirs = simulate(files(tmp_path)).ranks[0].cycles
    ours = replay(files(tmp_path), files(tmp_path).read())
    assert theirs == 4 * int(500 + (1 << 20) / (50 * GB))
    assert abs(ours.latency_ns - theirs) <= 4


def test_the_command_replays_and_says_what_has_no_effect(tmp_path: Path) -> None:
    options = ["astra", *write(tmp_path), "--num-queues-per-dim", "2"]
    code, out, err = run("ahbm", options, tmp_path)
    assert (code, err) == (0, "") and "on 4 SIPs in a ring_1d" in out and "all_reduce" in out
    *_, last = out.splitlines()
    assert last.startswith("note: no effect without --parity: --num-queues-per-dim, scheduling-policy, endpoint-delay")
    data = json.loads(run("ahbm", [*options, "--json"], tmp_path)[1])
    assert data["calls"][0]["collective"] == "all_reduce" and f"note: {data['notes'][-1]}" == last


def graph(folder: Path, ranks: int) -> None:
    """An algorithm graph: every rank sends 64 KiB around the ring once."""
    for rank in range(ranks):
        events = [
            ("COMM_SEND_NODE", "out", [], 0, 0, [("comm_dst", (rank + 1) % ranks), ("comm_size", 1 << 16)]),
            ("COMM_RECV_NODE", "in", [], 0, 0, [("comm_src", (rank - 1) % ranks), ("comm_size", 1 << 16)]),
        ]
        write_recording(folder / "around", rank, ranks, events)


def test_a_custom_graph_of_the_system_file_runs_as_it_is_written(tmp_path: Path) -> None:
    """Its messages have the sizes that it states, whatever the size of the call, as in ASTRA-sim."""
    graph(tmp_path, 4)
    ends = []
    for size in (4000, 1 << 20):
        options = write(tmp_path, size=size, **{"all-reduce-implementation-custom": ["around"]})
        report = replay(files(tmp_path), files(tmp_path).read())
        (call,) = report.calls
        assert (call.algorithm, call.rule) == ("around", "ccl.yaml")
        assert "around (ccl.yaml)" in run("ahbm", ["astra", *options], tmp_path)[1]
        ends.append(call.latency_ns)
    assert ends[0] == ends[1] > (1 << 16) / (50 * GB)


def test_a_custom_graph_that_no_call_runs_is_told(tmp_path: Path) -> None:
    graph(tmp_path, 8)
    write(tmp_path, **{"all-reduce-implementation-custom": ["around"], "all-gather-implementation-custom": ["around"]})
    notes = "\n".join(replay(files(tmp_path), files(tmp_path).read()).notes)
    assert "an algorithm graph of 8 ranks; all_reduce calls that do not run it: 1 of 4 ranks" in notes
    assert "an algorithm graph of 8 ranks; the job calls no all_gather" in notes


def test_calls_run_by_the_algorithm_of_live_ranks(tmp_path: Path) -> None:
    """Whether the job is read as ASTRA-sim's or as a trace, a call gets what the same call gets alone."""
    write(tmp_path, ranks=8, size=1 << 20)
    for rank in range(8):
        file = tmp_path / f"job.{rank}.et"
        file.write_bytes(file.read_bytes().replace(b"ahbm", b"else"))
    made = machine([("Ring", 8, 50.0, 500.0)], "network.yml")
    emulator = Setup(made, overrides={"defaults.buffer_kind": "hbm"}).emulator()
    live = compiled(emulator, Request("all_reduce", tuple(range(8)), 1 << 20, "u8"))
    report = ahbm.open(tmp_path / "job", topology=made, kind="job").run()
    assert isinstance(report, JobReport)
    (first,) = report.calls
    (call,) = replay(files(tmp_path), files(tmp_path).read()).calls
    assert (call.algorithm, call.latency_ns) == (live.algorithm, live.latency_ps / 1000)
    assert (first.algorithm, first.latency_ns) == (call.algorithm, call.latency_ns)


@pytest.mark.parametrize(
    ("shape", "network"), [("Ring", "ring_1d"), ("Switch", "switch"), ("FullyConnected", "fully_connected")]
)
def test_one_dimension_is_a_network_of_its_kind(shape: str, network: str) -> None:
    made = machine([(shape, 6, 50.0, 500.0)], "network.yml")
    assert (made.sips, made.topology) == (6, network)
    parameters = dict(made.parameters)
    assert parameters["system.sips.link.bandwidth_gbs"] == f"{50 * GB}GB/s"
    assert parameters["system.sips.link.latency_ns"] == "500000ps"


def test_several_dimensions_are_a_product() -> None:
    made = machine([("Ring", 4, 50.0, 500.0), ("FullyConnected", 3, 10.0, 900.0), ("Ring", 2, 10.0, 900.0)], "n.yml")
    links = made.links_between_sips()
    # Both ways: 4 a ring of 4, 3 a triangle, 1 a ring of 2.
    assert (made.sips, made.topology, len(links)) == (24, "custom", 2 * (24 + 24 + 12))
    # Two rings of 4, whose NPUs of one place a switch of two ports joins: both ways, 8 of rings and 8 to switches.
    made = machine([("Ring", 4, 50.0, 500.0), ("Switch", 2, 10.0, 900.0)], "n.yml")
    assert (made.sips, made.topology, len(made.links_between_sips())) == (8, "custom", 2 * (8 + 8))


def test_a_roofline_gives_computations_their_time() -> None:
    for dimensions in ([("Ring", 4, 50.0, 500.0)], [("Ring", 2, 50.0, 500.0)] * 2):
        parameters = dict(machine(dimensions, "n.yml", (900.0, 1600.0)).parameters)
        assert float(parameters["pe.roofline.peak_tflops"]) == 900
        assert float(parameters["pe.roofline.memory_gbs"]) == 1600
