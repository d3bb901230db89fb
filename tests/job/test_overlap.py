"""Computation that waits for a chunk of a collective, or delivers one: the closed forms of a ring.

With c the time of one chunk and g that of its computation, N chunks take N g + (N - 1) c one after the other, and
g + (N - 1) max(g, c) chunk by chunk (S. Wang et al., ASPLOS 2023).
"""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ahbm.cli import app
from ahbm.errors import AhbmError
from ahbm.job.replay import JobReport, replay
from ahbm.ranks.setup import Setup

CHUNK = 1 << 20
GATHER, SCATTER = 2, 7


def node(number: int, name: str, kind: str, after: list[int], **facts: Any) -> dict[str, Any]:
    attributes = [
        {"name": key, "doubleVal" if isinstance(value, float) else "int64Val": value} for key, value in facts.items()
    ]
    return {"id": number, "name": name, "type": kind, "dataDeps": after, "attr": attributes}


def gathered(rank: int, ranks: int, ns: float, chunked: bool) -> list[dict[str, Any]]:
    """An all_gather, and a computation for each chunk, in the order in which a ring brings them."""
    nodes = [node(0, "all_gather", "COMM_COLL_NODE", [], comm_type=GATHER, comm_size=CHUNK)]
    for step in range(ranks):
        chunk = (rank - step) % ranks
        if chunked:
            nodes.append(node(1 + 2 * step, f"chunk {chunk}", "METADATA_NODE", [], part_of=0, part=chunk))
        nodes.append(node(2 + 2 * step, "gemm", "COMP_NODE", [1 + 2 * step if chunked else 0], duration_ns=float(ns)))
    return nodes


def scattered(rank: int, ranks: int, ns: float, chunked: bool) -> list[dict[str, Any]]:
    """A computation for each chunk, in the order in which a ring sends them, and a reduce_scatter."""
    nodes, last = [], 2 * ranks
    for step in range(ranks):
        chunk = (rank - 1 - step) % ranks
        nodes.append(node(2 * step, "gemm", "COMP_NODE", [], duration_ns=float(ns)))
        if chunked:
            facts = {"part_of": last, "part": chunk, "part_input": 1}
            nodes.append(node(2 * step + 1, f"chunk {chunk}", "METADATA_NODE", [2 * step], **facts))
    after = [] if chunked else [2 * step for step in range(ranks)]
    facts = {"comm_type": SCATTER, "comm_size": CHUNK * ranks}
    return [*nodes, node(last, "reduce_scatter", "COMM_COLL_NODE", after, **facts)]


def replayed(folder: Path, job: Any, ranks: int, ns: float, chunked: bool, algorithm: str | None = None) -> JobReport:
    folder.mkdir(exist_ok=True)
    head = {"version": "0.0.4", "attr": [{"name": "world_size", "int32Val": ranks}]}
    for rank in range(ranks):
        lines = [json.dumps(document) for document in (head, *job(rank, ranks, ns, chunked))]
        (folder / f"job.{rank}.json").write_text("\n".join(lines))
    setup = Setup("npu_ring_8", None, {"system.sips.count": ranks}, algorithm)
    return replay(folder / "job.0.json", "job", setup)


@pytest.mark.parametrize("job", [gathered, scattered])
@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_chunk_by_chunk(tmp_path: Path, job: Any, ranks: int) -> None:
    chunk = replayed(tmp_path, job, ranks, 0.0, chunked=False).latency_ns / (ranks - 1)
    for ratio in (0.1, 0.5, 1.0, 2.0, 10.0):
        ns = round(chunk * ratio)
        whole = replayed(tmp_path, job, ranks, ns, chunked=False)
        assert whole.latency_ns == pytest.approx(ranks * ns + (ranks - 1) * chunk, abs=0.0005)
        report = replayed(tmp_path, job, ranks, ns, chunked=True)
        assert report.latency_ns == pytest.approx(ns + (ranks - 1) * max(ns, chunk), abs=0.0005)
        program = report.program()
        assert program is not None
        assert program.simulate(record=False).latency_ps / 1000 == report.latency_ns


@pytest.mark.parametrize("suffix", ["xml", "json", "et"])
def test_by_a_plan_as_by_its_kernel(tmp_path: Path, suffix: str) -> None:
    plan = tmp_path / f"ring.{suffix}"
    made = CliRunner().invoke(app, ["convert", "-a", "ring_all_gather", "--ranks", "4", "-o", str(plan)])
    assert made.exit_code == 0, made.output
    for ns in (2_000.0, 60_000.0):
        by_kernel = replayed(tmp_path / "jobs", gathered, 4, ns, chunked=True, algorithm="ring_all_gather")
        by_plan = replayed(tmp_path / "jobs", gathered, 4, ns, chunked=True, algorithm=str(plan))
        assert by_plan.latency_ns == by_kernel.latency_ns
        assert by_plan.calls[0].algorithm != by_kernel.calls[0].algorithm


def test_a_chunk_that_the_call_does_not_have(tmp_path: Path) -> None:
    def job(rank: int, ranks: int, ns: float, chunked: bool) -> list[dict[str, Any]]:
        nodes = gathered(rank, ranks, ns, chunked)
        return [*nodes, node(99, "chunk", "METADATA_NODE", [], part_of=0, part=ranks)]

    with pytest.raises(AhbmError, match="attribute part is 2, the call has 2 ranks") as caught:
        replayed(tmp_path, job, 2, 1.0, chunked=True)
    assert caught.value.code == "AHBM-F136"
