"""Algorithm graphs that say how many bytes travel and not which, as algorithms of a job's calls: time only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ahbm
from ahbm.errors import AhbmError
from ahbm.job.replay import JobReport
from support.commands import run
from support.traces import attribute, write

RANKS = 4
STATED = 1 << 12


def ring(prefix: Path, size: list[dict[str, Any]], version: str = "0.0.4") -> None:
    """The steps of a ring all_reduce; `size` says how large a message is."""
    for rank in range(RANKS):
        nodes: list[dict[str, Any]] = []
        for step in range(2 * (RANKS - 1)):
            before = [2 * step - 1] if step else []
            for end, (kind, name, peer) in enumerate(
                [("COMM_SEND_NODE", "comm_dst", rank + 1), ("COMM_RECV_NODE", "comm_src", rank - 1)]
            ):
                facts = [*size, attribute(name, peer % RANKS), attribute("comm_tag", step)]
                node = {"id": 2 * step + end, "name": f"{step}", "type": kind, "attr": facts}
                nodes.append(node | ({} if end else {"ctrlDeps": before}))
        write(prefix, rank, nodes, version)


def sized(nbytes: int) -> list[dict[str, Any]]:
    """A message of the older dialect states its bytes."""
    return [attribute("comm_size", nbytes)]


def symbolic() -> list[dict[str, Any]]:
    """A message of the newer dialect is a share of the array."""
    return [attribute("msg_chunk_cnt", 1), attribute("total_chunk_cnt", RANKS)]


def job(folder: Path, nbytes: int) -> str:
    facts = [
        attribute("comm_type", 0),
        attribute("comm_size", nbytes),
        attribute("dtype", "f16"),
        attribute("op", "sum"),
    ]
    for rank in range(RANKS):
        write(folder / "step", rank, [{"id": 0, "name": "gradients", "type": "COMM_COLL_NODE", "attr": facts}])
    return f"{folder}/step.0.json"


def replayed(folder: Path, nbytes: int, entry: str) -> JobReport:
    ccl = folder / "ccl.yaml"
    ccl.write_text(f"algorithms:\n  graph: {entry}\ncollectives:\n  all_reduce: graph\n")
    report = ahbm.open(
        job(folder, nbytes), topology="npu_ring_8", overrides={"system.sips.count": RANKS}, ccl=ccl
    ).run()
    assert isinstance(report, JobReport)
    assert [call.algorithm for call in report.calls] == ["graph"]
    return report


def alone(folder: Path, **terms: Any) -> float:
    """The time of the same graph run as a file."""
    overrides = {"system.sips.count": RANKS}
    return (
        ahbm.open(f"{folder}/ring.0.json", topology="npu_ring_8", overrides=overrides, kind="algorithm", **terms)
        .run()
        .latency_ns
    )


def test_a_prefix_and_a_folder_mean_a_trace_in_json_too(tmp_path: Path) -> None:
    ring(tmp_path / "ring", sized(STATED // RANKS))
    wanted = alone(tmp_path)
    overrides = {"system.sips.count": RANKS}
    for name in (tmp_path / "ring", tmp_path):
        run_as = ahbm.open(name, topology="npu_ring_8", overrides=overrides, kind="algorithm")
        assert run_as.run().latency_ns == wanted
        assert run("ahbm", ["check", str(name)], tmp_path)[0] == run("ahbm", ["check", "ring.0.json"], tmp_path)[0]
    (tmp_path / "job").mkdir()
    file = job(tmp_path / "job", STATED)
    found = [ahbm.open(name, topology="npu_ring_8").run() for name in (file, tmp_path / "job", tmp_path / "job/step")]
    assert all(isinstance(report, JobReport) for report in found)
    assert len({report.latency_ns for report in found}) == 1


@pytest.mark.parametrize("factor", [1, 2, 16])
def test_sizes_are_scaled(factor: int, tmp_path: Path) -> None:
    """A graph of 4 KiB as that of a call of so many times as much."""
    ring(tmp_path / "ring", sized(factor * STATED // RANKS))
    wanted = alone(tmp_path)
    ring(tmp_path / "ring", sized(STATED // RANKS))
    entry = f"{{plan: ring.0.json, collective: all_reduce, stated_bytes: {STATED}}}"
    assert replayed(tmp_path, factor * STATED, entry).latency_ns == wanted


@pytest.mark.parametrize(("collective", "kind", "each"), [("all_gather", 2, RANKS), ("reduce_scatter", 7, 1)])
def test_stated_bytes_count_the_array_of_all_ranks(collective: str, kind: int, each: int, tmp_path: Path) -> None:
    """Whatever `comm_size` of a call counts: the column `bytes` of the report."""
    ring(tmp_path / "ring", sized(STATED // RANKS))
    wanted = alone(tmp_path)
    facts = [attribute("comm_type", kind), attribute("comm_size", STATED // each)]
    for rank in range(RANKS):
        write(tmp_path / "step", rank, [{"id": 0, "name": "c", "type": "COMM_COLL_NODE", "attr": facts}])
    ccl = tmp_path / "ccl.yaml"
    entry = f"{{plan: ring.0.json, collective: {collective}, stated_bytes: {STATED}}}"
    ccl.write_text(f"algorithms:\n  graph: {entry}\ncollectives:\n  {collective}: graph\n")
    overrides = {"system.sips.count": RANKS}
    report = ahbm.open(f"{tmp_path}/step.0.json", topology="npu_ring_8", overrides=overrides, ccl=ccl).run()
    assert isinstance(report, JobReport)
    assert (report.latency_ns, report.calls[0].bytes) == (wanted, STATED)


def test_shares_are_those_of_the_call(tmp_path: Path) -> None:
    ring(tmp_path / "ring", symbolic())
    found = replayed(tmp_path, 1 << 16, "{plan: ring.0.json, collective: all_reduce}").latency_ns
    assert found == alone(tmp_path, bytes_per_rank=1 << 16)
    ring(tmp_path / "ring", sized(STATED // RANKS))
    entry = f"{{plan: ring.0.json, collective: all_reduce, stated_bytes: {STATED}}}"
    assert found == replayed(tmp_path, 1 << 16, entry).latency_ns


@pytest.mark.parametrize(
    ("entry", "nbytes", "code", "told"),
    [
        ("{plan: ring.0.json}", STATED, "AHBM-C115", "implements all_gather, not all_reduce"),
        ("{plan: ring.0.json, collective: all_reduce}", STATED, "AHBM-U232", "stated_bytes"),
        (f"{{plan: ring.0.json, collective: all_reduce, stated_bytes: {3 * STATED}}}", STATED, "AHBM-U232", "multiple"),
        (f"{{plan: ring.0.json, collective: all_gather, stated_bytes: {STATED}}}", STATED, "AHBM-C115", "all_gather"),
        ("{plan: ring.0.json, collective: all_reduc}", STATED, "AHBM-C103", "one of all_reduce"),
        ("{plan: ring.0.json, collective: all_reduce, stated_bytes: 0}", STATED, "AHBM-C103", "at least 1"),
    ],
)
def test_what_is_missing_is_named(entry: str, nbytes: int, code: str, told: str, tmp_path: Path) -> None:
    ring(tmp_path / "ring", sized(STATED // RANKS))
    with pytest.raises(AhbmError) as error:
        replayed(tmp_path, nbytes, entry)
    assert error.value.code == code and told in str(error.value)


def test_what_says_itself_is_not_told(tmp_path: Path) -> None:
    """A plan with buffers knows its collective and has chunks of any size."""
    ahbm.convert("ring_allreduce", tmp_path / "own.xml", overrides={"system.sips.count": RANKS}, topology="npu_ring_8")
    for keys in ("collective: all_reduce", "stated_bytes: 4096"):
        with pytest.raises(AhbmError) as error:
            replayed(tmp_path, STATED, f"{{plan: own.xml, {keys}}}")
        assert error.value.code == "AHBM-C103" and "graphs that do not say" in str(error.value)


def test_without_data_there_is_no_run_with_data(tmp_path: Path) -> None:
    ring(tmp_path / "ring", sized(STATED // RANKS))
    ccl = tmp_path / "ccl.yaml"
    entry = f"{{plan: ring.0.json, collective: all_reduce, stated_bytes: {STATED}}}"
    ccl.write_text(f"algorithms:\n  graph: {entry}\n")
    for data in (True, False):
        with pytest.raises(AhbmError) as error:
            ahbm.run(
                "all_reduce",
                "graph",
                "npu_ring_8",
                bytes_per_rank=STATED,
                ccl=ccl,
                data=data,
                overrides={"system.sips.count": RANKS},
            )
        assert error.value.code == "AHBM-U233" and "ahbm run FILE" in str(error.value)
    # A list of algorithms names it, and so does a table of what each of them would be.
    names = ahbm.Emulator.load("npu_ring_8", ccl).algorithms("all_reduce")
    assert "graph" in names


def test_queues_have_no_bound_unless_the_entry_says_one(tmp_path: Path) -> None:
    """Each of two ranks sends three messages before it receives any: three slots, or nobody goes on."""
    for rank in range(2):
        nodes = []
        for number in range(6):
            kind, name = ("COMM_SEND_NODE", "comm_dst") if number < 3 else ("COMM_RECV_NODE", "comm_src")
            facts = [*sized(64), attribute(name, 1 - rank), attribute("comm_tag", 0)]
            deps = {"ctrlDeps": [number - 1]} if number else {}
            nodes.append({"id": number, "name": "x", "type": kind, "attr": facts, **deps})
        write(tmp_path / "pair", rank, nodes)
        facts = [attribute("comm_type", 0), attribute("comm_size", 64)]
        write(tmp_path / "step", rank, [{"id": 0, "name": "all", "type": "COMM_COLL_NODE", "attr": facts}])
    ccl = tmp_path / "ccl.yaml"
    for slots, stuck in (("", False), (", n_slots: 3", False), (", n_slots: 2", True)):
        entry = f"{{plan: pair.0.json, collective: all_reduce, stated_bytes: 64{slots}}}"
        ccl.write_text(f"algorithms:\n  graph: {entry}\ncollectives:\n  all_reduce: graph\n")
        opened = ahbm.open(
            f"{tmp_path}/step.0.json", topology="npu_ring_8", overrides={"system.sips.count": 2}, ccl=ccl, kind="job"
        )
        if stuck:
            with pytest.raises(ahbm.errors.DeadlockError):
                opened.run()
        else:
            opened.run()
