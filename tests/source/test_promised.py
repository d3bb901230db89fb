"""A schedule for a packaged network of NPUs takes the time that it promises, in every way in which it can be run."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

import ahbm
from ahbm._core import read_plan
from ahbm.base import packaged
from ahbm.config.topology import load_machine
from ahbm.errors import UnsupportedError
from ahbm.job.open import open_
from ahbm.runs import plans
from ahbm.runs.verdict import check_file
from ahbm.source.synthesis import METHODS, synthesize

PLAIN = sorted(
    path.stem for path in packaged.TOPOLOGIES.glob("*.yaml") if path.stem.split("_")[0] in ("npu", "tpu", "wafer")
)
COLLECTIVES = ("all_gather", "all_reduce", "all_to_all", "broadcast", "gather", "reduce", "reduce_scatter", "scatter")
MIB = 1 << 20


@pytest.mark.slow
@pytest.mark.parametrize("topology", [name for name in PLAIN if load_machine(name).sips <= 16])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_method_runs_in_its_time(topology: str, collective: str) -> None:
    ran = 0
    for method, size in itertools.product(METHODS, (65_536, 64 * MIB)):
        try:
            found = synthesize(collective, topology=topology, size=size, method=method)
        except UnsupportedError:
            continue
        ran += 1
        assert found.matches
        assert found.engines_bound is None
        assert found.run(data=False).time_ps == found.schedule.time_ps, (method, size)
    assert ran


@pytest.mark.slow
@pytest.mark.parametrize("topology", [name for name in PLAIN if load_machine(name).sips > 16])
def test_large_networks_too(topology: str) -> None:
    # Among 256 NPUs an all-reduce takes 6 s to run, and its phases are those of 64.
    asked = [("all_gather", "greedy"), ("all_reduce", "dimensions")][: 1 if load_machine(topology).sips > 64 else 2]
    for collective, method in asked:
        found = synthesize(collective, topology=topology, size=64 * MIB, method=method)
        assert found.matches
        assert found.run(data=False).time_ps == found.schedule.time_ps


def tacos(found: object, path: Path) -> None:
    """An all-gather as TACOS writes it: per link, its chunks in order."""
    links: dict[tuple[int, int], list[int]] = {}
    pieces = len(found.schedule.chunk_bytes)  # type: ignore[attr-defined]
    sips = found.machine.sips  # type: ignore[attr-defined]
    for source, target, chunk, _, _ in found.schedule.transfers():  # type: ignore[attr-defined]
        links.setdefault((source, target), []).append(chunk % pieces * sips + chunk // pieces)
    lines = [f"NPUs Count,{sips}", f"Links Count,{len(links)}", f"Chunks Count,{sips * pieces}"]
    lines += [f"Chunk Size,{found.schedule.chunk_bytes[0]},B", "SrcID,DestID,Latency (ns),Bandwidth (GB/s),Chunks"]  # type: ignore[attr-defined]
    lines += [f"{a},{b},500,50,{','.join(map(str, chunks))}" for (a, b), chunks in links.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.parametrize("topology", ["npu_mesh_4x4", "npu_torus_4x4", "npu_hypercube_16", "npu_fully_connected_8"])
@pytest.mark.parametrize("size", [1 << 16, 16 * MIB])
def test_a_file_of_tacos_runs_in_its_time(tmp_path: Path, topology: str, size: int) -> None:
    found = synthesize("all_gather", topology=topology, size=size, method="greedy", chunks=2)
    path = tmp_path / "schedule.csv"
    tacos(found, path)
    report = ahbm.run(path, topology=topology, bytes_per_rank=size, data=False)
    assert report.latency_ns * 1000 == pytest.approx(found.schedule.time_ps, rel=0.01)


def test_a_file_of_tacos_runs_at_the_size_that_it_states(tmp_path: Path) -> None:
    found = synthesize("all_gather", topology="npu_mesh_8x8", size=64 << 16, method="greedy")
    path = tmp_path / "schedule.csv"
    tacos(found, path)
    report = open_(str(path), topology="npu_mesh_8x8").run(data=False)
    assert (report.bytes, round(report.latency_ns * 1000)) == (64 << 16, found.schedule.time_ps)
    assert "4194304 B per rank: the size for which the schedule was made" in report.notes
    # What nobody asked for is not so large that its data take minutes.
    size, note = plans.usual_bytes(read_plan(path), path)
    assert size == MIB and note.startswith("1048576 B per rank: the schedule was made for 4194304 B, which --no-data")


def sketch(ranks: int) -> str:
    """An all_gather in stages, one for each dimension of a hypercube, as SyCCL's sketches are written as MSCCL-IR."""
    gpus = []
    for rank in range(ranks):
        blocks: list[str] = []
        stage = 1
        while stage < ranks:
            peer, waits = rank ^ stage, len(blocks) - 1
            steps = ""
            for number, (kind, first) in enumerate((("s", rank), ("r", peer))):
                place = first // stage * stage
                dep = f'depid="{waits}" deps="{1 if waits >= 0 else -1}"' if kind == "s" else 'depid="-1" deps="-1"'
                buffers = f'srcbuf="o" srcoff="{place}" dstbuf="o" dstoff="{place}" cnt="{stage}"'
                told = int(kind == "r" and 2 * stage < ranks)
                steps += f'<step s="{number}" type="{kind}" {buffers} {dep} hasdep="{told}"/>'
            blocks.append(f'<tb id="{len(blocks)}" send="{peer}" recv="{peer}" chan="0">{steps}</tb>')
            stage *= 2
        gpus.append(f'<gpu id="{rank}" i_chunks="1" o_chunks="{ranks}" s_chunks="0">{"".join(blocks)}</gpu>')
    sizes = f'nchannels="1" nchunksperloop="{ranks}" ngpus="{ranks}" minBytes="0" maxBytes="8388608"'
    head = f'name="sketch" proto="Simple" {sizes} coll="allgather" inplace="1" outofplace="0"'
    return f"<algo {head}>{''.join(gpus)}</algo>"


