"""Searches find what sweeps find, and run less; costs are arithmetic, and say what to widen."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ahbm
from ahbm.errors import ConfigError
from ahbm.sweeps import answers, stored
from ahbm.sweeps.advice import widen
from ahbm.sweeps.search import Search, optimize
from ahbm.sweeps.space import Space
from ahbm.table.expressions import Expression
from ahbm.table.rows import Rows
from ahbm.table.store import Store

pytestmark = pytest.mark.usefixtures("here")

GBS, LATENCY = "system.sips.link.bandwidth_gbs", "system.sips.link.latency_ns"


def drawn(seed: int) -> Space:
    chance = random.Random(seed)
    return Space(
        collectives=["all_reduce"],
        algorithms=chance.sample(["ring_allreduce", "tree_allreduce", "synth:ring", "synth:direct"], 3),
        topologies=chance.sample(["npu_ring_8", "npu_switch_8", "npu_fully_connected_8", "torus_2d"], 2),
        overrides={
            GBS: chance.sample([10, 25, 50, 100, 200, 400, 800], 3),
            LATENCY: chance.sample([10, 100, 500], 2),
            "system.sips.count": 4,
        },
        sizes=chance.sample(["1K", "32K", "256K", "1M", "4M"], 2),
        data=False,
    )


def fast(table: Rows) -> list[dict[str, Any]]:
    return sorted(table.take(answers.best(table)), key=lambda row: row["bytes"])


@pytest.mark.slow
def test_what_the_bounds_spare_is_never_the_best_on_twenty_spaces() -> None:
    spared = cases = 0
    for seed in range(20):
        space = drawn(seed)
        table, search = optimize(space)
        assert sorted(table, key=lambda row: row["bytes"]) == fast(ahbm.sweep(space)), seed
        spared, cases = spared + search.spared, cases + len(search.trials)
    assert spared > cases / 10


def test_a_search_is_asked_and_told_and_goes_on_from_a_store() -> None:
    space = drawn(3)
    table, done = optimize(space, store="rows")
    search = Search(space)
    while (trial := search.ask()) is not None:
        report = (
            ahbm.run(
                "all_reduce",
                trial.case.algorithm,
                emulator=trial.case.sweep.emulator(),
                bytes_per_rank=trial.case.nbytes,
            )
            if trial.case.algorithm
            else None
        )
        search.tell(trial, report.latency_ns if report else None)
    assert {asked: best[0] for asked, best in search.best.items()} == {
        asked: best[0] for asked, best in done.best.items()
    }
    again, _ = optimize(space, store="rows")
    assert again == table and len(Store("rows").rows()) == done.measured
    ahbm.sweep(space, store="rows")
    assert len(Store("rows").rows()) == len(done.trials)


@pytest.mark.parametrize("how", [{"halving": True}, {"trials": 5}])
def test_other_searches_run_less_and_find_what_they_ran(how: dict[str, Any]) -> None:
    if "trials" in how:
        pytest.importorskip("optuna")
    space = drawn(5)
    whole = {row["bytes"]: row for row in fast(ahbm.sweep(space))}
    table, search = optimize(space, **how)
    assert 0 < search.measured < len(search.trials)
    for row in table:
        assert row["latency_ns"] >= whole[row["bytes"]]["latency_ns"]
    assert optimize(space, **how)[0] == table


COST = {"dollars": f"links * (20 + {GBS} * 2) + max(600 - {LATENCY}, 0)", "per": "dollars"}
PRICED = Space(
    algorithms=["ring_allreduce", "tree_allreduce"],
    topologies=["npu_ring_8", "npu_switch_8"],
    overrides={GBS: [50, 55, 100], LATENCY: [500, 450]},
    sizes=["1K", "1M"],
    data=False,
    cost={"dollars": COST["dollars"]},
)


def test_a_cost_is_a_column_in_tables_and_stores_and_changes_no_row() -> None:
    table = ahbm.sweep(PRICED, store="rows")
    assert table.columns[-3:] == ("dollars", "code", "message")
    wanted = [16 * (20 + 2 * row[GBS]) + 600 - row[LATENCY] for row in table]
    assert table.column("dollars") == wanted == Store("rows").rows().column("dollars")
    from dataclasses import replace

    other = ahbm.sweep(replace(PRICED, cost={"euros": "links"}), store="rows")
    assert set(other.column("euros")) == {16.0} and len(Store("rows").parts()) == len(Store("rows").parts())
    assert "euros" in Store("rows").rows().columns and "dollars" not in Store("rows").rows().columns
    assert {effect.key for effect in stored.sensitivity(Store("rows"))} == {"topology", "algorithm", GBS, LATENCY}


@pytest.mark.parametrize(
    "text", ["__import__('os')", "links.__class__()", "links if 1 else 2", "'a'", "True", "min()", "sqrt(1, 2)", "("]
)
def test_what_is_no_arithmetic_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="AHBM-C185 cost: x"):
        Space(cost={"x": text})


@pytest.mark.parametrize("cost", [{"links": "1"}, {"x": "algorithm"}, {"x": GBS}, {"x": "nosuch + 1"}])
def test_a_cost_of_what_is_no_column_is_refused(cost: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="AHBM-C185 cost"):
        Space(cost=cost)


NUMBERS = st.sampled_from(["1", "2.5", "0", "links", "n", "3"])
SUMS = st.recursive(
    NUMBERS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
        st.tuples(st.sampled_from(["abs", "ceil", "floor", "sqrt", "-"]), inner).map(lambda t: f"{t[0]}({t[1]})"),
    ),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(SUMS)
def test_an_expression_means_the_same_here_and_in_the_store(text: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    one = Expression.of("x", text)
    rows = [{"links": 3, "n": None}, {"links": 0, "n": 7}, {"links": -2, "n": 1}]
    values = ", ".join(f"({row['links']}, {'null' if row['n'] is None else row['n']})" for row in rows)
    sql = one.sql(lambda name: f'"{name}"')
    found = duckdb.sql(f"select {sql} from (values {values}) as t(links, n)").fetchall()
    assert [line[0] for line in found] == pytest.approx([one.value(row) for row in rows])


def test_what_to_widen_is_what_a_search_of_all_pairs_finds() -> None:
    table = ahbm.sweep(PRICED)
    advice = widen(table, "dollars", 0.1)
    assert advice.stands == {"topology": "ring_1d", GBS: 50, LATENCY: 500} and advice.cost == 16 * 120 + 100
    assert {(change.key, change.after) for change in advice.changes} == {(GBS, 55), (LATENCY, 450)}
    assert [change.factor for change in advice.changes] == sorted(change.factor for change in advice.changes)
    assert advice.dearer == 1
    for change in advice.changes:
        assert change.cost[0] < change.cost[1] <= change.cost[0] * 1.1
        for what, before, after, _, _ in change.times:

            def least(design: dict[str, Any], nbytes: int = what["bytes"]) -> float:
                rows = [row for row in table if row["bytes"] == nbytes and row["topology"] == "ring_1d"]
                return min(row["latency_ns"] for row in rows if all(row[k] == v for k, v in design.items()))

            stands = {GBS: 50, LATENCY: 500}
            assert (before, after) == (least(stands), least({**stands, change.key: change.after}))
    with pytest.raises(ConfigError, match="AHBM-C187"):
        widen(table, "latency_ns", 0.1)


def test_the_dimension_of_a_torus_that_is_waited_for_is_the_one_to_widen() -> None:
    own = [f"system.sips.links.{name}.bandwidth_gbs" for name in "wh"]
    overrides: dict[str, Any] = {"system.sips.w": 8, "system.sips.h": 2, **{key: [50, 100] for key in own}}
    table = ahbm.sweep(
        {
            **{"collectives": "all_to_all", "algorithms": "pairwise_all_to_all", "topologies": "npu_torus_4x4"},
            **{"overrides": overrides, "sizes": "1M", "data": False, "cost": {"dollars": " + ".join(own)}},
        }
    )
    first, second = widen(table, "dollars", 0.5).changes
    assert (first.key, second.key) == (own[0], own[1])
    assert first.factor < 0.97 < second.factor < 1
