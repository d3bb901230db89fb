"""Recorded jobs: collectives overlap, contend and hide behind computing as the trace says."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import ahbm
from ahbm.cli import app
from ahbm.core.buffers import requested
from ahbm.core.emulator import Emulator
from ahbm.errors import AhbmError, ConfigError
from ahbm.job.reading import How
from ahbm.job.replay import JobReport, replay
from ahbm.ranks.setup import Setup
from support.choosing import compiled

RING = "npu_ring_8"
COMM = {"all_reduce": 0, "all_gather": 2, "broadcast": 5, "all_to_all": 6, "reduce_scatter": 7, "barrier": 9}


class Rank:
    """Writes what one rank does, as a recorder would."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.chain: list[int] = []

    def _node(self, kind: str, name: str, attributes: dict[str, Any]) -> int:
        arms = {int: "int64Val", str: "stringVal", float: "doubleVal"}
        attr = [
            {"name": key, "int64List": {"values": value}}
            if isinstance(value, list)
            else {"name": key, arms[type(value)]: value}
            for key, value in attributes.items()
        ]
        self.nodes.append({"id": len(self.nodes), "name": name, "type": kind, "ctrlDeps": [*self.chain], "attr": attr})
        return len(self.nodes) - 1

    def compute(self, us: float) -> None:
        self.chain = [self._node("COMP_NODE", "compute", {"duration_ns": us * 1000})]

    def collective(self, name: str, nbytes: int, ranks: Sequence[int], wait: bool = True, **more: Any) -> int:
        facts = {"comm_type": COMM[name], "comm_size": nbytes, "ranks": [*ranks], "dtype": "f32"}
        node = self._node("COMM_COLL_NODE", name, {**facts, "pg_name": "-".join(map(str, ranks)), **more})
        if wait:
            self.chain.append(node)
        return node

    def message(self, kind: str, peer: int, nbytes: int, tag: int = 0) -> None:
        side = "comm_dst" if kind == "SEND" else "comm_src"
        self.chain.append(self._node(f"COMM_{kind}_NODE", kind, {side: peer, "comm_size": nbytes, "comm_tag": tag}))

    def wait(self, node: int) -> None:
        self.chain.append(node)


def written(folder: Path, ranks: Sequence[Rank]) -> Path:
    for number, rank in enumerate(ranks):
        head = {"version": "0.0.4", "attr": [{"name": "world_size", "int32Val": len(ranks)}]}
        lines = [json.dumps(document) for document in (head, *rank.nodes)]
        (folder / f"job.{number}.json").write_text("\n".join(lines))
    return folder / "job.0.json"


def replayed(folder: Path, ranks: Sequence[Rank], topology: str = RING, **more: Any) -> JobReport:
    report = replay(written(folder, ranks), "job", Setup(topology), How(**more))
    assert report is not None
    return report