@pytest.mark.parametrize("size", [1 << 16, 1 << 20])
def test_a_sketch_of_stages_runs_in_the_time_of_its_stages(tmp_path: Path, size: int) -> None:
    path = tmp_path / "sketch.xml"
    path.write_text(sketch(16), encoding="utf-8")
    assert check_file(path).verdict == "correct"
    report = ahbm.run(path, topology="npu_hypercube_16", bytes_per_rank=size, data=False)
    assert report.latency_ns == pytest.approx(4 * 500 + 15 * size / 16 / 50, abs=0.01)


def sccl(ranks: int, steps: list[list[list[int]]]) -> str:
    """An all-gather as SCCL and TACCL write it: sends of each step as chunk, source, target."""
    everybody = list(range(ranks))
    chunks = [{"msccl_type": "chunk", "pre": [rank], "post": everybody, "addr": rank} for rank in everybody]
    collective = {"msccl_type": "collective", "name": "c", "nodes": ranks, "chunks": chunks}
    rounds = [{"msccl_type": "step", "rounds": 1, "sends": sends} for sends in steps]
    whole = {"msccl_type": "algorithm", "name": "a", "instance": {"pipeline": None}}
    return json.dumps({**whole, "collective": collective, "steps": rounds})


@pytest.mark.parametrize("size", [1 << 16, 16 * MIB])
def test_a_file_of_sccl_runs_in_its_steps(tmp_path: Path, size: int) -> None:
    """Both ways round the ring at once: four steps, each a latency and a chunk."""
    forth = [[[(rank - step) % 8, rank, (rank + 1) % 8] for rank in range(8)] for step in range(4)]
    back = [[[(rank + step) % 8, rank, (rank - 1) % 8] for rank in range(8)] for step in range(3)]
    path = tmp_path / "both_ways.json"
    path.write_text(sccl(8, [a + b for a, b in zip(forth, [*back, []], strict=True)]), encoding="utf-8")
    report = ahbm.run(path, topology="npu_ring_8", bytes_per_rank=size, data=False)
    assert report.latency_ns <= 4 * (500 + size / 8 / 50) * 1.01
    assert (report.percent_of_bound or 0) > (80 if size > MIB else 0)


@pytest.mark.parametrize("size", [1 << 16, 16 * MIB])
def test_a_file_of_te_ccl_runs_in_its_epochs(tmp_path: Path, size: int) -> None:
    """Every chunk over its own link in the first epoch."""
    paths = {
        f"Demand at {b} for chunk 0 from {a} met by epoch 0": [f"{a}->{b} in epoch 0"]
        for a, b in itertools.permutations(range(8), 2)
    }
    path = tmp_path / "direct.json"
    seconds = (500 + size / 8 / 50) / 1e9
    facts = {"4-Collective_Finish_Time": seconds, "5-Algo_Bandwidth": size / 1e9 / seconds}
    whole = {"1-Epoch_Duration": 1e-6, **facts, "6-Demand_Met": {}, "8-Chunk paths": paths}
    path.write_text(json.dumps(whole), encoding="utf-8")
    report = open_(str(path), topology="npu_fully_connected_8").run(data=False)
    assert report.bytes == size, "the file states its bandwidth, and so its size"
    assert report.latency_ns == pytest.approx(1e9 * seconds, rel=0.01)
    assert f"the size for which the schedule was made, in {1e9 * seconds:,.2f} ns by its own count" in report.notes[-1]
