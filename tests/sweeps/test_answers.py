"""Answers are what a search of all rows finds, whatever holds the rows: lists, or arrays of pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ahbm.errors import ConfigError
from ahbm.sweeps.answers import best, changes, pareto, sensitivity, wrong_by
from ahbm.table.rows import Rows

Row = tuple[Any, ...]
NAMES = ("bytes", "algorithm", "latency_ns", "links", "busbw_gbs")
ROWS = st.lists(
    st.tuples(
        st.sampled_from([1024, 4096, None]),
        st.sampled_from(["ring", "tree", None]),
        st.one_of(st.none(), st.integers(1, 6).map(float)),
        st.one_of(st.none(), st.integers(1, 6)),
        st.one_of(st.none(), st.integers(-3, 3).map(float)),
    ),
    max_size=40,
)


def columns(rows: Sequence[Row], kind: str, names: Sequence[str] = NAMES) -> Rows:
    lists = {name: [row[at] for row in rows] for at, name in enumerate(names)}
    if kind == "lists":
        return Rows(tuple(names), lists)
    arrow = pytest.importorskip("pyarrow")
    types = [arrow.int64(), arrow.string(), arrow.float64(), arrow.int64(), arrow.float64()]
    table = arrow.table(lists, schema=arrow.schema(list(zip(names, types, strict=True))))
    if kind == "words":
        table = table.set_column(1, "algorithm", table.column("algorithm").dictionary_encode())
    half = len(rows) // 2
    table = arrow.concat_tables([table.slice(0, half), table.slice(half)])
    return Rows(tuple(names), {name: table.column(name) for name in names})


def searched(rows: Sequence[Row], goals: Sequence[int], signs: Sequence[int]) -> set[int]:
    """The rows that none of their size beats, the first of equals, found by comparing all with all."""
    points = {
        at: tuple(sign * row[goal] for goal, sign in zip(goals, signs, strict=True))
        for at, row in enumerate(rows)
        if all(row[goal] is not None for goal in goals)
    }

    def beats(one: int, other: int) -> bool:
        if rows[one][0] != rows[other][0] or one == other:
            return False
        less = all(a <= b for a, b in zip(points[one], points[other], strict=True))
        return less and (points[one] != points[other] or one < other)

    return {at for at in points if not any(beats(other, at) for other in points)}


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(rows=ROWS, kind=st.sampled_from(["lists", "arrow", "words"]))
@pytest.mark.parametrize(
    "goals", [["time"], ["time", "links"], ["links", "-busbw_gbs"], ["time", "links", "-busbw_gbs"]]
)
def test_the_front_is_what_nothing_beats(rows: list[Row], kind: str, goals: list[str]) -> None:
    known = {"time": 2, "links": 3, "busbw_gbs": 4}
    found = pareto(columns(rows, kind), goals).tolist()
    signs = [-1 if goal[0] == "-" else 1 for goal in goals]
    wanted = searched(rows, [known[goal.lstrip("-")] for goal in goals], signs)
    assert set(found) == wanted and len(found) == len(wanted)


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, seed=st.integers(0, 5))
def test_places_decide_between_equals(rows: list[Row], seed: int) -> None:
    places = np.random.default_rng(seed).permutation(len(rows)).astype(np.float64)
    order = np.argsort(places)
    found = pareto(columns(rows, "lists"), ["time", "links"], places).tolist()
    sorted_rows = columns([rows[at] for at in order], "lists")
    # Groups come in the order of places, too: parts of a store are read in the order of their digests.
    assert found == [int(order[at]) for at in pareto(sorted_rows, ["time", "links"])]


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, kind=st.sampled_from(["arrow", "words"]))
def test_arrays_say_what_lists_say(rows: list[Row], kind: str) -> None:
    lists, arrays = columns(rows, "lists"), columns(rows, kind)
    assert lists.take(range(len(rows))) == arrays.take(range(len(rows)))
    assert lists.csv().splitlines() == arrays.csv().splitlines()
    for name in NAMES:
        codes, values = arrays.classes(name)
        assert [values[code] for code in codes] == lists.column(name)
        if name != "algorithm":
            assert np.array_equal(lists.numbers(name), arrays.numbers(name), equal_nan=True)
    assert [effect.to_json() for effect in sensitivity(lists)] == [effect.to_json() for effect in sensitivity(arrays)]


@pytest.mark.parametrize("kind", ["lists", "arrow"])
def test_wrong_results_are_not_compared(kind: str) -> None:
    names = ("bytes", "algorithm", "latency_ns", "wrong", "busbw_gbs")
    rows = [
        (1, "quick", 1.0, 3, 1.0),
        (1, "right", 4.0, 0, 1.0),
        (1, "unknown", 5.0, None, 1.0),
        (2, "quick", 1.0, 0, 1.0),
    ]
    found = columns(rows, kind, names)
    assert best(found).tolist() == [1, 3] and wrong_by(found) == ["quick"]
    assert dict(sensitivity(found)[0].values).keys() == {"quick", "right", "unknown"}
    assert sensitivity(columns(rows[:2], kind, names)) == []


def test_what_matters_is_a_factor_between_means() -> None:
    rows = [(nbytes, name, float(nbytes * slow), 1, 1.0) for nbytes in (1, 1000) for name, slow in (("a", 1), ("b", 4))]
    (effect,) = sensitivity(columns(rows, "lists"))
    assert effect.key == "algorithm" and effect.factor == pytest.approx(4)
    assert dict(effect.values) == pytest.approx({"a": 0.5, "b": 2})


def test_many_values_are_taken_by_quarters() -> None:
    names = ("bytes", "a.b", "latency_ns", "links", "busbw_gbs")
    rows = [(1, number, 100.0 / (1 + number), 1, 1.0) for number in range(100)]
    (effect,) = sensitivity(columns(rows, "lists", names))
    assert [name for name, _ in effect.values] == ["0 to 24.75", "24.75 to 49.5", "49.5 to 74.25", "74.25 to 99"]
    shares = [share for _, share in effect.values]
    assert shares == sorted(shares, reverse=True)


@pytest.mark.parametrize("goals", [[], ["nothing"], ["algorithm"], ["time", "-"]])
def test_goals_are_columns_of_numbers(goals: list[str]) -> None:
    for kind in ("lists", "arrow"):
        with pytest.raises(ConfigError, match="AHBM-C187"):
            pareto(columns([(1, "a", 1.0, 1, 1.0)], kind), goals)


def test_changes_are_of_cases_not_of_positions() -> None:
    names = ("bytes", "algorithm", "latency_ns", "links", "busbw_gbs")
    before = columns([(1, "a", 10.0, 1, 1.0), (2, "a", 20.0, 1, 1.0), (3, "a", 30.0, 1, 1.0)], "lists", names)
    after = columns([(3, "a", 30.0, 1, 1.0), (2, "a", 25.0, 1, 1.0), (4, "a", 40.0, 1, 1.0)], "lists", names)
    found, same = changes(before, after)
    assert same == 1
    assert [(change.what["bytes"], change.ratio) for change in found] == [(1, None), (2, 1.25), (4, None)]
