"""The first call of a shape: what is wrong raises, what nobody can decide warns, what is right is silent."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ahbm
import ahbm.distributed as dist
from ahbm.base import codes
from ahbm.base.request import Request
from ahbm.check import case as case_module
from ahbm.check import numbers
from ahbm.check.case import Case, narrowed
from ahbm.check.reference import Reference, inputs
from ahbm.core.emulator import Emulator
from ahbm.errors import AhbmError, DataError, ProgramWarning
from ahbm.ranks.firsts import first_checks
from ahbm.ranks.setup import Setup
from ahbm.runs.blame import tracing
from ahbm.runs.judged import judged
from ahbm.runs.measure import prepare
from planted import behind, values

RANKS = 4
MACHINE: dict[str, object] = {"system.sips.count": RANKS, "sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1}
SEEN = {"malformed": "error", "wrong": "error", "undecided": "warning", "correct": "right"}
"""What a user sees of a kernel, by the verdict of `ahbm check`."""


def kernel(folder: Path, name: str) -> str:
    return next(path for one, path, _ in values.cases(folder) if one.name == name)


def spawned(worker: Any, *args: Any) -> list[Any]:
    return ahbm.spawn(worker, args, nprocs=RANKS, overrides=MACHINE)


def reduced(rank: int, path: str, check: str | None, given: Sequence[float], calls: int) -> Any:
    dist.init_process_group(algorithm=path, check=check)
    for _ in range(calls):
        x = np.array(given, np.float32)
        dist.all_reduce(x)
    return x


@pytest.mark.parametrize("size", [1, 7, 100, pytest.param(5000, marks=pytest.mark.slow)])
def test_what_a_user_sees_is_the_verdict_of_check(size: int, tmp_path: Path) -> None:
    seen = []
    for one, path, dtype in values.cases(tmp_path):
        how: dict[str, Any] = {"bytes_per_rank": size * (2 if dtype in ("f16", "bf16") else 4)}
        how |= {"dtype": dtype, "op": one.op, "overrides": MACHINE}
        verdict = judged(prepare("all_reduce", path, **how), checks="all", seed=0, data=True)[0]
        seen.append((one.name, dtype, behind.outcome(path, **how), SEEN[verdict]))
    assert [case for case in seen if case[2] != case[3]] == []
    assert {outcome for *_, outcome in seen} == set(SEEN.values())


def test_an_error_names_the_line_and_says_whose_numbers_these_are(tmp_path: Path) -> None:
    path = kernel(tmp_path, "negative sums are 0")
    with pytest.raises(DataError, match="AHBM-V301") as raised:
        spawned(reduced, path, None, [-5.0] * 8, 1)
    line = Path(path).read_text(encoding="utf-8").splitlines().index("    acc = tl.maximum(acc, 0)") + 1
    assert f"[{Path(path).name}:{line}]" in str(raised.value) and "test numbers" in str(raised.value)


@pytest.mark.parametrize("check", [None, "result", "all"])
def test_what_stays_open_warns_once_at_the_kernels_line(check: str | None, tmp_path: Path) -> None:
    path = kernel(tmp_path, "bounds that no number exceeds")
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        first = spawned(reduced, path, check, [-5.0, 3.0] * 4, 3)[0]
    assert first.tolist() == [-20.0, 12.0] * 4
    (warning,) = heard
    assert issubclass(warning.category, ProgramWarning) and warning.filename == Path(path).name
    assert re.search(
        rf"AHBM-U290 all_reduce .*`min .*numbers come out right \[{warning.filename}:{warning.lineno}\]",
        str(warning.message),
    )


def test_none_turns_all_of_it_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = kernel(tmp_path, "negative sums are 0")
    assert not spawned(reduced, path, "none", [-5.0] * 8, 1)[0].any()
    monkeypatch.setenv("AHBM_CHECK", "none")
    assert not spawned(reduced, path, None, [-5.0] * 8, 1)[0].any()


def test_groups_handles_and_selectors_raise_it_too(tmp_path: Path) -> None:
    path = kernel(tmp_path, "negative sums are 0")

    def grouped(rank: int) -> None:
        dist.init_process_group(algorithm=path)
        group = dist.new_group([1, 3])
        if rank in (1, 3):
            dist.all_reduce(np.ones(8, np.float32), group=group)

    def waited(rank: int) -> None:
        dist.init_process_group(algorithm=path)
        work = dist.all_reduce(np.ones(8, np.float32), async_op=True)
        assert work is not None
        work.wait()

    def selected(rank: int) -> None:
        dist.init_process_group(selector=lambda algorithms, request: algorithms["clamped"])
        dist.all_reduce(np.ones(8, np.float32))

    ccl = tmp_path / "ccl.yaml"
    ccl.write_text(f"algorithms: {{clamped: {{module: {Path(path).stem}}}}}\n", encoding="utf-8")
    for worker in (grouped, waited, selected):
        with pytest.raises(DataError, match="AHBM-V301"):
            ahbm.spawn(worker, nprocs=RANKS, overrides=MACHINE, ccl=ccl)


def test_a_wide_sum_of_narrow_numbers_is_checked_as_it_runs(tmp_path: Path) -> None:
    path = kernel(tmp_path, "negative sums are 0")

    def worker(rank: int) -> None:
        dist.init_process_group(algorithm=path)
        dist.all_reduce(np.ones(8, np.float16))

    from ahbm.ranks.setup import using

    with using(Setup(accumulate="f32")), pytest.raises(DataError, match="AHBM-V301"):
        spawned(worker)


SWITCH = """
COLLECTIVE = "all_reduce"


