"""Synthesized schedules: right, reproducible, as quick on the emulator as they say, and close to the bound."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

import ahbm
from ahbm._core import Schedule
from ahbm.base import packaged
from ahbm.cli import app
from ahbm.errors import BudgetError, ConfigError, UnsupportedError
from ahbm.source.synthesis import METHODS, Synthesis, synthesize

LINKS = {"cube.pe_layout.pe_per_corner": 8}
"""A PE, and so a DMA engine, for each link of an NPU."""

COLLECTIVES = (
    "all_gather",
    "all_reduce",
    "all_to_all",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "scatter",
)


def grid(w: int, h: int, network: str = "mesh_2d_no_wrap") -> dict[str, object]:
    return {
        **LINKS,
        "system.sips.topology": network,
        "system.sips.count": w * h,
        "system.sips.w": w,
        "system.sips.h": h,
    }


def network(name: str, sips: int) -> dict[str, object]:
    return {**LINKS, "system.sips.topology": name, "system.sips.count": sips}


@pytest.mark.parametrize(
    "topology", ["npu_mesh_4x4", "npu_torus_4x4", "npu_hypercube_16", "npu_ring_8", "npu_switch_8"]
)
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_the_emulator_agrees_and_so_does_numpy(collective: str, topology: str) -> None:
    found = synthesize(collective, topology=topology, chunk_bytes=4096, chunks=2, dtype="f32", root=3)
    ran = found.run()
    assert found.matches and not found.mismatch
    assert (ran.time_ps, ran.wrong) == (found.schedule.time_ps, 0)
    assert found.schedule.time_ps >= found.schedule.bound_ps


@pytest.mark.parametrize("op", ["sum", "prod", "min", "max"])
@pytest.mark.parametrize("dtype", ["f16", "bf16", "i8", "u64"])
def test_reductions(op: str, dtype: str) -> None:
    for collective in ("all_reduce", "reduce", "reduce_scatter"):
        found = synthesize(
            collective, topology="npu_mesh_4x4", overrides=LINKS, size=1 << 12, dtype=dtype, op=op, root=5
        )
        assert found.run().wrong == 0


@pytest.mark.parametrize(
    ("overrides", "bound"),
    [
        (grid(8, 8), 32),
        (grid(16, 16), 128),
        (grid(8, 4, "torus_2d"), 8),
        (grid(16, 16, "torus_2d"), 64),
        (network("hypercube", 128), 19),
        (network("torus_3d", 64), 11),
        (network("ring_1d", 65), 32),
    ],
    ids=["mesh 8x8", "mesh 16x16", "torus 8x4", "torus 16x16", "hypercube 7", "torus 4x4x4", "ring 65"],
)
def test_all_gather_rounds(overrides: dict[str, object], bound: int) -> None:
    found = synthesize("all_gather", topology="npu_mesh_4x4", overrides=overrides, chunk_bytes=1 << 20, method="greedy")
    assert (found.schedule.rounds, found.schedule.rounds_bound) == (bound, bound)


@pytest.mark.parametrize(
    ("name", "sips"),
    [
        ("mesh_2d_no_wrap", 64),
        ("mesh_2d_no_wrap", 144),
        ("mesh_3d", 64),
        ("mesh_3d", 125),
        ("torus_2d", 64),
        ("torus_2d", 324),
        ("torus_3d", 64),
        ("hypercube", 64),
        ("hypercube", 512),
        ("ring_1d", 64),
        ("fully_connected", 16),
        ("switch", 16),
    ],
)
def test_a_large_all_reduce_takes_little_more_than_the_bound(name: str, sips: int) -> None:
    found = synthesize("all_reduce", topology="npu_ring_8", overrides=network(name, sips), size=256 << 20)
    assert 95 <= found.percent_of_bound <= 100


@pytest.mark.slow
def test_large_all_reduce_on_a_mesh_is_close_to_the_strength_bound() -> None:
    arguments: dict[str, Any] = {"topology": "npu_mesh_4x4", "overrides": grid(8, 8), "size": 256 << 20}
    trees = synthesize("all_reduce", method="trees", **arguments)
    composed = synthesize("all_reduce", method="greedy", **arguments)
    ran = trees.run(data=False)
    assert ran.time_ps == trees.schedule.time_ps
    assert trees.percent_of_bound >= 92
    assert composed.schedule.time_ps >= 1.6 * trees.schedule.time_ps
    assert len(trees.to_json()["tight_cut"]["parts"]) == 64


def test_the_same_arguments_give_the_same_schedule() -> None:
    def made(seed: int) -> Synthesis:
        return synthesize("all_gather", topology="npu_torus_4x4", overrides=LINKS, chunk_bytes=1024, seed=seed)

    assert made(1).schedule.transfers() == made(1).schedule.transfers()
    assert made(1).program.hash == made(1).program.hash


@pytest.mark.parametrize("method", ["greedy", "arborescences"])
def test_heterogeneous_links_are_never_acausal(tmp_path: Path, method: str) -> None:
    edges = [
        {"from": a, "to": b, "bandwidth_gbs": 50 if (a + b) % 3 else 12.5, "latency_ns": 500, "bidirectional": False}
        for i in range(6)
        for a, b in ((i, (i + 1) % 6), ((i + 1) % 6, i))
    ]
    edges += [{"from": 0, "to": 3, "bandwidth_gbs": 75, "latency_ns": 100, "bidirectional": False}]
    tree = yaml.safe_load((packaged.TOPOLOGIES / "npu_ring_8.yaml").read_text(encoding="utf-8"))
    tree["system"]["sips"] = {"count": 6, "topology": "custom", "edges": edges}
    path = tmp_path / "uneven.yaml"
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    found = synthesize("all_gather", topology=path, overrides=LINKS, chunk_bytes=1 << 16, method=method)
    pieces = len(found.schedule.chunk_bytes)
    held = {(chunk // pieces, chunk): 0 for chunk in range(6 * pieces)}
    for source, target, chunk, _, arrival in found.schedule.transfers():
        assert held[source, chunk] < arrival
        held.setdefault((target, chunk), arrival)
    assert len(held) == 36 * pieces
    assert found.schedule.time_ps >= found.schedule.bound_ps
    assert found.run().wrong == 0


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_some_of_the_npus(collective: str, tmp_path: Path) -> None:
    members = (5, 0, 10, 3)
    arguments: dict[str, Any] = {
        "topology": "npu_mesh_4x4",
        "overrides": LINKS,
        "dtype": "f32",
        "root": 2,
        "members": members,
    }
    found = synthesize(collective, size=1 << 12, **arguments)
    assert found.ranks == members and found.to_json()["ranks"] == list(members)
    assert found.nbytes == 1 << 12
    ran = found.run()
    assert (ran.time_ps, ran.wrong) == (found.schedule.time_ps, 0)
    assert found.even().plan.check(slots=None)[0] == "correct"
    with pytest.raises(UnsupportedError, match="AHBM-U293"):
        found.even().save(tmp_path / "plan.xml")
    with pytest.raises(UnsupportedError, match="AHBM-U408"):
        synthesize(collective, size=1 << 12, **(arguments | {"members": (1, 1)}))


@pytest.mark.parametrize("members", [(), (5, 0, 3)])
@pytest.mark.parametrize("dtype", ["f16", "f32", "i8", "u16"])
@pytest.mark.parametrize("collective", ["all_reduce", "reduce_scatter", "reduce"])
@pytest.mark.parametrize("network", ["npu_mesh_4x4", "npu_switch_8"])
def test_an_average_takes_the_time_of_a_sum(
    network: str, collective: str, dtype: str, members: tuple[int, ...]
) -> None:
    arguments: dict[str, Any] = {"dtype": dtype, "members": members}
    found = synthesize(collective, topology=network, size=48 << 8, root=1, op="avg", **arguments)
    ran = found.run()
    # Dividing takes no time where memory and math take none.
    assert (ran.time_ps, ran.wrong) == (found.schedule.time_ps, 0)


@pytest.mark.parametrize(
    ("topology", "overrides", "says"),
    [
        ("default", {"system.sips.count": 4}, ""),
        ("npu_ring_8", {}, ""),
        ("npu_ring_8", {"pe.dma.channels": 1}, "an NPU needs 4 DMA channels to keep all its links busy and has 1"),
        ("npu_switch_8", {}, ""),
        ("npu_switch_8", {"cube.pe_layout.pe_per_corner": 2}, "with one PE and has 2: --set cube.pe_layout.pe_per_c"),
    ],
)
@pytest.mark.parametrize("collective", ["all_reduce", "all_to_all"])
def test_a_schedule_takes_what_a_call_of_it_takes(
    collective: str, topology: str, overrides: dict[str, object], says: str, tmp_path: Path
) -> None:
    """On PEs that cost something, too, and where a schedule cannot be kept."""
    ccl = tmp_path / "ccl.yaml"
    ccl.write_text("defaults: {algorithm: mine}\nalgorithms: {mine: {synth: {method: direct}}}\n", encoding="utf-8")
    found = synthesize(collective, topology=topology, overrides=overrides, size=1 << 16, method="direct")
    call = ahbm.run(collective, "mine", topology=topology, overrides=overrides, bytes_per_rank=1 << 16, ccl=ccl)
    assert found.run().time_ps == call.latency_ns * 1000
    assert found.run().wrong == 0
    assert says in found.mismatch if says else not found.mismatch


@pytest.mark.parametrize(
    ("collective", "op"), [("all_reduce", "avg"), ("reduce_scatter", "prod"), ("all_gather", "sum")]
)
def test_each_wrong_element_is_counted(collective: str, op: str) -> None:
    found = synthesize(collective, topology="npu_ring_8", size=1 << 10, op=op, dtype="f32")
    inputs = found._inputs(3)
    lengths = [found.request.part(rank) for rank in range(8)]
    arrays = [np.full_like(inputs[0], np.nan) for _ in range(8)]
    assert found._wrong(inputs, arrays) == sum(where.stop - where.start for where in lengths)
    assert found.run(seed=3).wrong == 0


def test_what_cannot_be_synthesized() -> None:
    with pytest.raises(UnsupportedError, match=r"AHBM-U406.*powers of two"):
        synthesize("all_gather", topology="npu_mesh_4x4", chunk_bytes=1024, method="swing")
    with pytest.raises(UnsupportedError, match="AHBM-U406"):
        synthesize("all_gather", topology="npu_ring_8", chunk_bytes=1024, method="trees")
    with pytest.raises(UnsupportedError, match="AHBM-U407"):
        synthesize("all_gather", topology="npu_ring_8", size=16, chunks=2)
    with pytest.raises(UnsupportedError, match="AHBM-U408"):
        synthesize("broadcast", topology="npu_ring_8", size=16, root=8)
    with pytest.raises(BudgetError, match="AHBM-B401"):
        synthesize("all_gather", topology="npu_ring_8", size=1 << 30, chunks=1 << 26)
    with pytest.raises(ConfigError, match="AHBM-C150"):
        synthesize("all_gather", topology="npu_ring_8")
    wrong: list[dict[str, Any]] = [{"seed": -1}, {"chunks": 0}, {"chunks": 1 << 32}, {"root": -1}, {"members": (0, -1)}]
    for number in [*wrong, {"size": 1 << 52}]:
        with pytest.raises(ConfigError, match=r"AHBM-C150.* is not in"):
            synthesize("all_gather", topology="npu_ring_8", **({"size": 1 << 20} | number))
    with pytest.raises(ConfigError, match="AHBM-C125"):
        synthesize("all_gather", topology="npu_ring_8", size=17)
    with pytest.raises(ConfigError, match="AHBM-C123"):
        synthesize("all_reduce", topology="npu_ring_8", size=16, op="band")
    with pytest.raises(UnsupportedError, match="AHBM-U203"):
        synthesize("all_gather", topology="npu_ring_8", size=16, op="avg")
    with pytest.raises(ConfigError, match="AHBM-C205"):
        synthesize("gossip", topology="npu_ring_8", size=16)


@pytest.mark.slow
def test_command_line() -> None:
    command = [sys.executable, "-c", "from ahbm.cli import main; main()", "synth", "all_reduce", "-t", "npu_mesh_4x4"]
    command += ["--set", "cube.pe_layout.pe_per_corner=8", "--size", "1M", "--run", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    assert result["emulated"]["wrong"] == 0
    assert result["emulated"]["time_ps"] == round(result["time_us"] * 1e6)
    wanted = {"rounds", "rounds_bound", "time_us", "bound_us", "percent_of_bound", "synthesis_ms", "tight_cut"}
    assert wanted <= result.keys()


ONE_WAY = {
    "system.sips.count": 4,
    "system.sips.topology": "custom",
    "system.sips.edges": [
        {"from": 0, "to": 1, "bidirectional": False, "bandwidth_gbs": 10},
        {"from": 1, "to": 2, "bidirectional": False, "bandwidth_gbs": 20},
        {"from": 2, "to": 3, "bidirectional": False, "bandwidth_gbs": 10},
        {"from": 3, "to": 0, "bidirectional": False, "bandwidth_gbs": 20},
    ],
}


@pytest.mark.parametrize(("collective", "tightest"), [("all_reduce", False), ("all_gather", True)])
def test_a_bound_says_whether_it_may_not_be_the_tightest(collective: str, tightest: bool) -> None:
    found = synthesize(collective, topology="npu_ring_8", overrides=ONE_WAY, size=1 << 20)
    assert found.to_json()["bound_is_tightest"] is tightest
    assert ("GB/s, perhaps not the tightest" in str(found)) is not tightest
    # A narrow link carries the array, or three of four shares, whatever the others could.
    assert found.time_us >= found.bound_us >= (1 << 20) / 10e3 * (1 if collective == "all_reduce" else 3 / 4)


def test_methods_are_listed_and_documented() -> None:
    """`ahbm list methods`, `METHODS` and the table of docs/synthesis.md come from one table or agree with it."""
    names = [name for name, _, _ in Schedule.method_table()]
    assert ["auto", *names] == list(METHODS)
    listed = json.loads(CliRunner().invoke(app, ["list", "methods", "--json"]).stdout)["methods"]
    assert [row["method"] for row in listed] == names and all(row["about"] for row in listed)
    page = (Path(__file__).resolve().parents[2] / "docs/synthesis.md").read_text(encoding="utf-8")
    table = page[page.index("| `greedy`") : page.index("| `auto`")]
    documented = [name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert documented == names
