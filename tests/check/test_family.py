"""A verdict over a family: ranks, counts, networks and roots that a kernel's own conditions choose."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from ahbm.base.collectives import COLLECTIVES
from ahbm.check.conditions import Recorded
from ahbm.cli.app import app
from ahbm.core.emulator import Emulator
from ahbm.runs.verdict import Checked, check_kernel
from planted.conditional import bugs

HEAD = """
COLLECTIVE = "all_reduce"
{more}

def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, dtype="f16"):
{refuses}
    return (n_elem, world_size, dtype)


def kernel(t_ptr, n, w, dtype, me, kind, tw, th, *, tl):
    {line}
    acc = tl.load(t_ptr, shape=(n,), dtype=dtype)
    for r in range(w):
        if r != me:
            tl.send(dir=tl.peer(sip=r), src=acc)
    for r in range(w):
        if r != me:
            acc = acc + tl.recv(dir=tl.peer(sip=r), shape=(n,), dtype=dtype)
    tl.store(t_ptr, acc)
"""


def kernel(folder: Path, line: str, refuses: str = "", more: str = "") -> str:
    path = folder / "mine.py"
    text = HEAD.replace("{line}", line).replace("{refuses}", f"    {refuses or 'pass'}").replace("{more}", more)
    path.write_text(text, encoding="utf-8")
    return str(path)


def on(checked: Checked, outcome: str) -> set[int]:
    assert checked.tried is not None
    return {place.ranks for place in checked.tried.having(outcome)}


def test_a_right_kernel_is_right_for_all_that_was_tried(tmp_path: Path) -> None:
    checked = check_kernel(kernel(tmp_path, "pass"), topology="npu_ring_8", dtype="i32")
    assert checked.verdict == "correct" and checked.tried is not None and not checked.findings
    assert {2, 3, 4, 5, 7, 8, 9, 16} <= on(checked, "correct")
    counts = {place.count for place in checked.tried.having("correct")}
    assert {1, 2, 7, 9, 13, 1024} <= counts
    first, then, *_ = str(checked).splitlines()
    assert "8 ranks" in first and then.startswith("  correct for 2 to 19 ranks; chunks of 1 to 20, 32, 1024 elements")
    assert checked.to_json()["tried"]["holds"] in then
    again = check_kernel(kernel(tmp_path, "pass"), topology="npu_ring_8", dtype="i32")
    assert again == checked


@pytest.mark.parametrize(
    ("line", "ranks"),
    [
        ("n -= n % 8", None),
        ("n = min(n, 3000)", None),
        ("n = n if n != 1777 else n - 1", None),
        ("n -= w == 12", {12}),
        ("n -= w > 40", {41}),
        ("n -= w & (w - 1) != 0", {3, 5, 6, 7}),
        ("n -= n // w > 500", None),
        ("n -= n // 64 > 9 and w == 3", {3}),
    ],
)
def test_a_kernel_that_is_wrong_elsewhere_is_wrong(line: str, ranks: set[int] | None, tmp_path: Path) -> None:
    path = kernel(tmp_path, line)
    assert check_kernel(path, None, "npu_ring_8", ranks=[8], sizes=[4096], dtype="i32").verdict == "correct"
    checked = check_kernel(path, None, "npu_ring_8", dtype="i32")
    assert checked.verdict == "wrong" and checked.findings[0].code == "AHBM-V301"
    assert ranks is None or ranks <= on(checked, "wrong")
    assert "first at " in str(checked)


def test_a_grid_is_tried_where_the_module_names_it(tmp_path: Path) -> None:
    more = 'TOPO_NAME_TO_KIND = {"ring_1d": 0, "torus_2d": 1}'
    path = kernel(tmp_path, "n -= kind == 1", more=more)
    checked = check_kernel(path, topology="npu_ring_8", dtype="i32")
    assert checked.verdict == "wrong" and checked.tried is not None
    assert {place.network for place in checked.tried.wrong} == {"torus_2d"}
    assert "on ring_1d" not in str(checked.tried.wrong) and "torus_2d" in str(checked)


def test_what_a_kernel_refuses_is_no_fault(tmp_path: Path) -> None:
    path = kernel(tmp_path, "assert n > 1", 'if world_size % 2: raise ValueError("even")')
    checked = check_kernel(path, topology="npu_ring_8", dtype="i32")
    assert checked.verdict == "correct" and {3, 5, 7} <= on(checked, "refused")
    assert not on(checked, "correct") & {3, 5, 7}
    assert any("the kernel refuses" in line for line in str(checked).splitlines())


@pytest.mark.parametrize(("extent", "verdict"), [("n // w", "correct"), ("n - 100 * w", "malformed")])
def test_an_empty_tile_is_a_refusal_and_a_shape_that_is_none_is_not(extent: str, verdict: str, tmp_path: Path) -> None:
    path = kernel(tmp_path, f"tl.zeros(({extent},))")
    checked = check_kernel(path, topology="npu_ring_8", dtype="i32")
    assert checked.verdict == verdict
    assert (0 in {place.count // place.ranks for place in checked.tried.having("refused")}) == (verdict == "correct")  # type: ignore[union-attr]
    assert verdict == "correct" or checked.findings[0].code == "AHBM-K206"


def test_roots_take_turns() -> None:
    checked = check_kernel("binomial_broadcast", topology="npu_ring_8")
    assert checked.tried is not None and {0, 1, 7} <= {place.root for place in checked.tried.having("correct")}
    alone = check_kernel("binomial_broadcast", topology="npu_ring_8", root=2)
    assert alone.tried is not None and {place.root for place in alone.tried.having("correct")} == {2}
    assert min(place.ranks for place in alone.tried.having("correct")) == 3


def test_what_is_given_does_not_vary(tmp_path: Path) -> None:
    path = kernel(tmp_path, "n -= n % 8")
    arguments = ["check", "-a", path, "-t", "npu_ring_8", "-d", "i32", "--json"]
    done = CliRunner().invoke(app, [*arguments, "--ranks", "4,8", "-b", "4K,64"])
    answer = json.loads(done.stdout)
    assert done.exit_code == 0 and answer["verdict"] == "correct"
    places = [(place["ranks"], place["bytes"]) for place in answer["tried"]["places"]]
    assert places == [(4, 4096), (4, 64), (8, 4096), (8, 64)]
    done = CliRunner().invoke(app, [*arguments, "--ranks", "4", "-b", "4K,60"])
    assert done.exit_code == 8 and json.loads(done.stdout)["tried"]["places"][1]["verdict"] == "wrong"
    done = CliRunner().invoke(app, ["check", "-a", path, "-t", "npu_hypercube_16", "--ranks", "4,7", "-d", "i32"])
    assert "AHBM-T008" in str(done.exception), "what was asked for is not left out"
    sized = check_kernel(path, None, "npu_ring_8", bytes_per_rank=4096, dtype="i32")
    assert sized.verdict == "correct" and sized.tried is not None
    assert {place.bytes for place in sized.tried.having("correct")} == {4096}
    fixed = check_kernel(path, None, "npu_ring_8", bytes_per_rank=4096, dtype="i32", overrides={"system.sips.count": 4})
    assert fixed.tried is not None and len(fixed.tried.outcomes) == 1


def test_too_small_slots_are_the_machines_limit() -> None:
    overrides = {"defaults.slot_size": 64}
    checked = check_kernel("pairwise_all_to_all", topology="npu_ring_8", overrides=overrides, sizes=[64, 4096])
    assert checked.verdict == "correct" and on(checked, "unfit")


@pytest.mark.slow
def test_planted_bugs_of_sizes_ranks_and_networks_are_found(tmp_path: Path) -> None:
    missed, sorts = [], set()
    for bug in bugs(40, 3):
        if len(sorts) >= 3:
            break
        if bug.count > 200 or bug.ranks > 12:
            continue  # The quick ones: benches/planted.py has them all.
        if bug.first(tmp_path).verdict == "correct" and bug.at_its_place(tmp_path).verdict not in (
            "correct",
            "undecided",
        ):
            sorts.add(bug.sort)
            if bug.checked(tmp_path).verdict in ("correct", "undecided"):
                missed.append((bug.name, bug.condition, bug.ranks, bug.count))
    assert missed == [] and len(sorts) >= 3


@pytest.mark.slow
def test_packaged_algorithms_are_right_wherever_they_are_tried() -> None:
    machine = "npu_ring_8"
    emulator = Emulator.load(machine)
    for collective in COLLECTIVES:
        for algorithm in emulator.algorithms(collective):
            checked = check_kernel(algorithm, collective, machine)
            assert checked.verdict == "correct", str(checked)


@pytest.mark.parametrize("machine", ["npu_ring_8", "dgx_h100", "npu_torus_4x4", "npu_mesh_4x4", "mi300x_2_nodes"])
def test_the_kernels_to_begin_with_are_right_everywhere(machine: str, here: Path) -> None:
    assert CliRunner().invoke(app, ["new", "fresh"]).exit_code == 0
    for kernel in (Path(__file__).parents[2] / "algorithms/my_allreduce.py", here / "algorithms/fresh.py"):
        checked = check_kernel(str(kernel), topology=machine)
        assert checked.verdict == "correct", str(checked)


NUMBERS = st.integers(-40, 40)


@given(
    NUMBERS, st.lists(st.tuples(st.sampled_from(["+", "-", "*", "//", "%", "&", "|", "^", "<", "==", ">="]), NUMBERS))
)
def test_recorded_integers_compute_as_integers(start: int, work: list[tuple[str, int]]) -> None:
    plain, recorded = start, Recorded(start, ("n",), {})
    for sign, number in work:
        if sign in ("//", "%") and number == 0:
            continue
        for left, right in (("x", "y"), ("y", "x"))[:1] if not plain else (("x", "y"), ("y", "x")):
            names = {"x": plain, "y": number}
            same = {"x": recorded, "y": number}
            assert eval(f"{left} {sign} {right}", {}, names) == eval(f"{left} {sign} {right}", {}, same)
        found = eval(f"x {sign} y", {}, {"x": recorded, "y": number})
        if isinstance(found, Recorded):
            plain, recorded = int(found), found
    assert hash(recorded) == hash(plain) and bool(recorded) == bool(plain) and range(recorded) == range(plain)
