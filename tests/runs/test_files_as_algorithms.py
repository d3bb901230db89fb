"""The file of a plan, and a script that lowers one, wherever an algorithm is named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import ahbm
import ahbm.distributed as dist
from ahbm.errors import ConfigError
from ahbm.table.cases import Sweep
from ahbm.table.ladder import climb
from ahbm.table.running import attempt
from support.commands import run
from support.plans import ring
from support.scripts import exchange
from support.tables import reports_of


@pytest.fixture
def plan(here: Path) -> str:
    (here / "ring.xml").write_text(ring(4), encoding="utf-8")
    ahbm.open("ring.xml")
    return "ring.xml"


def test_every_command_takes_the_file_of_a_plan(plan: str, here: Path) -> None:
    sizes = ["-b", "64K", "-e", "64K"]
    for command in (
        ["run", "all_reduce", "-a", plan],
        ["bench", "all_reduce", "-a", plan, "-a", "ring_allreduce", *sizes],
        ["ladder", "all_reduce", "-a", plan, *sizes],
        ["compare", "all_reduce", "-a", plan, "-a", "ring_allreduce", *sizes],
        ["numerics", "all_reduce", "-a", plan],
        ["explore", "all_reduce", "-a", plan, "--seeds", "2"],
        ["explain", "all_reduce", "-a", plan],
        ["check", "-a", plan],
        ["report", "all_reduce", "-a", plan, *sizes, "-o", "page.html"],
    ):
        code, out, err = run("ahbm", command, here)
        assert code == 0, (command, out, err)


def test_a_plan_runs_on_as_many_sips_as_it_has_ranks_at_a_size_of_its_own(plan: str, here: Path) -> None:
    report = ahbm.run("all_reduce", plan)
    assert (report.ranks, report.wrong) == (4, 0) and report.bytes == 1 << 20
    code, out, _ = run("ahbm", ["run", plan], here)
    assert code == 0 and "note: 1048576 B per rank: no size was given" in out
    odd = ahbm.run("all_reduce", plan, dtype="f32", bytes_per_rank=16)
    assert odd.bytes == 16
    with pytest.raises(ConfigError, match=r"ring.xml is a plan of all_reduce, not of broadcast"):
        ahbm.run("broadcast", plan)


def test_sweeps_compare_a_plan_with_kernels_on_one_machine(plan: str) -> None:
    sweep = Sweep("all_reduce", 1 << 16, 1 << 17, algorithms=(plan, "ring_allreduce"))
    assert {report.ranks for report in reports_of(sweep)} == {4}
    assert {report.machine for report in attempt([sweep]) if isinstance(report, ahbm.Report)} == {
        "default, system.sips.count=4"
    }
    assert {entry.algorithm for entry in climb(sweep).ranges()} <= {"ring", "ring_allreduce"}


def test_a_script_that_lowers_a_plan_is_an_algorithm_too(here: Path) -> None:
    report = ahbm.run("all_gather", Path(exchange(here)).name)
    assert report.wrong == 0 and report.algorithm == "exchange"


def test_ranks_run_the_file_of_a_plan(plan: str) -> None:
    def worker(rank: int) -> float:
        dist.init_process_group(backend="ahbm", algorithm=plan)
        x = np.full(1024, rank + 1, np.float32)
        dist.all_reduce(x)
        return float(x[0])

    assert ahbm.spawn(worker, overrides={"system.sips.count": 4}) == [10.0] * 4
    with pytest.raises(ConfigError, match="a plan for 4 ranks, not 2"):
        ahbm.spawn(worker)


def test_an_entry_of_that_name_comes_first(plan: str, here: Path) -> None:
    entry = {"algorithms": {plan: {"module": "ring_allreduce"}}}
    (here / "ccl.yaml").write_text(json.dumps(entry), encoding="utf-8")
    assert ahbm.run("all_reduce", plan, overrides={"system.sips.count": 8}).ranks == 8
