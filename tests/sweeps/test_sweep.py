"""`ahbm.sweep`: every cell is a row, also one that did not run; tables of plain values in every form."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import ahbm
from ahbm.errors import ConfigError, UnsupportedError
from ahbm.sweeps.sweep import COLUMNS
from ahbm.table.columns import FAILED

pytestmark = pytest.mark.usefixtures("here")

LANES = "system.sips.link.bandwidth_gbs"
COUNT = "system.sips.count"


@pytest.fixture(scope="module")
def table() -> ahbm.Table:
    return ahbm.sweep(
        ["all_reduce", "all_gather"],
        ["ring_allreduce", "tree_allreduce"],
        ["npu_ring_8"],
        sizes=["1K", 2048],
        dtypes=["f16", "f32"],
        overrides={COUNT: 4, LANES: [64, 128]},
    )


def test_rows_are_the_product_and_hold_what_a_run_reports(table: ahbm.Table) -> None:
    assert len(table) == 2 * 2 * 2 * 2 * 2 == len(table.cells)
    assert table.columns == (*COLUMNS, LANES, *FAILED)
    assert all(tuple(row) == table.columns for row in table)
    assert {type(value) for row in table for value in row.values()} <= {str, int, float, type(None)}
    row = next(row for row in table if row["dtype"] == "f32" and row[LANES] == 128)
    alone = ahbm.run(
        "all_reduce", "ring_allreduce", "npu_ring_8", bytes_per_rank=1024, dtype="f32", overrides={COUNT: 4, LANES: 128}
    )
    assert {name: row[name] for name in COLUMNS} == {name: getattr(alone, name) for name in COLUMNS}
    assert (row["code"], row["message"]) == (None, None)


def test_a_cell_that_is_refused_is_a_row_and_the_rest_runs(table: ahbm.Table) -> None:
    gathers = [row for row in table if row["collective"] == "all_gather"]
    assert {row["code"] for row in gathers} == {"AHBM-C115"}
    assert all(row["latency_ns"] is None and "implements all_reduce" in row["message"] for row in gathers)
    assert len(table.reports) == len(table.refused) == 16
    assert repr(table) == "<Table of 32 rows, 16 of them did not run>"


def test_functions_are_swept_beside_names_and_under_names_of_their_own() -> None:
    from ahbm.config.ccl import CclConfig
    from ahbm.source.module import load

    packaged = load(CclConfig.load().settings("ring_allreduce"))
    mine = ahbm.algorithm(packaged.kernel, kernel_args=packaged.kernel_args, name="mine")
    found = ahbm.sweep(algorithms=[mine, "ring_allreduce"], topologies="npu_ring_8", sizes="1K")
    assert [row["algorithm"] for row in found] == ["mine", "ring_allreduce"]
    assert found[0]["latency_ns"] == found[1]["latency_ns"]
    with pytest.raises(ConfigError, match="two algorithms of the sweep are called mine"):
        ahbm.sweep(algorithms=[mine, mine])


def test_files_hold_every_row(table: ahbm.Table, tmp_path: Path) -> None:
    lines = table.to_jsonl(tmp_path / "t.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == list(table)
    with table.to_csv(tmp_path / "t.csv").open(encoding="utf-8", newline="") as file:
        read = list(csv.DictReader(file))
    assert [{key: "" if value is None else str(value) for key, value in row.items()} for row in table] == read
    with pytest.raises(ConfigError, match="AHBM-C141"):
        table.to_csv(tmp_path / "nowhere" / "t.csv")


def test_a_slice_is_a_table_whose_cells_are_its_rows() -> None:
    table = ahbm.sweep(
        "all_reduce", ["ring_allreduce", "tree_allreduce"], "npu_ring_8", sizes=["1K", "4K", "16K"], data=False
    )
    some = table[1:5:2]
    assert isinstance(some, ahbm.Table) and list(some) == [table[1], table[3]] and table[:] == table
    assert [report.bytes for report in some.reports] == [4096, 1024]
    assert [report.bytes for report in table[::-1][:2].reports] == [16384, 4096]
    assert len(table[9:]) == 0 and table[-1] == list(table)[-1]
    with pytest.raises(IndexError):
        table[6]
    assert [(row["bytes"], row["latency_ns"]) for row in table.best()] == [
        (size, min(row["latency_ns"] for row in table if row["bytes"] == size)) for size in (1024, 4096, 16384)
    ]
    front = table.pareto("time", "memory")
    assert {row["bytes"] for row in front} == {1024, 4096, 16384} and front[0] in list(table)
    for goals in ((), ("nosuch",)):
        with pytest.raises(ConfigError, match="AHBM-C187"):
            table.pareto(*goals)


SIZE = ("size", "bytes_per_rank")


def test_the_size_has_one_name(tmp_path: Path) -> None:
    """And its older name is the same."""
    ran = [
        ahbm.run("all_reduce", "ring_allreduce", "npu_ring_8", data=False, **{name: "4K"})  # type: ignore[arg-type]
        for name in SIZE
    ]
    assert ran[0] == ran[1] and ran[0].bytes == 4096
    assert ahbm.open("all_reduce", topology="npu_ring_8", size="4K").run(data=False).bytes == 4096
    looks = [ahbm.inspect("all_reduce", "ring_allreduce", "npu_ring_8", **{name: 4096}) for name in SIZE]  # type: ignore[arg-type]
    assert str(looks[0]) == str(looks[1])
    made = [ahbm.synthesize("all_gather", topology="npu_ring_8", size=size).share_bytes for size in ("64K", 1 << 16)]
    assert made == [8192, 8192]
    with pytest.raises(ConfigError, match="AHBM-C128 size and bytes_per_rank"):
        ahbm.run(size=64, bytes_per_rank=64)
    with pytest.raises(ConfigError, match="AHBM-C129 size must be"):
        ahbm.run(size=1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_frames_have_the_columns(table: ahbm.Table, name: str) -> None:
    pytest.importorskip(name)
    frame = getattr(table, f"to_{name}")()
    assert tuple(frame.columns) == table.columns
    assert len(frame) == len(table)
    assert frame["latency_ns"].min() == min(report.latency_ns for report in table.reports)


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_a_package_that_is_missing_is_named(table: ahbm.Table, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, name, None)
    with pytest.raises(UnsupportedError, match=rf"AHBM-U145 {name} is not installed[\s\S]*pip install {name}"):
        getattr(table, f"to_{name}")()


def test_a_table_is_read_at_a_glance(table: ahbm.Table) -> None:
    head, *lines = str(table).splitlines()
    assert head.split()[:4] == ["collective", "algorithm", "machine", "dtype"]
    assert LANES in head.split()
    assert len(lines) == 32
    assert "<script" not in table._repr_html_()
    assert "AHBM-C115" in table._repr_html_()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"collectives": "all_reduc"}, "AHBM-C105"),
        ({"collectives": [3]}, "AHBM-C129"),
        ({"algorithms": ["nosuch"]}, "AHBM-C110"),
        ({"algorithms": [None, "ring_allreduce"]}, "AHBM-C129"),
        ({"topologies": ["nosuch"]}, "AHBM-T101"),
        ({"sizes": "1X"}, "AHBM-C147"),
        ({"sizes": [2.5]}, "AHBM-C129"),
        ({"sizes": 0}, "AHBM-C140"),
        ({"dtypes": "f13"}, "AHBM-C143"),
        ({"overrides": {"nosuch.key": [1, 2]}}, "AHBM-C107"),
    ],
)
def test_a_sweep_of_nothing_is_refused_before_anything_runs(arguments: dict[str, Any], code: str) -> None:
    with pytest.raises(ahbm.AhbmError) as caught:
        ahbm.sweep(**arguments)
    assert caught.value.code == code


def test_the_file_of_a_plan_is_swept_at_the_sizes_that_it_takes(tmp_path: Path) -> None:
    path = tmp_path / "gather.xml"
    ahbm.synthesize("all_gather", topology="npu_ring_8", size=1 << 14).plan.save(path)
    found = ahbm.sweep("all_gather", [path, "ring_all_gather"], "npu_ring_8", sizes=["16K", "1M"])
    assert [row["algorithm"] for row in found] == ["gather", "gather", "ring_all_gather", "ring_all_gather"]
    assert [row["wrong"] for row in found] == [0] * 4
    with pytest.raises(ConfigError, match="AHBM-C178"):
        ahbm.sweep("all_reduce", path, "npu_ring_8")
