"""The selection ladder: the quickest wins, and what is written picks it again."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ahbm
from ahbm._core import read_plan
from ahbm.cli import app
from ahbm.config.ccl import CclConfig
from ahbm.core.emulator import Emulator
from ahbm.errors import ConfigError, DataError
from ahbm.runs.verdict import CheckOptions, check_file
from ahbm.table.cases import Sweep
from ahbm.table.ladder import Ladder, climb
from support import rings

MACHINE = {"cube.pe_layout.pe_per_corner": 8}
KERNELS = ("recursive_doubling_allreduce", "ring_allreduce")


def climbed() -> Ladder:
    sweep = Sweep("all_reduce", 64, 1 << 20, 16, algorithms=KERNELS, topology="npu_mesh_4x4", overrides=MACHINE)
    return climb(sweep, ("trees",))


def test_the_winner_is_the_quickest_and_the_files_pick_it(tmp_path: Path) -> None:
    found = climbed()
    names = (*KERNELS, "synth_trees")
    assert found.candidates == names
    files = found.save(tmp_path / "out")
    ccl = CclConfig.load(files[0])
    loaded = Emulator.load("npu_mesh_4x4", files[0], MACHINE)
    winners = set()
    for rung in found.rungs:
        times = {name: report.latency_ns for name, report in rung.reports.items()}
        assert times[rung.winner] == min(times.values())
        assert ccl.candidates("all_reduce", rung.nbytes, 4) == (rung.winner,)
        report = ahbm.run("all_reduce", bytes_per_rank=rung.nbytes, emulator=loaded)
        assert (report.algorithm, report.latency_ns) == (rung.winner, times[rung.winner])
        winners.add(rung.winner)
    assert len(winners) > 1, "one candidate wins everywhere: the test shows nothing"
    assert found.kernels and set(found.kernels) <= set(KERNELS)
    assert climbed().ccl() == files[0].read_text()
    assert len(files) == 1 + sum(entry.algorithm == "synth_trees" for entry in found.ranges()) > 1
    for path in files[1:]:
        assert check_file(path, CheckOptions(slots=None)).verdict == "correct"
        assert read_plan(str(path)).collective == "all_reduce"


def test_ranges_meet_and_cover_every_size() -> None:
    found = climbed()
    ranges = found.ranges()
    assert ranges[0].nbytes.least == 0 and ranges[-1].nbytes.most is None
    for lower, upper in itertools.pairwise(ranges):
        assert lower.nbytes.most == upper.nbytes.least - 1
        assert lower.algorithm != upper.algorithm
    for entry in ranges:
        assert {rung.winner for rung in found.rungs if rung.nbytes in entry.nbytes} == {entry.algorithm}


def test_a_candidate_that_does_not_run_is_told_and_passed_over(tmp_path: Path) -> None:
    sweep = Sweep("all_reduce", 64, 64, algorithms=("ring_all_gather", "ring_allreduce"), topology="npu_ring_8")
    found = climb(sweep, ("magic",))
    assert found.rungs[0].winner == "ring_allreduce"
    assert found.rungs[0].refused["ring_all_gather"].startswith("AHBM-C115")
    assert any("AHBM-U406" in line for line in found.table())


def test_where_no_candidate_runs_a_row_says_why_of_each(tmp_path: Path) -> None:
    path = tmp_path / "ccl.yaml"
    command = ["ladder", "all_reduce", "-t", "npu_ring_8", "--sizes", "64,4K", "-a", "ring_all_gather"]
    done = CliRunner().invoke(app, [*command, "-a", "ring_reduce_scatter", "-o", str(path)])
    assert isinstance(done.exception, ConfigError) and done.exception.code == "AHBM-C151"
    rows = [line.split() for line in done.stdout.splitlines() if not line.startswith("#")]
    assert rows == [[size, "-", "-", "-", "-"] for size in ("64", "4096")]
    for name in ("ring_all_gather", "ring_reduce_scatter"):
        assert f"# {name} at 64 4096 B: AHBM-C115 " in done.stdout
    assert not path.exists()
    told = CliRunner().invoke(app, [*command, "--json"])
    assert isinstance(told.exception, ConfigError)
    rungs = json.loads(told.stdout)["rungs"]
    assert [rung["winner"] for rung in rungs] == [None, None]
    assert rungs[0]["refused"]["ring_all_gather"].startswith("AHBM-C115")


def test_one_size_without_a_candidate_does_not_end_the_others() -> None:
    overrides = {"system.sips.count": 8, "algorithms.ring_allreduce.slot_size": 64}
    terms = {"algorithms": ("ring_allreduce",), "topology": "npu_ring_8", "overrides": overrides}
    found = climb(Sweep("all_reduce", 64, 1 << 14, 16, **terms))
    assert [bool(rung.reports) for rung in found.rungs] == [True, False, False]
    with pytest.raises(ConfigError, match=r"AHBM-C151.*ring_allreduce: AHBM-L105"):
        found.ranges()


def test_command_line(tmp_path: Path) -> None:
    path = tmp_path / "ccl.yaml"
    command = ["ladder", "all_gather", "-t", "npu_ring_8", "-b", "1K", "-e", "4K", "--synth", "ring", "-o", str(path)]
    done = CliRunner().invoke(app, [*command, "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result["files"] == [str(path)]
    kernels = {"ring_all_gather", "nccl_ring_all_gather", "pat_all_gather"}
    assert kernels | {"synth_ring"} == set(result["rungs"][0]["times_us"])
    assert CclConfig.load(path).candidates("all_gather", 1024, 4) == (result["rungs"][0]["winner"],)


def test_where_every_result_is_wrong_all_are_named(here: Path) -> None:
    names = rings.write(here, **rings.SPOILT)
    asked = ["ladder", "all_reduce", "-t", "npu_ring_8", "--sizes", "64,4K", *(f"-a{name}" for name in names)]
    done = CliRunner().invoke(app, [*asked, "-o", "ccl.yaml"])
    assert isinstance(done.exception, DataError) and done.exception.code == "AHBM-V417"
    assert "the results of all are wrong at 64 4096 bytes (short, largest, doubled)" in done.exception.message
    assert not (here / "ccl.yaml").exists()
    done = CliRunner().invoke(app, [*asked, "-a", "ring_all_gather"])
    assert isinstance(done.exception, DataError) and "; ring_all_gather did not run)" in done.exception.message


def test_on_a_calibrated_machine_results_are_looked_at_too(here: Path) -> None:
    """Its rows move no data, but a ladder chooses."""
    names = rings.write(here, **rings.SPOILT, **rings.OPAQUE)
    sweep = Sweep("all_reduce", 1024, 1024, algorithms=(*names, "ring_allreduce"), topology="dgx_h100")
    found = climb(sweep)
    assert found.emulator.machine.bands is not None
    assert found.rungs[0].winner == "ring_allreduce" and set(found.rungs[0].wrong) == set(names)
    assert found.rungs[0].reports["ring_allreduce"].wrong is None
