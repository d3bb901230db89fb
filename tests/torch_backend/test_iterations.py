"""Which part of a journal is an iteration."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("torch")

from ahbm.torch.device.kept import Kept, common, cut
from ahbm.torch.device.lanes import Lanes
from ahbm.torch.device.steps import OPTIMIZER, PROFILER, USER, WAITS, Count, Found, compared, repeated, rounds


@pytest.mark.parametrize(
    ("iteration", "times"),
    [([0], 5), ([0, 1], 5), ([0, 0, 0, 0, 0, 1], 4), (list(range(9)), 4), ([0, 0, 1, 2], 3)],
)
def test_an_iteration_ends_with_the_last_step_before_the_first_optimizer_returns(
    iteration: list[int], times: int
) -> None:
    who = iteration * times
    assert rounds(who, over=True) == [len(iteration)] * times
    count = Count()
    count.made = len(set(iteration))
    ended = []
    for one in who:
        count.mark(OPTIMIZER, one)
        ended.append(count.ended if count.sure else 0)
    # An iteration is known by the one before, the first one by the optimizers that there are.
    assert [ended[(number + 1) * len(iteration) - 1] for number in range(times)] == list(range(1, times + 1))


def test_optimizers_one_after_the_other_are_no_iteration_together() -> None:
    assert rounds([0, 0, 0, 1, 1], over=True) == [1] * 5
    count = Count()
    count.made = 2
    for one in [0] * 3 + [1] * 4 * WAITS:
        count.mark(OPTIMIZER, one)
    assert count.ended > 2 * WAITS


def test_a_step_that_has_begun_does_not_count() -> None:
    assert rounds([0, 1, 0, 1, 0], over=True) == [2, 2] and rounds([0, 1, 0, 0, 1, 1, 0], over=True) == [2, 4]
    assert rounds([0, 1], over=False) == [] and rounds([0, 1], over=True) == [2]


def test_what_a_script_says_itself_wins() -> None:
    lanes = Lanes(2)
    lanes.count.made = 1
    for _ in range(4):
        for _ in range(5):
            lanes.kernel("mm", 1, 1, "f16", False)
            lanes.mark(OPTIMIZER, 0)
            lanes.mark(PROFILER, 0)
        lanes.mark(USER, 0)
    kept = lanes.keep(over=True)
    assert {end - start for start, end in kept.found.whole[1:]} == {5} and kept.steps == 4


def names(text: str) -> list[str]:
    return list(text)


def test_an_evaluation_lies_beside_the_step() -> None:
    words = ["setup.abcdefo", "abcdefo", "zvvvvabcdefo", "abcdefo", "ao", "abcdefo"]
    journal, whole = names("".join(words)), list[tuple[int, int]]()
    for word in words:
        start = whole[-1][1] if whole else 0
        whole.append((start, start + len(word)))
    found = compared(whole, journal)
    assert sorted(found.looked) == [1, 2, 3, 5]
    start, end = found.beside[2]
    assert "".join(journal[start:end]) == "zvvvv"
    for number in found.looked:
        assert "".join("".join(journal[a:b]) for a, b in found.looked[number]) == "abcdefo"


def test_a_step_that_a_scaler_skipped_is_not_the_usual_one() -> None:
    whole, journal = [(0, 3), (3, 6), (6, 10)], names("abcabcabco")
    assert sorted(compared(whole, journal, [6]).looked) == [1, 2]
    assert compared(whole, journal, [6]).beside == {}
    assert compared(whole, journal).beside == {2: (9, 10)}


def test_iterations_that_all_differ_are_all_looked_at() -> None:
    whole, journal = [(0, 1), (1, 3), (3, 6), (6, 10)], names("qabcdefghi")
    assert compared(whole, journal).looked == {1: [(1, 3)], 2: [(3, 6)], 3: [(6, 10)]}


def test_a_pattern_is_found_where_nothing_marks() -> None:
    rng = random.Random(5)
    for _ in range(50):
        layers, times = rng.randint(1, 12), rng.randint(4, 9)
        setup = [f"i{rng.randint(0, 3)}" for _ in range(rng.randint(0, 20))]
        once = ["embed", *["norm", "mm", "add"] * layers, "head", "item"]
        tail = ["print"] * rng.randint(0, 2)
        calls = [(len(setup) + at * len(once), len(setup) + (at + 1) * len(once) - 1) for at in range(times)]
        for known in (calls, []):
            found = repeated([*setup, *once * times, *tail], known)
            if 2 * times * len(once) < len(setup) + len(tail) + times * len(once):
                continue
            assert {end - start for start, end in found} == {len(once)}, (layers, times, setup)
            assert times - 1 <= len(found) <= times


def test_layers_that_are_alike_are_no_iterations() -> None:
    once = ["embed", *["norm", "mm", "add"] * 24, "head"]
    assert repeated(once, [(0, len(once))]) == []
    assert repeated(["copy"] * 12, [], {"copy"}) == [] and repeated(["copy", "mm"] * 12, [], {"copy"})


def test_nothing_is_kept_after_enough() -> None:
    lanes = Lanes(3)
    lanes.count.made = 1
    for _ in range(1000):
        for name in ("mm", "add", "adam"):
            lanes.kernel(name, 1, 1, "f16", False)
        lanes.mark(OPTIMIZER, 0)
    assert len(lanes.events) == 12 and lanes.count.ended == 1000
    lanes = Lanes(3)
    for _ in range(40_000):
        for name in ("mm", "add"):
            lanes.kernel(name, 1, 1, "f16", False)
    assert lanes.full and len(lanes.events) < 50_000


def node(name: str, *deps: int) -> tuple[str, str, list[int], int, int, list[tuple[str, int]]]:
    return ("COMP_NODE", name, list(deps), 0, 0, [("num_ops", 1), ("tensor_size", 1)])


def test_what_is_left_out_hands_on_what_it_waited_for() -> None:
    nodes = [node("a"), node("b", 0), node("x", 1), node("y", 2), node("c", 3), node("d", 4, 2)]
    kept = Kept(nodes, Found([(0, 1), (1, 6)], {1: [(1, 2), (4, 6)]}, {1: (2, 4)}), True, True, 2)  # type: ignore[arg-type]
    found, edges = cut(kept, [1])
    assert [(one[1], one[2]) for one in found] == [("b", []), ("c", [0]), ("d", [1, 0])] and edges == [3]


def test_ranks_are_looked_at_in_iterations_of_the_same_numbers() -> None:
    def rank(*looked: int, whole: int = 6) -> Kept:
        return Kept([], Found([(0, 0)] * whole, {number: [(0, 0)] for number in looked}, {}), True, True, whole)

    assert common([rank(1, 2, 3, 4), rank(2, 3, 4, 5)], 2) == [2, 3]
    assert common([rank(1, 2), rank(3, 4)], 3) == [1, 2, 3]
    assert common([rank(1, 2), rank(whole=1)], 3) == [0] and common([rank(1), rank(whole=0)], 3) == []