def alone(group: Sequence[int], nbytes: int) -> float:
    buffers = [np.zeros(nbytes // 4, np.float32) for _ in group]
    return compiled(Emulator.load(RING), requested("all_reduce", buffers, ranks=group)).latency_ps / 1000


def of_groups(*groups: Sequence[int], nbytes: int = 1 << 20) -> list[Rank]:
    ranks = [Rank() for _ in range(8)]
    for group in groups:
        for rank in group:
            ranks[rank].collective("all_reduce", nbytes, group)
    return ranks


def test_a_job_takes_what_its_parts_take(tmp_path: Path) -> None:
    ranks = [Rank() for _ in range(8)]
    for number, rank in enumerate(ranks):
        rank.compute(5 + number)
        rank.collective("all_reduce", 4096, range(8))
        rank.compute(3)
    report = replayed(tmp_path, ranks)
    took = alone(range(8), 4096)
    assert report.latency_ns == pytest.approx(12_000 + took + 3_000)
    assert [rank.compute_ns for rank in report.ranks] == [8_000 + 1_000 * number for number in range(8)]
    # A rank goes on when its own part is done: the ranks whose data arrive early are done before the last.
    assert all(12_000 < rank.total_ns <= report.latency_ns for rank in report.ranks)
    assert {rank.total_ns for rank in report.ranks} != {report.latency_ns}
    assert [rank.waiting_ns for rank in report.ranks] == [7_000 - 1_000 * number for number in range(8)]
    assert report.together == 0
    assert [(call.start_ns, call.latency_ns, call.bytes) for call in report.calls] == [(12_000, took, 4096)]


def test_a_job_on_a_changed_machine(tmp_path: Path) -> None:
    ranks = of_groups((0, 1, 2, 3), (0, 1, 2, 3))
    ranks[1].compute(3)
    why = replayed(tmp_path, ranks).explain()
    slower = why.what_if({"system.sips.link.bandwidth_gbs": "0.5x"})
    there = replay(written(tmp_path, ranks), "job", Setup(RING, None, dict(slower.changes)))
    assert there is not None and slower.latency_ps == round(1000 * there.latency_ns) > why.latency_ps
    assert why.advice[0].gain_ps > 0


def test_groups_on_other_links_take_their_time_alone(tmp_path: Path) -> None:
    report = replayed(tmp_path, of_groups((0, 1), (4, 5)))
    assert [call.latency_ns for call in report.calls] == [alone((0, 1), 1 << 20)] * 2
    assert report.together == 2


def test_groups_on_one_link_contend(tmp_path: Path) -> None:
    ranks = of_groups((0, 2), (1, 3))
    report = replayed(tmp_path, ranks)
    single = alone((0, 2), 1 << 20)
    assert all(single * 1.3 < call.latency_ns < single * 2.1 for call in report.calls)
    assert report == replayed(tmp_path, ranks)
    program = report.program()
    assert program is not None
    assert program.simulate(record=False).latency_ps / 1000 == report.latency_ns


def test_computing_hides_communication(tmp_path: Path) -> None:
    took = alone(range(8), 1 << 20)

    def exposed(wait_first: bool) -> float:
        ranks = [Rank() for _ in range(8)]
        for rank in ranks:
            node = rank.collective("all_reduce", 1 << 20, range(8), wait=wait_first)
            rank.compute(took / 2000)
            if not wait_first:
                rank.wait(node)
            rank.compute(1)
        return replayed(tmp_path, ranks).ranks[0].exposed_ns

    assert exposed(True) == pytest.approx(took)
    assert exposed(False) == pytest.approx(took / 2)


def test_messages_of_one_tag_keep_their_order(tmp_path: Path) -> None:
    ranks = [Rank(), Rank()]
    for nbytes in (4096, 512, 2048):
        ranks[0].message("SEND", 1, nbytes)
        ranks[1].message("RECV", 0, nbytes)
    report = replayed(tmp_path, ranks)
    assert [(call.collective, call.bytes) for call in report.calls] == [
        ("send_recv", nbytes) for nbytes in (4096, 512, 2048)
    ]
    ends = [call.start_ns + call.latency_ns for call in report.calls]
    assert ends[:2] == pytest.approx([call.start_ns for call in report.calls[1:]])


def test_sizes_mean_what_the_recorder_says(tmp_path: Path) -> None:
    ranks = [Rank(), Rank(), Rank()]
    for number, rank in enumerate(ranks):
        rank.collective("all_gather", 40, range(3))
        rank.collective("reduce_scatter", 120, range(3), op="sum")
        rank.collective("all_to_all", 24 + 4 * number, range(3), in_splits=[1, 2, 3 + number], out_splits=[1, 1, 1])
        rank.collective("broadcast", 40, range(3), root=2)
        rank.collective("barrier", 0, range(3))
    found = [(call.collective, call.bytes, call.root) for call in replayed(tmp_path, ranks).calls]
    # Rank 2 gets most of the all_to_all: 3, 4 and 5 elements.
    assert found == [
        ("all_gather", 120, 0),
        ("reduce_scatter", 120, 0),
        ("all_to_all", 48, 0),
        ("broadcast", 40, 2),
        ("barrier", 2, 0),
    ]


def test_a_selector_chooses_for_every_call_of_a_job(tmp_path: Path) -> None:
    ranks = [Rank() for _ in range(4)]
    for rank in ranks:
        for nbytes in (1 << 10, 1 << 20):
            rank.wait(rank.collective("all_reduce", nbytes, range(4)))
    path = written(tmp_path, ranks)
    seen: list[int] = []

    def by_size(algorithms: Any, request: Any) -> str | None:
        seen.append(request.nbytes)
        assert "tree_allreduce" in algorithms
        return "tree_allreduce" if request.nbytes <= 1 << 10 else None

    overrides = {"system.sips.count": 4, "algorithm": "lrab_hierarchical_allreduce"}
    report = ahbm.open(path, topology=RING, overrides=overrides, selector=by_size).run()
    assert [call.algorithm for call in report.calls] == ["tree_allreduce", "lrab_hierarchical_allreduce"]
    assert sorted(set(seen)) == [1 << 10, 1 << 20]
    with pytest.raises(AhbmError, match="AHBM-C180"):
        ahbm.open(path, topology=RING, overrides={"system.sips.count": 4}, selector=lambda *_: "no").run()


def test_a_message_without_bytes_takes_no_time(tmp_path: Path) -> None:
    ranks = [Rank() for _ in range(2)]
    ranks[0].compute(3)
    ranks[0].message("SEND", 1, 0)
    ranks[1].message("RECV", 0, 0)
    report = replayed(tmp_path, ranks)
    assert [rank.total_ns for rank in report.ranks] == [3000, 3000]


def _spoil(ranks: list[Rank], what: str) -> None:
    node = ranks[1].nodes[0]
    attributes = {attribute["name"]: attribute for attribute in node["attr"]}
    if what == "absent":
        ranks[1].nodes.clear()
    elif what == "size":
        attributes["comm_size"]["int64Val"] = 8
    elif what == "kind":
        attributes["comm_type"]["int64Val"] = 10
    elif what == "memory":
        node["type"] = "MEM_LOAD_NODE"
    else:
        node["attr"].remove(attributes[what])


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("absent", "AHBM-F149"),
        ("size", "AHBM-F149"),
        ("kind", "AHBM-F136"),
        ("comm_type", "AHBM-F136"),
        ("comm_size", "AHBM-F136"),
        ("ranks", "AHBM-U234"),
        ("memory", "AHBM-F149"),
    ],
)
def test_what_a_trace_lacks_is_named(tmp_path: Path, what: str, code: str) -> None:
    ranks = of_groups((0, 1))[:2]
    _spoil(ranks, what)
    with pytest.raises(AhbmError) as caught:
        replayed(tmp_path, ranks)
    assert caught.value.code == code
    assert any("job." in site.origin for site in caught.value.sites)


