"""`ahbm explore`: the right algorithm passes every seed, a wrong one fails, replays and shrinks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ahbm import convert
from ahbm.check import exploration
from ahbm.check.case import Case
from ahbm.check.checks import examine
from ahbm.check.exploration import Failure, Pause, attempt, perturbation, shrink
from ahbm.cli import app
from ahbm.errors import ConfigError
from ahbm.runs.measure import measure, prepare
from support.plans import document, recursive_doubling, ring, step

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

    tried = [attempt(case(4, 64), seed) for seed in range(4)]
    found = [shrink(failure, case(4, 64), case) for failure in tried if failure is not None]
    assert found and found[0].findings[0].code == "AHBM-V413"
    assert found[0].ranks <= 4 and found[0].count < 64 and len(found[0].pauses) <= 3
    smallest = case(found[0].ranks, found[0].count)
    assert attempt(smallest, found[0].seed, found[0].pauses, frozenset()) == found[0]
    assert attempt(smallest, found[0].seed, (), frozenset()) is None


def deadlock() -> str:
    """An exchange between two, both of whom receive before they send."""
    gpus = []
    for rank, peer in ((0, 1), (1, 0)):
        steps = step(0, "r", "i:0", "s:0") + step(1, "s", "i:0", "i:0") + step(2, "re", "s:0", "i:0")
        block = f'<tb id="0" send="{peer}" recv="{peer}" chan="0">{steps}</tb>'
        gpus.append(f'<gpu id="{rank}" i_chunks="1" o_chunks="1" s_chunks="1">{block}</gpu>')
    return document(2, 1, "allreduce", gpus)


RACE = {"AHBM-V401", "AHBM-V403", "AHBM-V404", "AHBM-V411"}
BROKEN = {
    "lossy": (ring(3).replace('type="rrs"', 'type="rcs"', 1), {"AHBM-V401"}),
    "racing": (recursive_doubling(4).replace('depid="0" deps="2"', 'depid="-1" deps="-1"'), RACE),
    "stuck": (deadlock(), {"AHBM-D101", "AHBM-D201"}),
}


@pytest.mark.parametrize("ending", ["xml", "json", "et"])
@pytest.mark.parametrize("name", BROKEN)
def test_what_is_wrong_with_a_plan_is_told(name: str, ending: str, tmp_path: Path) -> None:
    text, codes = BROKEN[name]
    source = tmp_path / "plan.xml"
    source.write_text(text)
    plan = tmp_path / f"plan.{ending}"
    if ending != "xml":
        convert(source, plan)
    ranks = text.count("<gpu ")
    command = ["explore", str(plan), "-b", "1536", "-d", "f32", "-t", "npu_ring_8", "--json"]
    done = CliRunner().invoke(app, [*command, "--seeds", "2"])
    assert done.exit_code == 8, done.output
    failures = json.loads(done.stdout)["failures"]
    assert [failure["seed"] for failure in failures] == [0, 1]
    for failure in failures:
        assert failure["ranks"] == ranks and failure["findings"][0]["code"] in codes
    assert min(failure["count"] for failure in failures) < 1536 // 4
    again = json.loads(CliRunner().invoke(app, [*command, "--seed", "1"]).stdout)["failures"]
    assert again == failures[1:]


@pytest.mark.parametrize("trouble", [ConfigError("AHBM-C121", "no such case"), RuntimeError("no such luck")])
def test_trouble_with_smaller_cases_hides_no_failure(
    trouble: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tmp_path / "plan.xml"
    plan.write_text(deadlock())
    command = ["explore", str(plan), "-b", "1536", "-t", "npu_ring_8", "--seed", "7"]

    def fails(case: Case, *rest: object, **more: object) -> Failure | None:
        if case.request.count < 1536 // 2:
            raise trouble
        return attempt(case, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(exploration, "attempt", fails)
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 8 and "seed 7: fails with 2 ranks and 768 elements" in done.stdout

    def interrupted(*rest: object) -> Failure:
        raise KeyboardInterrupt

    monkeypatch.setattr(exploration, "shrink", interrupted)
    assert "seed 7: fails with 2 ranks and 768 elements" in CliRunner().invoke(app, command).stdout


def test_a_smaller_program_keeps_its_pauses() -> None:
    def pauses(ranks: int) -> list[Pause]:
        machine = {**SMALL, "system.sips.count": ranks}
        program = prepare("all_reduce", "ring_allreduce", bytes_per_rank=240, overrides=machine).compiled().program
        assert program is not None
        return perturbation(program, 5)

    small, large = pauses(3), pauses(6)
    shorter = {agent: op for agent, op, _ in small}
    assert small == [pause for pause in large if pause[0] < 3 and pause[1] <= shorter[pause[0]]]


def test_the_same_seed_gives_the_same_answer() -> None:
    case = prepare("all_reduce", "ring_allreduce", bytes_per_rank=256, overrides=SMALL)
    assert attempt(case, 3) is None
    compiled = case.compiled()
    assert compiled.program is not None
    pauses = perturbation(compiled.program, 3)
    assert pauses == perturbation(compiled.program, 3) != perturbation(compiled.program, 4)
    slow = compiled.program.delayed(pauses).simulate()
    assert slow.latency_ps > compiled.latency_ps and slow.messages == compiled.messages


def test_a_check_that_takes_too_many_steps_is_told_and_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: so many orders that the check is refused before its first step."""
    monkeypatch.setitem(examine.__kwdefaults__, "orders", 1 << 28)
    asked = ["all_reduce", "-a", "ring_allreduce", "-b", "256", *options()]
    done = CliRunner().invoke(app, ["explore", *asked, "--seeds", "2"])
    assert done.exit_code == 10 and "AHBM-B210 the check takes " in done.stdout
    assert done.stdout.splitlines()[-1] == "0 of 2 seeds fail"
    told = json.loads(CliRunner().invoke(app, ["explore", *asked, "--seeds", "2", "--json"]).stdout)
    assert [finding["code"] for finding in told["undecided"]] == ["AHBM-B210"] and not told["failures"]
    for data in ([], ["--no-data"]):
        done = CliRunner().invoke(app, ["run", *asked, "--check", "race", *data])
        assert done.exit_code == 10 and "AHBM-B210 the check takes " in done.stdout
    # Numbers decide of a result; nothing else decides of races.
    case = prepare("all_reduce", "ring_allreduce", bytes_per_rank=256, overrides=SMALL)
    assert measure(case, data=None, check="result").wrong == 0
