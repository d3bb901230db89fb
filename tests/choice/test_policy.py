"""Who chooses: named choosers in order, and the same answer for a call alone, among ranks and in a job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ahbm
from ahbm.base.knobs import KNOBS, Knobs, must_be
from ahbm.base.quickest import quickest
from ahbm.base.request import Request
from ahbm.choice import configured
from ahbm.choice.configured import Configured
from ahbm.choice.policy import Given, Policy, asked
from ahbm.core.choice import ARGUMENT, CONFIGURED, DEFAULT, SELECTOR, Choice
from ahbm.core.compiled import Cost
from ahbm.core.emulator import Emulator
from ahbm.job.replay import replay
from ahbm.job.transformer import Transformer
from ahbm.ranks.setup import Setup

RING, TREE = "ring_allreduce", "tree_allreduce"
MACHINES = ("npu_ring_8", "npu_switch_8", "b200_2_nodes", None)


def request(count: int = 256, ranks: int = 8, collective: str = "all_reduce") -> Request:
    return Request(collective, range(ranks), count)


def test_the_first_that_answers_chooses() -> None:
    emulator = Emulator.load("npu_ring_8", overrides={"collectives.all_reduce": RING})
    selects = asked(emulator, lambda algorithms, request: TREE if request.nbytes < 1024 else None)
    policy = Policy(emulator, [*selects, Given(emulator, "ring_all_gather")])
    chosen = [policy.choose(one) for one in (request(64), request(4096), request(64, collective="all_gather"))]
    assert [(one.rule, one.name) for one in chosen] == [
        (SELECTOR, TREE),
        (CONFIGURED, RING),
        (ARGUMENT, "ring_all_gather"),
    ]
    assert "the selector" in chosen[0].notes[0] and chosen[1].notes == ()
    assert [chooser.name for chooser in policy.choosers][1:] == ["algorithm=", "ccl.yaml"]


def test_what_is_asked_for_performs_what_it_can_or_insists() -> None:
    emulator = Emulator.load("npu_ring_8")
    given, insists = (Given(emulator, "ring_all_gather", insists=insists) for insists in (False, True))
    assert given.choose(request()) is None and given.performed == set()
    assert insists.choose(request()) == Choice(ARGUMENT, "ring_all_gather")
    assert given.choose(request(collective="all_gather")) is not None and given.performed == {"all_gather"}


@pytest.mark.parametrize("machine", MACHINES)
def test_of_several_the_quickest_alone_runs(machine: str | None) -> None:
    emulator = Emulator.load(machine, overrides={"system.sips.count": 4} if machine is None else None)
    asked = request(1024, emulator.machine.sips)
    names = configured.candidates(emulator, "all_reduce", asked.nbytes, asked.world_size)
    chosen = Configured(emulator).choose(asked)
    costs = {name: emulator.cost(asked, name) for name in names}
    times = {name: cost.ps for name, cost in costs.items() if isinstance(cost, Cost)}
    assert chosen.rule == DEFAULT and times[chosen.name] == min(times.values())
    assert chosen.name == quickest(times)


@pytest.mark.parametrize("machine", ["npu_ring_8", "npu_switch_8", "b200_2_nodes"])
@pytest.mark.parametrize("zero", [0, 3])
def test_a_call_of_a_job_gets_what_the_same_call_gets_alone(machine: str, zero: int) -> None:
    emulator = Emulator.load(machine)
    ranks = emulator.machine.sips
    step = Transformer(layers=2, hidden=256, sequence=64, vocabulary=512, micro_batches=1, dp=ranks, zero=zero)
    report = replay(step.workload(), "step", Setup(machine))
    calls = {(call.collective, call.bytes): call for call in report.calls}
    assert len(calls) > zero
    for (collective, size), call in calls.items():
        alone = ahbm.run(
            collective, emulator=emulator, bytes_per_rank=size, dtype=call.dtype, op=call.op or "sum", data=False
        )
        assert call.ranks == alone.ranks == ranks
        assert (call.algorithm, call.timeline_hash) == (alone.algorithm, int(alone.timeline_hash, 16))


def test_groups_that_the_machine_cannot_tell_apart_are_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    emulator, times = Emulator.load("npu_switch_8"), list[Request]()
    found = configured.best

    def best(emulator: Emulator, request: Request, names: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        times.append(request)
        return found(emulator, request, names)

    monkeypatch.setattr(configured, "best", best)
    chooser = Configured(emulator)
    names = {chooser.choose(replace(request(256, 2), ranks=ranks)).name for ranks in [(0, 1), (2, 3), (4, 7), (0, 1)]}
    assert len(names) == 1 and len(times) == 1


def test_the_policy_of_an_emulator_is_kept() -> None:
    emulator = Emulator.load("npu_ring_8")
    assert Policy.of(emulator) is Policy.of(emulator)
    assert Policy.of(emulator) is not Policy.of(Emulator.load("npu_ring_8"))


def test_selectors_of_the_configuration_can_be_left_out(tmp_path: Path) -> None:
    ccl = tmp_path / "ccl.yaml"
    ccl.write_text("collectives: {all_reduce: [{selector: nccl}]}\n", encoding="utf-8")
    emulator = Emulator.load("npu_ring_8", ccl)
    assert Policy(emulator).choose(request()).rule == SELECTOR
    assert Policy(emulator, selectors=False).choose(request()).rule == DEFAULT


@given(st.dictionaries(st.text(max_size=3), st.integers(-5, 5)))
@settings(max_examples=50, deadline=None)
def test_the_quickest_is_the_first_of_the_least(costs: dict[str, int]) -> None:
    best = quickest(costs)
    assert best == next((name for name in costs if costs[name] == min(costs.values())), None)


def test_knobs_are_told_and_kept_in_range() -> None:
    knobs = Knobs(protocol="ll", channels=4)
    assert knobs.knobs == {"protocol": "ll", "channels": 4} and knobs.text == "protocol ll, channels 4"
    assert Choice(SELECTOR, RING, channels=4, protocol="ll").alone == knobs
    assert [must_be(name, value) is None for name, value in zip(KNOBS, ("ll", 4, 0, True), strict=True)] == [
        True,
        True,
        False,
        False,
    ]
