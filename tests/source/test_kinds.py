"""A new kind of algorithm is one module and one line of the registry."""

from __future__ import annotations

import pytest

import ahbm
from ahbm.config.ccl import CclConfig
from ahbm.config.kinds import KINDS
from ahbm.errors import ConfigError

MINE = {"algorithms.mine.toy": "ring_allreduce"}


@pytest.fixture(autouse=True)
def with_toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "toy", "support.toy")


def test_a_toy_kind_runs_like_any_other() -> None:
    report = ahbm.run("all_reduce", "mine", bytes_per_rank=4096, overrides=MINE, check="all")
    assert report.wrong == 0 and report.algorithm == "mine"
    same = ahbm.run("all_reduce", "ring_allreduce", bytes_per_rank=4096, overrides={"n_slots": 7})
    assert report.timeline_hash == same.timeline_hash


def test_its_keys_and_defaults_are_its_own() -> None:
    settings = CclConfig.load(overrides={**MINE, "algorithms.mine.turns": 3}).settings("mine")
    assert (settings.kind, settings.options, settings.queues.n_slots) == ("toy", ("ring_allreduce", 3), 7)
    for key, told in (("instances", "instances are for plans"), ("turns", "must be an integer"), ("trns", "turns")):
        with pytest.raises(ConfigError, match=told):
            CclConfig.load(overrides={**MINE, f"algorithms.mine.{key}": 0 if key == "turns" else 2})
    with pytest.raises(ConfigError, match="turns are for toys"):
        CclConfig.load(overrides={"algorithms.other.module": "ring_allreduce", "algorithms.other.turns": 2})
    with pytest.raises(ConfigError, match="a module and a toy"):
        CclConfig.load(overrides={**MINE, "algorithms.mine.module": "ring_allreduce"})
    with pytest.raises(ConfigError, match="no module, plan, dsl, synth, toy"):
        CclConfig.load(overrides={"algorithms.nothing.n_slots": 2})
