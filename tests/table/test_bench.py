"""`ahbm bench`: nccl-tests' columns, sizes and factors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ahbm.base.elements import parse_dtype
from ahbm.base.sizes import Unit, parse_size
from ahbm.config.topology import names
from ahbm.core.emulator import Emulator
from ahbm.errors import ConfigError, LintError, UnsupportedError
from ahbm.table.cases import Refused, Sweep
from ahbm.table.nccl import columns, footer, row, to_json
from ahbm.table.running import attempt, failure
from support.tables import reports_of

SMALL = {
    "system.sips.count": 4,
    "system.sips.topology": "ring_1d",
    "sip.cube_mesh.w": 2,
    "sip.cube_mesh.h": 1,
    "cube.pe_layout.corners": 1,
    "cube.pe_layout.pe_per_corner": 1,
}


def reports(collective: str = "all_reduce", begin: int = 1024, end: int = 4096, **more: Any) -> tuple[Sweep, list[Any]]:
    sweep = Sweep(collective, begin, end, overrides=SMALL, **more)
    return sweep, reports_of(sweep)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("256", 256),
        ("4K", 4096),
        ("1m", 1 << 20),
        ("2G", 2 << 30),
        ("8KB", 8192),
        ("1MiB", 1 << 20),
        ("3Ki", 3072),
        ("1e6", 10**6),
        ("1_000_000", 10**6),
        ("2e3K", 2000 << 10),
        ("7B", 7),
    ],
)
def test_sizes_parse(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "K", "-4", "1.5K", "4T", "four", "1iB", "1__0", "1_", "e6", "1e99", "1e-2"])
def test_bad_sizes(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_size(text)
    assert caught.value.code == "AHBM-C147" and caught.value.hint


def test_dtypes_parse() -> None:
    assert parse_dtype("half") == "f16" and parse_dtype("bf16") == "bf16"
    for wrong, hint in (("fp16", "did you mean f16"), ("flaot", "did you mean float"), ("q", "half")):
        with pytest.raises(ConfigError) as caught:
            parse_dtype(wrong)
        assert hint in str(caught.value.hint)
    with pytest.raises(ConfigError, match="did you mean all_reduce"):
        Sweep("allreduce", 1, 1)


def test_steps() -> None:
    def sizes(sweep: Sweep, unit: int) -> list[int]:
        return [size for size, _ in sweep.sizes(Unit(unit, "a plan"))]

    assert sizes(Sweep("all_reduce", 256, 2048), 2) == [256, 512, 1024, 2048]
    assert sizes(Sweep("all_reduce", 256, 1000, step=300), 2) == [256, 556, 856]
    assert sizes(Sweep("all_gather", 1, 64), 24) == [24, 48]
    assert sizes(Sweep("all_reduce", 1, 1, listed=(4096, 24, 25)), 24) == [24, 4080]
    unfit: list[dict[str, Any]] = [
        {"begin": 0},
        {"begin": 9, "end": 8},
        {"listed": (8, 0)},
        {"factor": 1},
        {"step": -1},
        {"collective": "all_redcue"},
    ]
    for wrong in unfit:
        with pytest.raises(ConfigError):
            Sweep(**{"collective": "all_reduce", "begin": 8, "end": 8, **wrong})


def test_table() -> None:
    _, found = reports(algorithms=("ring_allreduce", "tree_allreduce"))
    assert [report.bytes for report in found] == [1024, 2048, 4096] * 2
    assert [report.algorithm for report in found] == ["ring_allreduce"] * 3 + ["tree_allreduce"] * 3
    size, count, dtype, op, root, time, algbw, busbw, wrong, bound, percent = row(found[0]).split()
    assert (size, count, dtype, op, root, wrong) == ("1024", "512", "half", "sum", "-1", "0")
    assert float(time) == pytest.approx(found[0].latency_ns / 1000, abs=0.005)
    assert float(algbw) == pytest.approx(1024 / found[0].latency_ns, abs=0.005)
    assert float(busbw) == pytest.approx(float(algbw) * 1.5, abs=0.02)
    assert found[0].bound_ns is not None
    assert float(bound) == pytest.approx(found[0].bound_ns / 1000, abs=0.005)
    assert float(percent) == pytest.approx(100 * found[0].bound_ns / found[0].latency_ns, abs=0.05)
    head = columns(found[0])
    assert all(line.startswith("#") for line in head)
    assert head[3].split() == [
        "#",
        "size",
        "count",
        "type",
        "redop",
        "root",
        "time",
        "algbw",
        "busbw",
        "#wrong",
        "time",
        "%",
    ]
    assert len(head[3]) == len(row(found[0]))
    assert footer(found)[0] == "# Out of bounds values : 0 OK"
    assert footer(found)[-1].endswith(found[-1].limited_by)


@pytest.mark.parametrize(
    ("collective", "factor"),
    [
        ("all_reduce", 1.5),
        ("all_gather", 0.75),
        ("reduce_scatter", 0.75),
        ("all_to_all", 0.75),
        ("gather", 0.75),
        ("scatter", 0.75),
        ("broadcast", 1.0),
        ("reduce", 1.0),
        ("send_recv", 1.0),
    ],
)
def test_bus_factors(collective: str, factor: float) -> None:
    _, (report,) = reports(collective, 4096, 4096, root=1 if collective in ("broadcast", "scatter") else 0)
    assert report.wrong == 0 and report.bytes == 4096
    assert report.busbw_gbs == pytest.approx(report.algbw_gbs * factor)


def test_barrier_has_one_row() -> None:
    _, found = reports("barrier")
    assert len(found) == 1 and found[0].latency_ns > 0


def test_without_data() -> None:
    _, timed = reports(data=False)
    _, checked = reports()
    assert timed[0].wrong is None and row(timed[0]).split()[8] == "N/A"
    assert [report.latency_ns for report in timed] == [report.latency_ns for report in checked]


@pytest.mark.parametrize(("size", "nodes"), [(4, 1), (2, 2), (1, 4)])
def test_json_counts_the_nodes(size: int, nodes: int) -> None:
    machine = {"system.sips.topology": "nodes", "system.sips.count": 4, "system.sips.nodes.size": size}
    told = to_json([Sweep("all_reduce", 1024, 1024, overrides=machine)], [], [])
    assert told["config"]["nodes"] == nodes


def test_json() -> None:
    sweep, found = reports("broadcast", dtype="f32", root=2)
    data = json.loads(json.dumps(to_json([sweep], found, ["bench"])))
    assert data["version"] == 3 and data["out_of_bounds"] == {"count": 0, "okay": True} and "env" not in data
    first = data["results"][0]
    assert (first["size"], first["count"], first["type"], first["redop"], first["root"]) == (
        1024,
        256,
        "float",
        "none",
        2,
    )
    assert set(first["in_place"]) == {"time", "alg_bw", "bus_bw", "nwrong"}


def test_device_tensors_have_a_contribution_per_cube() -> None:
    _, (report,) = reports(begin=512, end=512, device=True)
    assert (report.ranks, report.bytes, report.wrong) == (8, 512, 0)
    assert report.busbw_gbs == pytest.approx(report.algbw_gbs * 2 * 7 / 8)
    with pytest.raises(UnsupportedError):
        reports("broadcast", device=True)


@pytest.mark.slow
@pytest.mark.parametrize("topology", [None, *names()])
def test_defaults_run_on_every_packaged_machine(topology: str | None) -> None:
    found = reports_of(Sweep("all_reduce", 1024, 1 << 26, factor=1 << 8, topology=topology, data=False))
    assert [report.bytes for report in found] == [1024, 1 << 18, 1 << 26]
    assert all(report.latency_ns > 0 for report in found)
    library = dict(Emulator.load(topology).machine.library).get("all_reduce")
    if library:
        assert all(report.algorithm in library for report in found)
    else:
        assert all(f"{report.algorithm} runs: the quickest of " in report.notes[0] for report in found)


def test_queues_that_do_not_fit_the_tcm_are_in_hbm_and_said_to_be() -> None:
    small, large = reports_of(
        Sweep("all_reduce", 1 << 20, 1 << 26, 64, topology="npu_ring_8", algorithms=("ring_allreduce",), data=False)
    )
    assert not small.notes
    assert large.notes == ("queue slots are in hbm: they do not fit tcm",)
    assert footer([small, large])[-1].endswith(f"from {1 << 26} B on {large.notes[0]}")
    with pytest.raises(LintError) as caught:
        asked = {"buffer_kind": "tcm"}
        reports_of(Sweep("all_reduce", 1 << 26, 1 << 26, topology="npu_ring_8", overrides=asked, data=False))
    assert caught.value.code == "AHBM-L108"


TOO_LARGE: dict[str, Any] = {"topology": "npu_ring_8", "overrides": {"buffer_kind": "tcm"}, "data": False}
"""With these, a ring of 64 MiB does not fit."""


def test_a_cell_that_fails_does_not_end_the_sweep() -> None:
    names = ("ring_allreduce", "tree_allreduce")
    sweep = Sweep("all_reduce", 1, 1, listed=(1024, 1 << 26, 1 << 12), algorithms=names, **TOO_LARGE)
    told: list[str] = []
    cells = list(attempt([sweep], tell=told.append))
    assert [(cell.algorithm, cell.bytes) for cell in cells] == [(n, b) for n in names for b in (1024, 4096, 1 << 26)]
    failed = [cell for cell in cells if isinstance(cell, Refused)]
    assert {cell.error.code for cell in failed} == {"AHBM-L108"} and failure(cells) is failed[0].error
    assert told[1] == "4,096 B by ring_allreduce, row 2 of 6"
    rows = to_json([sweep], cells, [])["results"]
    assert [row.get("error", {}).get("exit_code") for row in rows] == [
        6 if isinstance(cell, Refused) else None for cell in cells
    ]
    assert all(row["machine"].startswith("npu_ring_8") for row in rows)


def test_names_that_do_not_exist_end_a_sweep_before_it_begins() -> None:
    with pytest.raises(ConfigError) as caught:
        next(attempt([Sweep("all_reduce", 1024, 1024, algorithms=("ring_allreduce", "ring_allredcue"))]))
    assert "ring_allreduce" in str(caught.value.hint)


def test_the_first_algorithm_that_knows_the_network_runs() -> None:
    chosen = {"defaults.algorithm": "[lrab_hierarchical_allreduce, tree_allreduce]"}
    (report,) = reports_of(Sweep("all_reduce", 1024, 1024, topology="npu_switch_8", overrides=chosen))
    assert report.algorithm == "tree_allreduce" and report.wrong == 0
    alone = {"defaults.algorithm": "lrab_hierarchical_allreduce"}
    with pytest.raises(ConfigError) as caught:
        reports_of(Sweep("all_reduce", 1024, 1024, topology="npu_switch_8", overrides=alone))
    assert caught.value.code == "AHBM-C116"