def test_groups_that_a_trace_only_names_are_those_of_the_file_beside_it(tmp_path: Path) -> None:
    ranks = of_groups((0, 1))[:2]
    whole = replayed(tmp_path, ranks)
    names = set()
    for rank in ranks:
        attributes = {attribute["name"]: attribute for attribute in rank.nodes[0]["attr"]}
        rank.nodes[0]["attr"].remove(attributes["ranks"])
        names.add(attributes["pg_name"]["stringVal"])
    with pytest.raises(AhbmError, match=r"AHBM-U234 (.|\n)*--groups"):
        replayed(tmp_path, ranks)
    (tmp_path / "comm_group.json").write_text("{}")
    with pytest.raises(AhbmError, match=r"AHBM-U234 (.|\n)*--groups .*comm_group\.json"):
        replayed(tmp_path, ranks)
    (tmp_path / "job.groups.json").write_text(json.dumps({"9": [0]} | {name: [0, 1] for name in names}))
    assert replayed(tmp_path, ranks).latency_ns == whole.latency_ns
    (tmp_path / "other.json").write_text('{"9": [0]}')
    with pytest.raises(AhbmError, match=r"AHBM-U234 (.|\n)*known groups: 9; others by --groups FILE"):
        replayed(tmp_path, ranks, groups=tmp_path / "other.json")


