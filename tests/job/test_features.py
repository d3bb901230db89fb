"""`ahbm features`: columns equal to counts by hand, of algorithms and of the calls of jobs."""

from __future__ import annotations

import csv
import io
import json
import random
import re
from math import log2
from pathlib import Path
from typing import Any

import pytest

import ahbm
from ahbm.choose.features import OF_MACHINES
from ahbm.job.features import OF_ALGORITHMS, OF_CALLS
from ahbm.job.transformer import Transformer
from support.commands import run
from support.traces import attribute, write

BYTES = 1 << 14
DOCS = Path(__file__).parents[2] / "docs" / "features.md"


def row(name: str, topology: str, ranks: int, **terms: Any) -> dict[str, Any]:
    overrides = {"system.sips.count": ranks, "system.sips.topology": topology}
    if topology == "mesh_2d_no_wrap":
        overrides |= {"system.sips.w": int(ranks**0.5), "system.sips.h": int(ranks**0.5)}
    found = ahbm.features(name, topology="npu_ring_8", overrides=overrides, bytes_per_rank=BYTES, **terms)
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_a_ring(ranks: int) -> None:
    found = row("ring_allreduce", "ring_1d", ranks)
    hops = 2 * (ranks - 1)
    wanted = {"chunk_count": ranks * hops, "dependency_depth": hops, "branch_factor": 1}
    wanted |= {"sent_bytes": hops * BYTES, "busiest_bytes": hops * BYTES // ranks, "message_size_bin": 14}
    assert {name: found[name] for name in wanted} == wanted
    assert found["operations"] == (ranks - 1) * BYTES // 2  # each rank but the first adds each element once
    assert found["arithmetic_intensity"] == pytest.approx(0.25)


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_a_tree(ranks: int) -> None:
    found = row("tree_allreduce", "ring_1d", ranks)
    wanted = {"chunk_count": 2 * (ranks - 1), "dependency_depth": 2 * log2(ranks), "branch_factor": log2(ranks)}
    wanted |= {"sent_bytes": 2 * (ranks - 1) * BYTES, "busiest_bytes": log2(ranks) * BYTES}
    assert {name: found[name] for name in wanted} == wanted


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_doubling(ranks: int) -> None:
    found = row("recursive_doubling_allreduce", "ring_1d", ranks)
    wanted = {"chunk_count": ranks * log2(ranks), "dependency_depth": log2(ranks), "branch_factor": 1}
    wanted |= {"sent_bytes": ranks * log2(ranks) * BYTES, "operations": ranks * log2(ranks) * BYTES / 2}
    assert {name: found[name] for name in wanted} == wanted


def halving_doubling(path: Path, ranks: int) -> None:
    """Every rank halves what it is responsible for, log2(ranks) times, and doubles what it knows as often."""
    steps = int(log2(ranks))
    for rank in range(ranks):
        nodes: list[dict[str, Any]] = []
        for step in range(2 * steps):
            distance = step if step < steps else 2 * steps - 1 - step
            size, peer = BYTES >> (distance + 1), rank ^ (ranks >> (distance + 1))
            for end, name in enumerate(("comm_dst", "comm_src")):
                kind = ("COMM_SEND_NODE", "COMM_RECV_NODE")[end]
                facts = [attribute(name, peer), attribute("comm_size", size), attribute("comm_tag", step)]
                ids = {"id": 2 * step + end, "name": f"step {step}"}
                # What is sent needs what was received; a receive stands ready from the start.
                deps = {"ctrlDeps": [2 * step - 1]} if step and not end else {}
                nodes.append({**ids, "type": kind, "attr": facts, **deps})
        write(path, rank, nodes)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_halving_and_doubling(ranks: int, tmp_path: Path) -> None:
    halving_doubling(tmp_path / "hd", ranks)
    found = ahbm.features(tmp_path / "hd.0.json", topology="npu_ring_8", kind="algorithm")[0]
    steps = int(log2(ranks))
    assert (found["chunk_count"], found["dependency_depth"]) == (2 * steps * ranks, 2 * steps)
    assert (found["branch_factor"], found["sent_bytes"]) == (1, 2 * (ranks - 1) * BYTES)


@pytest.mark.parametrize("side", [2, 3, 4])
def test_a_mesh(side: int) -> None:
    """Whole arrays along every row to its end and back, and then along every column."""
    found = row("lrab_hierarchical_allreduce", "mesh_2d_no_wrap", side * side)
    chunks = 2 * side * 2 * (side - 1)
    wanted = {"chunk_count": chunks, "dependency_depth": 4 * (side - 1), "sent_bytes": chunks * BYTES}
    assert {name: found[name] for name in wanted} == wanted


def test_the_hash_is_that_of_the_steps() -> None:
    """Another size or type takes the same steps; another algorithm, and another number of ranks, others."""
    ids = [
        ahbm.features(name, topology="npu_ring_8", bytes_per_rank=size, dtype=dtype, overrides=overrides)[0][
            "algorithm_id"
        ]
        for name, size, dtype, overrides in [
            ("ring_allreduce", 1 << 10, "f16", None),
            ("ring_allreduce", 1 << 20, "f32", None),
            ("tree_allreduce", 1 << 10, "f16", None),
            ("ring_allreduce", 1 << 10, "f16", {"system.sips.count": 4}),
        ]
    ]
    assert ids[0] == ids[1] and len(set(ids)) == 3


def test_a_collective_is_all_of_its_algorithms() -> None:
    table = ahbm.features("all_reduce", topology="npu_switch_8", bytes_per_rank=1 << 10)
    by_name = {found["algorithm"]: found for found in table}
    assert set(by_name) == set(ahbm.Emulator.load("npu_switch_8").algorithms("all_reduce"))
    refused = by_name["lrab_hierarchical_allreduce"]
    assert refused["code"] == "AHBM-C116" and refused["chunk_count"] is None
    assert by_name["ring_allreduce"]["code"] is None


@pytest.mark.parametrize("form", ["xml", "json", "et"])
def test_a_plan_counts_as_the_kernel_that_it_is(form: str, tmp_path: Path) -> None:
    """Through queues, through memory and counters, and as a graph."""
    ahbm.convert("ring_allreduce", tmp_path / f"ring.{form}", topology="npu_ring_8", nbytes=BYTES)
    plan = ahbm.features(tmp_path / f"ring.{form}", topology="npu_ring_8", bytes_per_rank=BYTES)[0]
    kernel = row("ring_allreduce", "ring_1d", 8)
    same = ("chunk_count", "dependency_depth", "branch_factor", "sent_bytes", "operations", "message_size_bin")
    assert {name: plan[name] for name in same} == {name: kernel[name] for name in same}


def job(path: Path, ranks: int, nodes: list[dict[str, Any]]) -> ahbm.job.features.Features:  # type: ignore[name-defined]
    for rank in range(ranks):
        write(path, rank, nodes)
    return ahbm.features(f"{path}.0.json", topology="npu_ring_8", kind="job")


def call(node: int, name: str, after: list[int], size: int = 4096) -> dict[str, Any]:
    attributes = [attribute("comm_type", 0), attribute("comm_size", size)]
    return {"id": node, "name": name, "type": "COMM_COLL_NODE", "ctrlDeps": after, "attr": attributes}


def compute(node: int, name: str, after: list[int], micros: int = 3) -> dict[str, Any]:
    return {"id": node, "name": name, "type": "COMP_NODE", "ctrlDeps": after, "durationMicros": micros}


def test_calls(tmp_path: Path) -> None:
    """A chain with a branch: the first call has a product beside it, the second one has not."""
    nodes = [
        compute(0, "gemm", []),
        call(1, "gradients", [0]),
        compute(2, "gemm", [0]),
        compute(3, "aten::cat", [1, 2]),
        call(4, "gradients", [3], 1 << 20),
        compute(5, "optimizer", [4]),
        compute(6, "logging", [4]),
        call(7, "loss", [5, 6], 1),
    ]
    table = job(tmp_path / "step", 2, nodes)
    columns = ("message_size_bin", "pipelined", "fused", "producers", "branch_factor", "dependency_depth")
    assert [tuple(found[name] for name in columns) for found in table] == [
        (12, True, False, 1, 1, 1),
        (20, False, True, 1, 2, 2),
        (0, False, True, 2, 0, 3),
    ]
    total = 2 * (4096 + (1 << 20) + 1)
    assert table[0]["model_intensity"] == pytest.approx(2 * 5 / total)
    assert table[0]["compute_to_comm_ratio"] == pytest.approx(2 * 5 * 3000 / total)
    assert not any(found["overlap_capable"] for found in table)


def test_a_call_with_chunks(tmp_path: Path) -> None:
    part = {"id": 1, "name": "part", "type": "METADATA_NODE", "attr": [attribute("part_of", 0), attribute("part", 1)]}
    table = job(tmp_path / "step", 2, [call(0, "all", []), part, compute(2, "gemm", [1]), call(3, "other", [2])])
    assert [found["overlap_capable"] for found in table] == [True, False]


@pytest.mark.parametrize("seed", range(20))
def test_pipelined_is_what_reachability_says(seed: int, tmp_path: Path) -> None:
    """Random graphs, against the transitive closure."""
    chance = random.Random(seed)
    count = chance.randrange(2, 24)
    deps = [sorted(chance.sample(range(at), min(at, chance.choice([0, 1, 1, 2, 3])))) for at in range(count)]
    calls = [at for at in range(count) if chance.random() < 0.4] or [count - 1]
    nodes = [(call if at in calls else compute)(at, "node", deps[at]) for at in range(count)]
    reach: list[set[int]] = []
    for own in deps:
        reach.append(set(own).union(*(reach[dep] for dep in own)))
    computes = [at for at in range(count) if at not in calls]
    wanted = [any(x not in reach[at] and at not in reach[x] for x in computes) for at in calls]
    assert [found["pipelined"] for found in job(tmp_path / "step", 2, nodes)] == wanted


def test_chains_go_through_messages(tmp_path: Path) -> None:
    """Rank 1's call follows a message that follows rank 0's call: three in a chain, over both ranks."""
    both = [attribute("comm_size", 64), attribute("comm_tag", 0)]
    own = {"ranks": [0]}, {"ranks": [1]}
    chain = [
        [call(0, "own", []), {"id": 1, "name": "send", "type": "COMM_SEND_NODE", "ctrlDeps": [0]}],
        [{"id": 0, "name": "recv", "type": "COMM_RECV_NODE"}, call(1, "own", [0])],
    ]
    chain[0][1]["attr"] = [*both, attribute("comm_dst", 1)]
    chain[1][0]["attr"] = [*both, attribute("comm_src", 0)]
    for rank in range(2):
        chain[rank][rank]["attr"].append({"name": "ranks", "int64List": {"values": own[rank]["ranks"]}})
        chain[rank][rank]["attr"].append({"name": "pg_name", "stringVal": f"own{rank}"})
        write(tmp_path / "step", rank, chain[rank])
    table = ahbm.features(tmp_path / "step.0.json", topology="npu_ring_8", kind="job")
    assert {found["group"]: found["dependency_depth"] for found in table} == {"own0": 1, "own1": 3}


def test_a_generated_step(tmp_path: Path) -> None:
    """Gradients are reduced in buckets while the backward pass goes on."""
    Transformer(
        layers=4, hidden=64, heads=4, sequence=16, dp=2, micro_batches=1, bucket_bytes=1 << 17
    ).workload().write(tmp_path / "step")
    machine = {"pe.roofline.peak_tflops": 100, "pe.roofline.memory_gbs": 2000}
    table = ahbm.features(tmp_path / "step", topology="npu_ring_8", overrides=machine)
    assert table[0]["pipelined"] and table[0]["fused"] and table[0]["producers"] > 1
    assert table[0]["compute_to_comm_ratio"] > 0 and table[0]["arithmetic_intensity"] > 0
    quicker = ahbm.features(
        tmp_path / "step", topology="npu_ring_8", overrides={**machine, "pe.roofline.memory_gbs": 4000}
    )
    assert quicker[0]["compute_to_comm_ratio"] < table[0]["compute_to_comm_ratio"]


def test_one_row_however_it_is_printed(tmp_path: Path) -> None:
    def told(*form: str) -> str:
        words = ["features", "ring_allreduce", "-t", "npu_ring_8", "--size", "16K"]
        code, out, err = run("ahbm", [*words, *form], tmp_path)
        assert (code, err) == (0, "")
        return out

    (printed,) = csv.DictReader(io.StringIO(told("--csv")))
    found = json.loads(told("--json"))
    known = ahbm.features("ring_allreduce", topology="npu_ring_8", bytes_per_rank=BYTES)
    assert found == known.to_json()
    assert printed == {name: "" if value is None else str(value) for name, value in known[0].items()}
    head, line = told().splitlines()
    assert head.split() == [name for name in known.columns if known[0][name] is not None] and "ring_allreduce" in line


@pytest.mark.parametrize("overrides", [{}, {"protocol": "simple"}], ids=["quickest", "named"])
def test_bounds_are_those_of_a_run_whatever_protocol_a_call_has(overrides: dict[str, object]) -> None:
    terms: dict[str, Any] = {"topology": "p5", "bytes_per_rank": 1 << 20, "overrides": overrides}
    (row,) = ahbm.features("ring_allreduce", **terms)
    bound_ps = ahbm.run("all_reduce", "ring_allreduce", data=False, **terms).bound.ps
    assert row["bound_latency_ns"] + row["bound_bandwidth_ns"] == pytest.approx(bound_ps / 1000)


def test_what_does_not_go_together(tmp_path: Path) -> None:
    for rank in range(2):
        write(tmp_path / "step", rank, [call(0, "all", [])])
    trace = f"{tmp_path}/step.0.json"
    for targets, terms in [
        ((trace, "ring_allreduce"), {}),
        ((trace,), {"algorithm": "ring_allreduce"}),
        ((trace,), {"bytes_per_rank": 64}),
        (("ring_allreduce",), {"algorithm": "tree_allreduce"}),
        (("ring_allreduce",), {"lanes": "astra"}),
        (("ring_allreduce",), {"nonsense": 1}),
    ]:
        with pytest.raises(ahbm.errors.ConfigError) as error:
            ahbm.features(*targets, **terms)
        assert error.value.code == "AHBM-C146", targets


def test_the_page_has_every_column_with_its_unit() -> None:
    tables: list[set[tuple[str, str]]] = []
    for line in DOCS.read_text().splitlines():
        if line.startswith("## Of"):
            found = set()
            tables.append(found)
        names, _, rest = line.removeprefix("| ").partition(" | ")
        if line.startswith("| `"):
            unit = rest.partition("|")[0].strip()
            found |= {(name, unit) for name in re.findall("`([a-z_]+)`", names)}
    assert tables == [set(columns.items()) for columns in (OF_ALGORITHMS, OF_CALLS, OF_MACHINES)]


def test_what_gets_stuck_has_no_columns(tmp_path: Path) -> None:
    """Each of two ranks sends three messages before it receives any."""
    for rank in range(2):
        nodes = []
        for number in range(6):
            kind, name = ("COMM_SEND_NODE", "comm_dst") if number < 3 else ("COMM_RECV_NODE", "comm_src")
            facts = [attribute("comm_size", 64), attribute(name, 1 - rank)]
            nodes.append(
                {"id": number, "name": "x", "type": kind, "ctrlDeps": [number - 1] if number else [], "attr": facts}
            )
        write(tmp_path / "pair", rank, nodes)
    terms: dict[str, Any] = {"topology": "npu_ring_8", "kind": "algorithm"}
    assert ahbm.features(tmp_path / "pair.0.json", slots=3, **terms)[0]["dependency_depth"] == 1
    with pytest.raises(ahbm.errors.DeadlockError) as error:
        ahbm.features(tmp_path / "pair.0.json", slots=2, **terms)
    assert error.value.code == "AHBM-D201"