def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, dtype="f16"):
    return (n_elem, world_size, dtype)


def kernel(t_ptr, n, world, dtype, me, kind, tw, th, *, tl):
    if tl.program_id(0) != 0 or tl.program_id(1) != 0:
        return
    share = n // world
    at = t_ptr + me * share * tl.itemsize(dtype)
    value = tl.load_reduce(at, shape=(share,), sips=range(world), dtype=dtype)
    tl.store(at, value)
    tl.multicast(at, value, sips=[rank for rank in range(world) if rank != me])
    tl.fence()
"""
"""Nobody waits until all have read, nor until all have written."""


def test_all_checks_find_behind_dist_what_they_find_in_a_run(tmp_path: Path) -> None:
    path = tmp_path / "switch.py"
    path.write_text(SWITCH, encoding="utf-8")
    machine = MACHINE | {"system.sips.topology": "switch", "system.sips.switch.reduces": True}
    with pytest.raises(AhbmError) as run:
        ahbm.run("all_reduce", str(path), overrides=machine, dtype="f32", bytes_per_rank=64, check="all")
    with pytest.raises(AhbmError) as behind_dist:
        ahbm.spawn(reduced, (str(path), "all", [1.0] * 16, 1), nprocs=RANKS, overrides=machine)
    assert run.value.code in codes.RACES
    assert {finding.code for finding in run.value.findings} == {finding.code for finding in behind_dist.value.findings}


def test_numbers_that_do_not_fit_are_a_warning_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "memory_bytes", lambda: 1)
    monkeypatch.setattr("ahbm.check.reference.memory_bytes", lambda: 1)
    path = kernel(tmp_path, "bounded sums")
    with pytest.warns(ProgramWarning, match="numbers were not compared: AHBM-B301"):
        spawned(reduced, path, None, [1.0], 1)


SIZES = (3, 130, 1021, 2043, 40_000)
"""Elements: too few to repeat, one block, and many, with a rest and without."""


@pytest.mark.parametrize("dtype", ["bf16", "f32", "i8"])
def test_repeated_numbers_say_what_whole_arrays_say(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbers, "BYTES_OF_OP", 1)
    for module in (numbers, case_module):  # what is wrong with it takes longer to say
        monkeypatch.setattr(module, "explain_wrong", lambda *_: DataError("AHBM-V301", "wrong"))
    emulator = Emulator.load(None, None, MACHINE)
    for one, path, _ in values.cases(tmp_path):
        if dtype not in one.dtypes and one.dtypes != ("f32", "i32"):
            continue
        for size in SIZES:
            request = Request("all_reduce", range(RANKS), size, dtype, "max" if one.op == "avg" else one.op)
            try:
                case = Case(emulator, request, path)
                case.compiled()
            except AhbmError:
                continue
            given = inputs(request, "integers", 0)
            reference = Reference(request, given, exact=True)
            results = case.execute(given)[1]
            wrong = any(len(reference.wrong(party, results[party])) for party in range(RANKS))
            expected = wrong or narrowed(case, 0, partial(tracing, case)) is not None
            assert (numbers.compared(case, partial(tracing, case)) is not None) is expected, (one.name, size)


def test_right_results_are_silent_in_every_collective(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "BYTES_OF_OP", 1)
    emulator = Emulator.load("npu_switch_8", None, {"system.sips.count": 3})
    verify = first_checks(emulator, Setup())
    assert verify is not None
    monkeypatch.setattr(Case, "execute", lambda *_: pytest.fail("made as a whole"))
    ranks = range(emulator.world_size)
    for collective in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "gather", "scatter"):
        request = Request(collective, ranks, 9001, "f32")
        refused = emulator.refusals(request)
        for name in set(emulator.algorithms(collective)) - set(refused):
            compiled = emulator.compile(request, name)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                verify(compiled)
            case = Case(emulator, request, name)
            assert numbers.compared(case, partial(tracing, case)) is None, name


def test_a_result_that_is_wrong_in_one_place_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Wherever the place is: repeated numbers are compared to the last element."""
    path = tmp_path / "one.py"
    for at in (0, 1020, 1021, 5000, 9999):
        text = values.MODULE.replace("{first}", "pass").replace("{each}", values.EACH)
        lines = (
            "tl.store(t_ptr, acc)",
            f"at = t_ptr + {at} * tl.itemsize(dtype)",
            "one = tl.load(at, shape=(1,), dtype=dtype)",
            "acc = tl.maximum(one, 0) + tl.minimum(one, 0) * (2 if me == 1 else 1)",
            "t_ptr = at",
        )
        last = "\n    ".join(lines)
        path.write_text(text.replace("{last}", last), encoding="utf-8")
        case = Case(Emulator.load(None, None, MACHINE), Request("all_reduce", range(RANKS), 10_000, "i32"), str(path))
        found = [numbers.compared(case, partial(tracing, case), seed) for seed in range(4)]
        assert any(found), at
        error = next(error for error in found if error is not None)
        assert f"element {at}" in str(error) or f"[{at}," in str(error)
