"""Models learned from a table: arrays answer as scikit-learn does, and unseen points are chosen well."""

from __future__ import annotations

import builtins
import json
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import ahbm
from ahbm.choose.catalogue import Catalogue
from ahbm.choose.features import INPUTS, Describer
from ahbm.choose.oracle import Oracle, OracleTable
from ahbm.choose.regret import Point
from ahbm.choose.training import Described, Nodes, train_ranking, train_tree
from ahbm.config.topology import load_machine
from ahbm.errors import AhbmError

# Every process that collects tests would import it, for seconds.
pytestmark = pytest.mark.skipif(find_spec("sklearn") is None, reason="sklearn is not installed")
LINK = "system.sips.link"
ALGORITHMS = ["ring_allreduce", "recursive_doubling_allreduce", "tree_allreduce", "synth:trees", "synth:direct"]
SIZES = [256 << step for step in range(12)]


@pytest.fixture(scope="module")
def table() -> OracleTable:
    machines = [
        load_machine(name, {f"{LINK}.latency_ns": latency, f"{LINK}.bandwidth_gbs": bandwidth})
        for name in ("npu_ring_8", "npu_switch_8", "npu_hypercube_16")
        for latency, bandwidth in ((100, 200), (500, 50), (2000, 25))
    ]
    return Oracle(Catalogue.of("all_reduce", ALGORITHMS), machines, SIZES).table()


@pytest.fixture(scope="module")
def described(table: OracleTable) -> Described:
    return Described(table, Describer(table.catalogue))


def test_the_arrays_answer_as_scikit_learn() -> None:
    random = np.random.default_rng(7)
    inputs, answers = random.normal(size=(400, 3)), random.normal(size=400)
    from sklearn.tree import DecisionTreeRegressor

    learned = DecisionTreeRegressor(random_state=0).fit(inputs, answers)
    nodes = Nodes.of(learned.tree_, lambda values: float(values.ravel()[0]))
    others = random.normal(size=(500, 3))
    assert [nodes.answer(row) for row in others] == list(learned.predict(others))
    assert all(node < child for node, child in enumerate(nodes.left) if child >= 0)


@pytest.mark.slow
def test_a_tree_loses_little_at_unseen_sizes(table: OracleTable, described: Described) -> None:
    seen = {size for size in SIZES[::2]}
    tree = train_tree(table.only(lambda point: point.nbytes in seen), described)

    def choose(point: Point) -> str:
        return tree.choose(described.demand(table.machines[point.machine], point.nbytes))

    assert table.only(lambda point: point.nbytes in seen).regret(choose).mean < 1e-9
    held = table.only(lambda point: point.nbytes not in seen)
    assert held.regret(choose).mean < 0.01 < min(held.regret(lambda _, name=name: name).mean for name in tree.choices)


def test_fewer_leaves_lose_more(table: OracleTable, described: Described) -> None:
    def loss(leaves: int | None) -> tuple[int, float]:
        tree = train_tree(table, described, leaves=leaves)
        regret = table.regret(lambda at: tree.choose(described.demand(table.machines[at.machine], at.nbytes)))
        return tree.leaves, regret.mean

    assert loss(2)[0] == 2 and loss(2)[1] > loss(8)[1] > loss(None)[1]


def test_a_tree_for_one_machine_asks_for_sizes_alone(table: OracleTable, described: Described) -> None:
    tree = train_tree(table, described)
    for name, machine in table.machines.items():
        facts = tree.on(described.demand(machine, 1024))
        assert json.loads(json.dumps(facts)) == facts and facts["collective"] == "all_reduce"
        texts = [one for one in facts["inputs"] if isinstance(one, str)]
        assert texts == ["log2_bytes", "log2_ranks"]
        nodes = Nodes(*(tuple(facts[array]) for array in ("feature", "threshold", "left", "right", "value")))
        assert INPUTS.index("log2_latency_bytes") not in nodes.feature
        for nbytes in SIZES:
            whole = described.demand(machine, nbytes)
            given = [
                value if isinstance(value, float | int) else known
                for value, known in zip(facts["inputs"], whole.inputs(), strict=True)
            ]
            assert facts["choices"][int(nodes.answer(given))] == tree.choose(whole), (name, nbytes)


@pytest.mark.slow
def test_estimates_are_near_on_networks_that_were_not_seen(table: OracleTable, described: Described) -> None:
    ranking = train_ranking(table.only(lambda point: point.topology != "hypercube"), described)
    held = table.only(lambda point: point.topology == "hypercube")
    names = [entry.name for entry in table.catalogue]
    ranked = {
        point: list(ranking.ranked(described, table.machines[point.machine], point.nbytes, names))
        for point in held.points()
    }
    regret = held.regret(lambda point: ranked[point][0])
    assert regret.mean < 0.1 < held.regret(lambda point: "ring_allreduce").mean
    times = held.times
    short = held.regret(lambda at: min(ranked[at][:2], key=lambda name: times(at.machine, at.nbytes)[name]))
    assert short.mean <= regret.mean and short.mean < 0.01


def test_estimates_keep_to_the_floor_and_leave_out_what_does_not_run(described: Described, table: OracleTable) -> None:
    ranking = train_ranking(table, described)
    machine = load_machine("npu_switch_8")
    catalogue = Catalogue.of("all_reduce", ["ring_allreduce", "synth:swing", "synth:greedy"])
    found = ranking.ranked(Describer(catalogue), machine, 1 << 16, [entry.name for entry in catalogue])
    assert set(found) == {"ring_allreduce", "synth_greedy"} and list(found.values()) == sorted(found.values())
    features = Describer(catalogue).describe(machine, 1 << 16, "synth_greedy")
    # It was not learned.
    assert found["synth_greedy"] == features.floor_ns <= found["ring_allreduce"]


def test_equal_tables_give_equal_models(table: OracleTable, described: Described) -> None:
    few = table.only(lambda point: point.topology == "ring_1d")
    assert train_tree(few, described) == train_tree(few, described)
    assert train_ranking(few, described) == train_ranking(few, described)


def test_nothing_to_learn_from_and_no_scikit_learn(table: OracleTable, monkeypatch: pytest.MonkeyPatch) -> None:
    for train in (train_tree, train_ranking):
        with pytest.raises(AhbmError) as told:
            train(table.only(lambda point: False))
        assert told.value.code == "AHBM-C151"

    def missing(name: str, *given: Any, **more: Any) -> Any:
        if name.startswith("sklearn"):
            raise ImportError(name)
        return real(name, *given, **more)

    real = builtins.__import__
    monkeypatch.setattr("ahbm.base.optional.import_module", missing)
    for train in (train_tree, train_ranking):
        with pytest.raises(AhbmError, match="scikit-learn") as told:
            train(table)
        assert told.value.code == "AHBM-U145"
    assert ahbm.run("all_reduce", "ring_allreduce", "npu_ring_8", data=False).latency_ns > 0
