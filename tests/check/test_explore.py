"""`ahbm explore`: the right algorithm passes every seed, a wrong one fails, replays and shrinks."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from ahbm.check.case import Case
from ahbm.check.exploration import attempt, explore, perturbation
from ahbm.cli import app
from ahbm.runs.measure import prepare

SMALL = {"system.sips.count": 4, "sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1}

FIRST_COME = """
COLLECTIVE = "all_reduce"


def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, dtype="f16"):
    return (n_elem, world_size, dtype)


def kernel(t_ptr, n, world, dtype, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, *, tl):
    value = tl.load(t_ptr, shape=(n,), dtype=dtype)
    for other in range(world):
        if other != sip_rank:
            tl.send(dir=f"sip{other}", src=value)
    for _ in range(world - 1):
        value = value + tl.recv(shape=(n,), dtype=dtype)
    tl.store(t_ptr, value)
"""


def options() -> list[str]:
    return [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]


def test_a_fixed_order_passes_every_seed() -> None:
    done = CliRunner().invoke(
        app, ["explore", "all_reduce", "-a", "ring_allreduce", "-b", "256", "--seeds", "4", *options()]
    )
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "0 of 4 seeds fail")


def test_first_come_first_served_depends_on_times(tmp_path: Path) -> None:
    path = tmp_path / "first_come.py"
    path.write_text(FIRST_COME, encoding="utf-8")
    command = ["explore", "all_reduce", "-a", str(path), "-b", "256", "--json", *options()]
    done = CliRunner().invoke(app, [*command, "--seeds", "4"])
    failures = json.loads(done.stdout)["failures"]
    assert done.exit_code == 8 and failures
    first = failures[0]
    again = json.loads(CliRunner().invoke(app, [*command, "--seed", str(first["seed"])]).stdout)["failures"]
    assert again == [first]
    # A rank that is ahead sends its next call's values into receives of this one: no pause is needed.
    assert first["findings"][0]["code"] == "AHBM-V411" and first["pauses"] == []
    assert first["ranks"] == 3


def test_a_result_that_depends_on_times_is_shrunk(tmp_path: Path) -> None:
    path = tmp_path / "first_come.py"
    path.write_text(FIRST_COME, encoding="utf-8")

    def case(ranks: int, count: int) -> Case:
        machine = {**SMALL, "system.sips.count": ranks}
        return prepare("all_reduce", str(path), bytes_per_rank=2 * count, overrides=machine)

    found = [failure for _, failure in explore(case(4, 64), range(4), case, frozenset()) if failure is not None]
    assert found and found[0].findings[0].code == "AHBM-V413"
    assert found[0].ranks <= 4 and found[0].count < 64 and len(found[0].pauses) <= 3
    smallest = case(found[0].ranks, found[0].count)
    assert attempt(smallest, found[0].seed, found[0].pauses, frozenset()) == found[0]
    assert attempt(smallest, found[0].seed, (), frozenset()) is None


def test_the_same_seed_gives_the_same_answer() -> None:
    case = prepare("all_reduce", "ring_allreduce", bytes_per_rank=256, overrides=SMALL)
    assert attempt(case, 3) is None
    compiled = case.compiled()
    assert compiled.program is not None
    pauses = perturbation(compiled.program, 3)
    assert pauses == perturbation(compiled.program, 3) != perturbation(compiled.program, 4)
    slow = compiled.program.delayed(pauses).simulate()
    assert slow.latency_ps > compiled.latency_ps and slow.messages == compiled.messages
