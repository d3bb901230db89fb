"""Results made in the caller's arrays, against the replay of the same program on buffers of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ahbm._core import Memory, Recipe
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.request import Request
from ahbm.core.compiled import Compiled
from ahbm.core.emulator import Emulator
from ahbm.errors import AhbmError, DataError
from support.choosing import compiled, configured

CALLS = [("f32", "sum", 37), ("f16", "sum", 1000), ("bf16", "avg", 64), ("f64", "prod", 129), ("i8", "max", 500)]
CALLS += [("i32", "avg", 100), ("u8", "bxor", 77)]
KINDS = [name for name, kind in COLLECTIVES.items() if not kind.paired and name != "barrier"]


def emulator(ranks: int) -> Emulator:
    return Emulator.load(None, None, {"system.sips.count": ranks, "sip.cube_mesh.w": 2, "sip.cube_mesh.h": 1})


def data(request: Request, seed: int = 0) -> list[NDArray[Any]]:
    rng = np.random.default_rng(seed)
    numbers = [rng.integers(0, 6, request.shape).astype(float) for _ in request.ranks]
    return [np.ascontiguousarray(request.element.encode(x)) for x in numbers]


def parts(compiled: Compiled) -> tuple[Any, Any, Any]:
    """The program, its timeline and its recipe."""
    timeline = compiled.timeline(record=True)
    assert timeline is not None and compiled.program is not None
    return compiled.program, timeline, compiled.recipe(timeline)


@pytest.mark.slow
@pytest.mark.parametrize("collective", KINDS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_the_bits_of_a_replay(collective: str, ranks: int) -> None:
    here, made = emulator(ranks), 0
    for algorithm in here.algorithms(collective):
        for dtype, op, count in CALLS if COLLECTIVES[collective].reduces else CALLS[:3]:
            asked = op if COLLECTIVES[collective].reduces else "sum"
            root = ranks - 1 if COLLECTIVES[collective].rooted else 0
            try:
                compiled = here.compile(Request(collective, tuple(range(ranks)), count, dtype, asked, root), algorithm)
            except AhbmError:
                continue  # not for so many ranks
            program, timeline, recipe = parts(compiled)
            assert recipe is not None, (algorithm, dtype, op)
            want = data(compiled.request)
            got = [x.copy() for x in want]
            Memory(program).run(timeline, want, compiled.operands, compiled.results)
            assert recipe.run(got)
            assert all(x.tobytes() == y.tobytes() for x, y in zip(got, want, strict=True)), (algorithm, dtype, op)
            made += 1
    assert made


def test_a_long_program_has_a_recipe_from_its_second_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ahbm.core.compiled.EARLY_OPS", 0)
    here, request = emulator(4), Request("all_reduce", (0, 1, 2, 3), 1000, "f16")
    first, second = data(request), data(request)
    here.perform(request, first, configured(here, request))
    again = here.perform(request, second, configured(here, request))
    assert again.recipe(again.timeline(record=True)) is not None  # type: ignore[arg-type]
    assert all(x.tobytes() == y.tobytes() for x, y in zip(first, second, strict=True))
    fresh = compiled(emulator(4), request)
    assert fresh.recipe(fresh.timeline(record=True)) is None  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def pair() -> Compiled:
    return compiled(emulator(2), Request("all_reduce", (0, 1), 1000, "f32"))


def test_ranks_that_share_memory_are_left_to_the_replay(pair: Compiled) -> None:
    """Both read what is there before either writes."""
    here, whole = emulator(2), np.arange(1500, dtype=np.float32)
    _, _, recipe = parts(pair)
    for views in ([whole[:1000], whole[:1000]], [whole[500:], whole[:1000]]):
        before = whole.copy()
        assert not recipe.run(views)
        assert (whole == before).all()
    apart = [whole[:1000].copy() for _ in range(2)]
    here.perform(pair.request, apart, pair.by)
    here.perform(pair.request, [whole[:1000], whole[:1000]], pair.by)
    assert (whole[:1000] == apart[0]).all() and (apart[0] == apart[1]).all()


def test_arrays_side_by_side_and_at_odd_addresses(pair: Compiled) -> None:
    _, _, recipe = parts(pair)
    want = data(pair.request)
    raw = np.zeros(2 * 4000 + 1, np.uint8)
    got = [raw[1:4001].view(np.float32), raw[4001:].view(np.float32)]
    for x, y in zip(got, want, strict=True):
        x[:] = y
    assert recipe.run(got)
    assert all((x == want[0] + want[1]).all() for x in got)


def test_unfit_arguments(pair: Compiled) -> None:
    program, timeline, recipe = parts(pair)
    good = data(pair.request)
    frozen = good[1].copy()
    frozen.flags.writeable = False
    for wrong in ([good[0]], [good[0], good[1][:-1]], [good[0], frozen], [good[0], np.zeros(2000, np.float32)[::2]]):
        with pytest.raises(DataError):
            recipe.run(wrong)
    rows = [np.array([[0, 0, 0, 1 << 40]]), np.array([[99, 0, 0, 4]]), np.array([[0, -4, 0, 4]]), np.zeros((1, 3), int)]
    for pieces in rows:
        for operands, results in (([pieces], [rows[0][:0]]), ([rows[0][:0]], [pieces])):
            with pytest.raises(DataError):
                Recipe.of(program, timeline, operands, results)
    other = compiled(emulator(2), Request("all_reduce", (0, 1), 10, "f32"))
    with pytest.raises(DataError, match="AHBM-V120"):
        Recipe.of(program, parts(other)[1], pair.operands, pair.results)
