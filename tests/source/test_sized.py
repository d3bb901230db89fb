"""Graphs that say how many bytes travel: their messages get chunks, and the graph keeps its time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import ahbm
import ahbm.distributed as dist
from ahbm._core import read_plan
from ahbm.config.topology import load_machine
from ahbm.errors import FormatError, LintError
from ahbm.job.open import open_
from ahbm.runs.verdict import check_file
from ahbm.source.sized import Assigned, Unassigned, assigned
from support.sized_graphs import (
    KIB,
    Npu,
    both_ways,
    bruck,
    direct,
    doubling,
    halving_doubling,
    overlapped,
    ring,
    tree,
    two_levels,
    write,
)

GRAPHS: dict[str, tuple[Callable[[], list[Npu]], str]] = {
    "one_line": (lambda: ring(4, adds=True, copies=False), "reduce_scatter"),
    "named_chunks": (lambda: ring(4, adds=True, copies=False, names=True), "reduce_scatter"),
    "gather": (lambda: ring(5, adds=False, copies=True), "all_gather"),
    "fused": (lambda: ring(6, adds=True, copies=True), "all_reduce"),
    "lanes": (lambda: ring(4, adds=True, copies=True, lanes=3), "all_reduce"),
    "both_ways": (lambda: both_ways(6), "all_reduce"),
    "halving": (lambda: halving_doubling(8), "all_reduce"),
    "near_first": (lambda: halving_doubling(8, first=False), "all_reduce"),
    "doubling": (lambda: doubling(8), "all_reduce"),
    "doubling_posted": (lambda: doubling(8, posted=True), "all_reduce"),
    "tree_posted": (lambda: tree(7, posted=True), "all_reduce"),
    "direct": (lambda: direct(5, adds=True, copies=True), "all_reduce"),
    "tree": (lambda: tree(7), "all_reduce"),
    "pipelined_tree": (lambda: tree(6, parts=4), "all_reduce"),
    "groups_2_4": (lambda: two_levels(2, 4), "all_reduce"),
    "groups_3_2": (lambda: two_levels(3, 2), "all_reduce"),
    "bruck": (lambda: bruck(6), "all_gather"),
    "overlapped": (lambda: overlapped(4), "all_gather"),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_of_sizes_moves_data_in_the_time_that_it_takes_alone(name: str, tmp_path: Path) -> None:
    made, collective = GRAPHS[name]
    npus = made()
    file = write(tmp_path / f"g{len(npus)}", npus)
    assert read_plan(file).buffers is False
    answer = check_file(file)
    assert (answer.verdict, answer.collective, len(answer.notes)) == ("correct", collective, 1)

    sips = {"system.sips.count": len(npus)}
    target = open_(file, topology="npu_ring_8", overrides=sips)
    report = target.run(check="all")
    program, _, _ = read_plan(file).lower(load_machine("npu_ring_8", sips), nbytes=0, dtype="u8", slots=None)
    assert report.wrong == 0
    assert round(1000 * report.latency_ns) == program.simulate().latency_ps, "the time is the graph's"
    assert target.at(2 * report.bytes).run().wrong == 0


@pytest.mark.parametrize("ending", ["xml", "json", "et"])
def test_a_graph_of_sizes_is_converted_with_its_chunks(ending: str, tmp_path: Path) -> None:
    file = write(tmp_path / "line", ring(4, adds=True, copies=True))
    ahbm.convert(file, tmp_path / f"plan.{ending}")
    ahbm.convert(tmp_path / f"plan.{ending}", tmp_path / "again.et")
    on = {"topology": "npu_ring_8", "overrides": {"system.sips.count": 4}}
    graph = open_(file, **on).run()
    # A plan of MSCCL++ has more channels than queues, so what is made of it takes its own time.
    for other in (f"plan.{ending}", *(["again.et"] if ending != "json" else [])):
        assert check_file(tmp_path / other).verdict == "correct"
        found = open_(str(tmp_path / other), **on, bytes_per_rank=graph.bytes).run()
        assert (found.latency_ns, found.wrong) == (graph.latency_ns, 0)


def test_a_graph_of_sizes_is_an_algorithm(tmp_path: Path) -> None:
    file = write(tmp_path / "halving", halving_doubling(4))

    def worker() -> None:
        dist.init_process_group(backend="ahbm", algorithm=file)
        x = np.full(1 << 10, dist.get_rank() + 1.0, np.float32)
        dist.all_reduce(x)
        assert (x == 10).all()

    ahbm.spawn(worker, topology="npu_ring_8", overrides={"system.sips.count": 4})
    report = ahbm.run("all_reduce", file, "npu_ring_8", bytes_per_rank=1 << 20)
    assert report.wrong == 0 and "sizes only" in report.notes[0]


def test_a_graph_in_the_public_converter_s_words_is_what_its_metadata_say(tmp_path: Path) -> None:
    """Its computations are called COMP_NODE_tb0_step1, and its metadata have the collective."""
    npus = ring(4, adds=True, copies=True)
    for npu in npus:
        for at, node in enumerate(npu.nodes):
            node["name"] = f"{node['type']}_tb0_step{at}"
    head = {"attr": [{"name": "collective", "stringVal": "allreduce"}]}
    file = write(tmp_path / "converted", npus, head)
    assert read_plan(file).collective == "all_reduce"
    answer = check_file(file)
    assert (answer.verdict, answer.collective) == ("correct", "all_reduce")
    on = {"topology": "npu_ring_8", "overrides": {"system.sips.count": 4}}
    assert open_(file, **on).run().wrong == 0
    # The graph is the ring that the packaged kernel is.
    (row,), (kernel,) = ahbm.features(file, **on), ahbm.features("ring_allreduce", **on)
    assert [row[name] for name in ("algorithm_id", "algorithm_kind")] == [kernel["algorithm_id"], "ring"]
    assert row["overlap_capable"] is False


def test_direct_exchange_is_what_is_asked_for(tmp_path: Path) -> None:
    file = write(tmp_path / "exchange", direct(4, adds=False, copies=True))
    found = assigned(file)
    assert isinstance(found, Assigned) and (found.collective, found.assignment.forced) == ("all_gather", True)
    other = assigned(file, "all_to_all")
    assert isinstance(other, Assigned) and other.plan.check(slots=None)[0] == "correct"
    assert ahbm.run("all_to_all", file, "npu_switch_8").wrong == 0
    by_name = assigned(write(tmp_path / "my_alltoall", direct(4, adds=False, copies=True)))
    assert isinstance(by_name, Assigned) and by_name.collective == "all_to_all"


def test_names_of_chunks_are_kept(tmp_path: Path) -> None:
    found = assigned(write(tmp_path / "named", ring(4, adds=True, copies=True, names=True)))
    assert isinstance(found, Assigned)
    # Rank r sends chunk r first, whatever the search would take.
    shifted = ring(4, adds=True, copies=True, names=True)
    for npu in shifted:
        for node in npu.nodes:
            for number in range(4):
                node["name"] = node["name"].replace(f"chunk{number})", f"chunk{(number + 1) % 4}!")
    other = assigned(write(tmp_path / "shifted", shifted))
    assert isinstance(other, Assigned) and other.plan.check(slots=None)[0] == "correct"


def cut(npus: Sequence[Npu], nodes: int) -> list[Npu]:
    for npu in npus:
        del npu.nodes[nodes:]
    return list(npus)


def test_what_no_assignment_makes_right_is_said_with_the_rank(tmp_path: Path) -> None:
    file = write(tmp_path / "short_all_gather", cut(ring(4, adds=False, copies=True), 4))
    found = assigned(file)
    assert isinstance(found, Unassigned) and found.stated and found.proven
    answer = check_file(file)
    assert (answer.verdict, answer.findings[0].code) == ("wrong", "AHBM-V401")
    assert "rank 0 cannot get what it needs, nothing that rank 1 has reaches it" in answer.findings[0].message
    # A graph that does not say what it performs has no expectation to miss.
    nameless = check_file(write(tmp_path / "short", cut(ring(4, adds=False, copies=True), 4)))
    assert nameless.verdict == "no_expectation" and "rank 0" in nameless.notes[0]


def test_messages_beyond_4_gib_are_checked_and_run_alike(tmp_path: Path) -> None:
    size = 5 << 30
    file = write(tmp_path / "large", ring(4, adds=True, copies=False, size=size))
    answer = check_file(file)
    assert (answer.verdict, answer.collective) == ("correct", "reduce_scatter")
    on = {"topology": "npu_ring_8", "overrides": {"system.sips.count": 4}}
    small = open_(write(tmp_path / "small", ring(4, adds=True, copies=False, size=size >> 10)), **on).run(data=False)
    large = open_(file, **on).run(data=False)
    assert large.bytes == 4 * size
    assert large.latency_ns == pytest.approx(1024 * small.latency_ns, rel=0.05)


@pytest.mark.parametrize("kib", [4096, 5120, 6144])
def test_what_moves_the_data_of_a_graph_has_room_where_the_graph_has(kib: int, tmp_path: Path) -> None:
    file = write(tmp_path / "room", ring(4, adds=True, copies=False, size=kib * KIB))
    report = open_(file, topology="npu_ring_8", overrides={"system.sips.count": 4}).run(data=False)
    assert report.bytes == 4 * kib * KIB


@pytest.mark.parametrize("size", [(1 << 48) + 1, 1 << 62])
def test_messages_beyond_256_tib_are_refused_by_check_and_run_alike(size: int, tmp_path: Path) -> None:
    file = write(tmp_path / "absurd", ring(4, adds=True, copies=False, size=size))
    answer = check_file(file)
    with pytest.raises(FormatError, match="AHBM-F136") as refused:
        open_(file, topology="npu_ring_8", overrides={"system.sips.count": 4}).run(data=False)
    assert (answer.verdict, [one.code for one in answer.findings]) == ("malformed", [refused.value.code])


def test_messages_of_256_tib_are_read_by_check_and_run_alike(tmp_path: Path) -> None:
    file = write(tmp_path / "most", ring(4, adds=True, copies=False, size=1 << 48))
    assert check_file(file).verdict == "correct"
    with pytest.raises(LintError, match="AHBM-L108"):
        open_(file, topology="npu_ring_8", overrides={"system.sips.count": 4}).run(data=False)
