"""Scores are what they are computed from, and the same again; learners learn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gymnasium")

from ahbm.choose import baselines, policies
from ahbm.choose.catalogue import Catalogue
from ahbm.choose.environment import Observation, Select
from ahbm.choose.episodes import Mix
from ahbm.choose.outcomes import Live
from ahbm.choose.policies import Policy
from ahbm.choose.splits import Split, split_of
from ahbm.config.topology import load_machine
from ahbm.errors import AhbmError
from ahbm.selectors.protocol import Selector
from ahbm.selectors.ranges import Range, Ranges

CALLS = 60
EXPECTED = {
    "random": (-1.258526, 2.927003),
    "static": (-1.019345, 2.095793),
    "nccl": (-2.281336, 8.293905),
    "ladder": (-0.545209, 0.713072),
    "ucb": (-0.942438, 1.906247),
    "thompson": (-0.957847, 1.924254),
}
"""Reward and mean regret on `small`."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows")


@pytest.fixture(scope="module")
def small() -> Split:
    return split_of("networks").small(2, 4)


def score(name: str, split: Split, store: Path, **given: Any) -> baselines.Score:
    return baselines.score(name, split, **{"calls": CALLS, "store": store, **given})


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_scores_are_reproduced(name: str, small: Split, store: Path) -> None:
    found = score(name, small, store)
    assert (found.reward, found.regret.mean) == pytest.approx(EXPECTED[name], rel=1e-3)


class Best(Policy):
    """Knows the answer."""

    def act(self, env: Select, observation: Observation) -> int:
        return env.outcome().best


class Worst(Policy):
    def act(self, env: Select, observation: Observation) -> int:
        return env.outcome().slowest


@pytest.mark.slow
def test_a_policy_that_knows_has_no_regret(small: Split, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(baselines.BASELINES, "best", Best)
    monkeypatch.setitem(baselines.BASELINES, "worst", Worst)
    best, worst = score("best", small, store), score("worst", small, store)
    assert best.regret.mean == best.regret.p95 == 0 and best.regret.within_1_percent == 1
    assert worst.regret.mean > score("random", small, store).regret.mean > 0
    assert worst.reward < score("random", small, store).reward < best.reward < 0
    assert best.regret.points == CALLS * len(small.test.machines)


@pytest.mark.slow
def test_what_was_learned_is_known(store: Path) -> None:
    """On machines and sizes that were learned, a ladder is an oracle."""
    small = split_of("sizes").small(2, 4)
    known = Split("known", small.train, small.train)
    assert score("ladder", known, store).regret.mean == 0
    assert score("ladder", small, store).regret.mean > 0


@pytest.mark.slow
def test_bandits_learn_in_their_episode(small: Split, store: Path) -> None:
    for name in ("ucb", "thompson"):
        short, long = score(name, small, store), score(name, small, store, calls=40 * CALLS)
        assert long.regret.mean < short.regret.mean / 2


@pytest.mark.slow
def test_jobs_have_scores(store: Path) -> None:
    split = split_of("jobs").small(1)
    for name in ("static", "ladder"):
        found = score(name, split, store)
        assert found.regret.points and found.regret.refusals == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tree", "shortlist-3"])
def test_learners_beat_chance_and_say_what_they_ran(name: str, store: Path) -> None:
    pytest.importorskip("sklearn")
    split = split_of("parameters").small(3, 3)
    found = score(name, split, store)
    assert found == score(name, split, store)
    assert found.regret.mean < score("random", split, store).regret.mean / 2
    points = len(split.test.machines) * len(split.test.sizes)
    assert found.runs == (3 * points if name == "shortlist-3" else 0)


def test_ppo_is_its_seed(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sb3_contrib")
    from ahbm.choose.ppo import MaskablePPO

    monkeypatch.setitem(baselines.BASELINES, "ppo", lambda seed: MaskablePPO(seed, steps=2048))
    split = split_of("networks").small(1, 2)
    assert score("ppo", split, store) == score("ppo", split, store)


def test_a_missing_package_is_named(small: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sb3_contrib", None)
    monkeypatch.setitem(__import__("sys").modules, "sklearn.tree", None)
    for name in ("ppo", "tree"):
        with pytest.raises(AhbmError, match="AHBM-U145"):
            score(name, small, None)  # type: ignore[arg-type]


def test_the_command_prints_a_score(small: Split, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["static", "--split", "networks", "--small", "--store", str(store)]
    assert baselines.main([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["split"] == "networks-small-1" and told["regret"]["mean"] > 0
    assert baselines.main(arguments) == 0
    assert capsys.readouterr().out.startswith("static on networks-small-1: reward -")
    assert baselines.main(["static", "--seed", "-1"]) == 3 and "AHBM-C129" in capsys.readouterr().err


def test_static_is_the_usual_rule(small: Split, store: Path) -> None:
    env = Select(small.test.outcomes(small.catalogue, store))
    observation, _ = env.reset(seed=0)
    rule = policies.Static()
    rule.begin(0)
    for _ in range(20):
        request, entry = env.asked().request, env.outcomes.catalogue[rule.act(env, observation)]
        assert entry.name == ("recursive_doubling_allreduce" if request.nbytes <= 1 << 14 else "ring_allreduce")
        observation = env.step(0)[0]


def test_a_selector_is_told_the_nodes_of_the_machine_that_it_chooses_on() -> None:
    class ByNodes(policies.Selecting):
        def _selector(self, env: Select) -> Selector:
            return Ranges([Range("all_reduce", "tree_allreduce", min_nodes=2), Range("all_reduce", "ring_allreduce")])

    catalogue = Catalogue.of("all_reduce", ["ring_allreduce", "tree_allreduce"])
    nodes = {"system.sips.topology": "nodes", "system.sips.count": 4, "system.sips.nodes.size": 2}
    for machine, name in ("npu_ring_8", "ring_allreduce"), (load_machine(None, nodes), "tree_allreduce"):
        env = Select(Live(catalogue, machine), mix=Mix([1 << 12]))
        observation, _ = env.reset(seed=0)
        policy = ByNodes()
        policy.begin(0)
        assert catalogue[policy.act(env, observation)].name == name