def test_memory_nodes_take_their_bytes_at_the_bandwidth_of_memory(tmp_path: Path) -> None:
    ranks = [Rank()]
    ranks[0]._node("MEM_LOAD_NODE", "load", {"tensor_size": 8_000})
    report = replay(written(tmp_path, ranks), "job", Setup(RING, None, {"pe.roofline.memory_gbs": 4}))
    assert [rank.total_ns for rank in report.ranks] == [2_000]
    assert [stretch.what for stretch in report.path] == ["memory"]


def test_ranks_that_wait_for_each_other(tmp_path: Path) -> None:
    ranks = [Rank(), Rank()]
    for number, rank in enumerate(ranks):
        rank.message("RECV", 1 - number, 8, tag=1 - number)
        rank.message("SEND", 1 - number, 8, tag=number)
    with pytest.raises(AhbmError) as caught:
        replayed(tmp_path, ranks)
    assert caught.value.code == "AHBM-D102"
    labels = [site.label for site in caught.value.sites]
    assert "rank 0: RECV waits for rank 1 node 1" in labels and "rank 1: RECV waits for rank 0 node 1" in labels


def test_sends_are_eager(tmp_path: Path) -> None:
    ranks = [Rank(), Rank()]
    for number, rank in enumerate(ranks):
        rank.message("SEND", 1 - number, 8, tag=number)
        rank.message("RECV", 1 - number, 8, tag=1 - number)
    assert replayed(tmp_path, ranks).latency_ns > 0


def test_groups_come_from_a_file(tmp_path: Path) -> None:
    ranks = of_groups((0, 2), (1, 3))
    expected = replayed(tmp_path, ranks)
    for rank in ranks:
        for node in rank.nodes:
            node["attr"] = [attribute for attribute in node["attr"] if attribute["name"] != "ranks"]
    file = tmp_path / "groups"
    file.write_text(json.dumps({"0-2": [0, 2], "1-3": [1, 3]}))
    assert replayed(tmp_path, ranks, groups=file) == expected
    file.write_text('{"0-2": [0.5]}')
    with pytest.raises(ConfigError) as caught:
        replayed(tmp_path, ranks, groups=file)
    assert caught.value.code == "AHBM-C153"


def test_the_command_line_replays(tmp_path: Path) -> None:
    path = written(tmp_path, of_groups((0, 2), (1, 3)))
    shown = CliRunner().invoke(app, ["run", str(path), "-t", RING])
    assert shown.exit_code == 0, shown.output
    assert "job: 8 ranks" in shown.stdout
    assert "ranks 4-7" in shown.stdout
    found = json.loads(CliRunner().invoke(app, ["run", str(path), "-t", RING, "--json"]).stdout)
    assert found["together"] == 2
    assert max(rank["exposed_ns"] for rank in found["ranks"]) == found["latency_ns"]
    timeline = tmp_path / "timeline.json"
    assert CliRunner().invoke(app, ["run", str(path), "-t", RING, "--trace", str(timeline)]).exit_code == 0
    assert json.loads(timeline.read_text())["traceEvents"]
    for extra in (["--size", "4K"], ["--check", "all"]):
        refused = CliRunner().invoke(app, ["run", str(path), "-t", RING, *extra])
        assert isinstance(refused.exception, ConfigError), extra


