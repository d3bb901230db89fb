"""Every command does the same with a size that does not divide, and says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ahbm
from ahbm.runs.compare import load
from support.commands import run

NOTE = "8 B became 32 B: all_gather of 8 ranks takes multiples of 32 B"
ON = ["-t", "npu_ring_8", "-d", "f32"]


def said(arguments: list[str], folder: Path) -> str:
    code, out, err = run("ahbm", arguments, folder)
    assert code == 0, err
    return out


@pytest.mark.parametrize(
    "command",
    [
        ["run", "all_gather", "--size", "8"],
        ["bench", "all_gather", "--sizes", "8"],
        ["ladder", "all_gather", "-a", "ring_all_gather", "--sizes", "8"],
        ["compare", "all_gather", "-a", "ring_all_gather", "-a", "pat_all_gather", "--sizes", "8"],
    ],
)
def test_text_and_json_say_what_became_of_a_size(command: list[str], tmp_path: Path) -> None:
    assert NOTE in said([*command, *ON], tmp_path)
    assert NOTE in said([*command, *ON, "--json"], tmp_path)


def test_sizes_that_merge_are_named(tmp_path: Path) -> None:
    bench = ["bench", "all_gather", "-b", "8", "-e", "64", *ON]
    assert "8, 16 B became 32 B" in said(bench, tmp_path)
    kept = tmp_path / "rows.json"
    kept.write_text(said([*bench, "--json"], tmp_path))
    first, second = load(kept)
    assert first.resized is not None and first.resized.asked == (8, 16) and second.resized is None


def test_a_run_of_less_than_its_unit_is_no_run_of_nothing() -> None:
    report = ahbm.run("all_gather", None, "npu_ring_8", bytes_per_rank=8, dtype="f32")
    assert report == ahbm.run("all_gather", None, "npu_ring_8", bytes_per_rank=32, dtype="f32")
    assert report.resized is not None and report.percent_of_bound
    assert ahbm.run("all_reduce", None, "npu_ring_8", bytes_per_rank=7, dtype="f32").bytes == 4
    # A size that nobody asked for is never nothing, and nothing to say of.
    free = ahbm.run("all_gather", None, "npu_torus_4x4", overrides={"defaults.n_elem": 1}, data=False)
    assert free.bytes == 32 and free.resized is None


def test_nothing_is_run_where_nothing_is_asked_for() -> None:
    report = ahbm.run("all_gather", None, "npu_ring_8", bytes_per_rank=0)
    assert (report.latency_ns, report.bound_ns, report.resized) == (0, 0, None)


def test_sweeps_and_choices_say_it(tmp_path: Path) -> None:
    (tmp_path / "space.yaml").write_text(
        "collectives: all_gather\ntopologies: npu_ring_8\nsizes: [8, 16, 32]\ndtypes: f32\ndata: false\n"
    )
    sweep = ["sweep", "space.yaml", "-o", "rows"]
    asked = "8, 16 B became 32 B: all_gather of 8 ranks takes multiples of 32 B"
    assert f"note: {asked}" in said(sweep, tmp_path)
    again = json.loads(said([*sweep, "--json"], tmp_path))
    assert again["cases"] == 1 and [one["note"] for one in again["resized"]] == [asked]
    table = ahbm.sweep(tmp_path / "space.yaml")
    assert table.notes == (asked,) and asked in str(table)
    tuned = said(["tune", "all_gather", *ON, "-a", "ring_all_gather", "--sizes", "8,64", "-o", "tuned"], tmp_path)
    assert "8 B became 32 B: a choice for 8 ranks takes multiples of 32 B" in tuned
