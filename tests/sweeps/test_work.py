"""What a process of a sweep does: cases that were pickled, nothing kept that is not needed, nothing stale."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ahbm
from ahbm.core.emulator import Emulator
from ahbm.sweeps import work
from ahbm.sweeps.case import plan
from ahbm.sweeps.space import Space
from ahbm.sweeps.work import Setup
from ahbm.table import processes
from ahbm.table.cases import Case
from ahbm.table.columns import STORED
from ahbm.table.processes import Places
from support.commands import environment

pytestmark = pytest.mark.usefixtures("here")


def space(**given: Any) -> Space:
    usual = {"topologies": "npu_ring_8", "algorithms": "ring_allreduce", "sizes": ["1K", "2K", "4K"], "data": False}
    return Space(**{**usual, **given})


def cases(**given: Any) -> list[Case]:
    return list(plan(space(**given), Places()))


def worked(token: str, **given: Any) -> work.Done:
    return work.work(Setup(token, space(**given), {}), range(space(**given).count))[0]


def test_what_is_sent_gives_the_rows_of_the_cases() -> None:
    asked = space(algorithms=["ring_allreduce", "synth:ring"], overrides={"system.sips.count": [4, 8]}, data=True)
    sent = pickle.dumps((Setup("one", asked, {}), range(asked.count)))
    done, seconds = work.work(*pickle.loads(sent))
    places = Places()
    assert done.rows == {case.key: work.row(case, places) for case in plan(asked, places)}
    assert len(done) == done.ran == len(done.rows) == 12 and seconds > 0
    assert all(len(row) == len(STORED) for row in done.rows.values())
    assert len(sent) < 1500


def test_a_batch_comes_back_with_what_is_done_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "LATEST_S", 0.0)
    assert len(worked("one")) == 1


def test_no_program_is_kept() -> None:
    made, places = cases(), Places()
    for case in made:
        work.row(case, places)
    emulator = places.emulator(made[0].sweep)
    assert not emulator._compiled and not emulator._known


def test_few_machines_are_kept_and_algorithms_are_loaded_once() -> None:
    made, places = cases(overrides={"system.sips.link.bandwidth_gbs": list(range(1, 41))}, sizes="1K"), Places()
    emulators = [places.emulator(case.sweep) for case in made]
    assert len({emulator.machine.hash for emulator in emulators}) == 40
    assert len(places._found) == 8
    assert len({id(emulator.algorithm("ring_allreduce")) for emulator in emulators}) == 1


def test_another_sweep_reads_files_again() -> None:
    source = (Path(ahbm.__file__).parent / "data/algorithms/ring_allreduce.py").read_text(encoding="utf-8")
    hashes = []
    for token, text in (("a", source), ("b", source.replace("def shift", "def moved").replace("shift(", "moved("))):
        Path("mine.py").write_text(text.replace("n_elem, cube_w", "n_elem + 0, cube_w"), encoding="utf-8")
        made = cases(algorithms="./mine.py", sizes="1K")
        (row,) = worked(token, algorithms="./mine.py", sizes="1K").rows.values()
        hashes.append((made[0].key, row[work.NAMES.index("timeline_hash")]))
        from ahbm.base.load import forget_files_read

        forget_files_read()
    assert hashes[0][0] != hashes[1][0] and hashes[0][1] == hashes[1][1]


def test_a_defect_is_a_row_of_its_case(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, *given: Any) -> None:
        raise ZeroDivisionError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(Emulator, "bound", broken)
        rows = worked("one", sizes=["1K", "2K"]).rows.values()
    code, message = (work.NAMES.index(name) for name in ("code", "message"))
    assert [(row[code], row[message]) for row in rows] == [(work.INTERNAL, "ZeroDivisionError: planted")] * 2


def test_programs_that_are_let_go_make_room() -> None:
    emulator = Emulator.load("npu_ring_8")
    report = ahbm.run("all_reduce", "ring_allreduce", emulator=emulator, bytes_per_rank=1024, data=False)
    assert emulator._kept_ops == report.ops > 0
    emulator.forget_programs()
    assert emulator._kept_ops == 0
    assert ahbm.run("all_reduce", "ring_allreduce", emulator=emulator, bytes_per_rank=1024, data=False) == report


@pytest.mark.slow
def test_a_script_that_every_process_would_run_is_told_so() -> None:
    call = 'ahbm.sweep(algorithms="ring_allreduce", sizes=[64 * n for n in range(16, 166)], data=False, jobs=2)'
    Path("script.py").write_text(f"import ahbm\n{call}\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "script.py"], env=environment(), capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 1 and "AHBM-X141 the processes of the sweep do not start" in done.stderr
    assert "__main__" in done.stderr.rpartition("AHBM-X141")[2]