@settings(max_examples=15, deadline=None)
@given(
    calls=st.lists(st.tuples(st.sampled_from([(0, 2), (1, 3), (0, 1, 2, 3), (2, 5), (4, 6)]), st.integers(1, 5000),
                             st.integers(0, 9000), st.booleans()), min_size=1, max_size=7)
)  # fmt: skip
def test_a_job_never_takes_less_than_its_parts(tmp_path_factory: pytest.TempPathFactory, calls: list[Any]) -> None:
    """No job is quicker than its longest call alone, and all together take no longer than one after the other."""
    ranks = [Rank() for _ in range(8)]
    waits: list[list[int]] = [[] for _ in range(8)]
    for group, elements, pause, wait in calls:
        for rank in group:
            ranks[rank].compute(pause / 1000)
            node = ranks[rank].collective("all_reduce", 4 * elements, group, wait=wait)
            waits[rank] += [] if wait else [node]
    for rank, nodes in zip(ranks, waits, strict=True):
        for node in nodes:
            rank.wait(node)
        rank.compute(0.001)
    report = replayed(tmp_path_factory.mktemp("job"), ranks)
    least = {(group, 4 * elements): alone(group, 4 * elements) for group, elements, _, _ in calls}
    assert report.latency_ns >= max(least.values())
    exposed = [0.0] * 8
    for part in report.exposed:
        exposed[part.rank] += part.exposed_ns
    assert exposed == pytest.approx([rank.exposed_ns for rank in report.ranks])
    assert sum(stretch.end_ns - stretch.start_ns for stretch in report.path) == pytest.approx(report.latency_ns)
    program = report.program()
    assert program is not None
    assert program.simulate(record=False).latency_ps / 1000 == report.latency_ns
    serial = sum(least[group, 4 * elements] + pause for group, elements, pause, _ in calls)
    assert report.latency_ns <= serial + 2


def issued(us: Sequence[tuple[int, int]]) -> Rank:
    """A host that issues an all-reduce and computations of the device: what each takes on the host, and itself."""
    rank = Rank()
    host: list[int] = []
    device: list[int] = []
    for number, (by_host, takes) in enumerate(us):
        rank.chain = host
        host = [rank._node("COMP_NODE", "host", {"duration_ns": by_host * 1000.0, "is_cpu_op": 1})]
        rank.chain = [*host, *device]
        if number == 0:
            device = [rank.collective("all_reduce", 4096, [0, 1], wait=False)]
        else:
            device = [rank._node("COMP_NODE", "kernel", {"duration_ns": takes * 1000.0})]
    return rank


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=8), st.data())
@settings(max_examples=30, deadline=None)
def test_a_host_does_not_compute_and_what_waits_for_it_is_told_apart(
    tmp_path_factory: pytest.TempPathFactory, us: list[tuple[int, int]], data: st.DataObject
) -> None:
    second = data.draw(st.permutations(us))
    report = replayed(tmp_path_factory.mktemp("job"), [issued(us), issued(second)], "npu_ring_8")
    for rank, of in zip(report.ranks, (us, second), strict=True):
        assert rank.compute_ns == 1000 * sum(takes for _, takes in of[1:])
        assert 0 <= rank.host_ns <= 1000 * sum(by_host for by_host, _ in of)
        assert rank.host_ns >= 1000 * of[0][0]  # nothing is there to do before the first is issued
        exposed = sum(part.exposed_ns for part in report.exposed if part.rank == rank.rank)
        assert rank.total_ns == pytest.approx(rank.compute_ns + rank.host_ns + exposed)
    assert sum(ns for _, ns in report.on_path()) == pytest.approx(report.latency_ns)
    assert ("host (us)" in str(report)) == any(rank.host_ns for rank in report.ranks)


def test_a_path_through_the_host_says_so(tmp_path: Path) -> None:
    report = replayed(tmp_path, [issued([(5, 0), (100, 10)]), issued([(5, 0), (1, 1)])])
    assert dict(report.on_path()) == {"host": 105_000, "compute": 10_000}
    assert report.ranks[0].host_ns > 90_000 and report.to_json()["ranks"][0]["host_ns"] == report.ranks[0].host_ns
