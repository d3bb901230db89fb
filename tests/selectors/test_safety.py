"""Failing and slow selectors, agreed updates, observations, and what a library would do with mixed choices."""

from __future__ import annotations

import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ahbm
import ahbm.distributed as dist
from ahbm.base.request import Request
from ahbm.core.choice import Choice
from ahbm.core.emulator import Emulator
from ahbm.errors import ConfigError, DeadlockError, RankError, SelectorWarning, UnsupportedError
from ahbm.selectors import asking
from ahbm.selectors.mixing import mixed
from ahbm.selectors.patience import TooSlow, within
from ahbm.selectors.protocol import BaseSelector, Call, CostTable
from ahbm.selectors.shortlist import Shortlist
from ahbm.selectors.static import Static

RING, TREE = "ring_allreduce", "tree_allreduce"
RANKS = {"system.sips.count": 3}


def reduced(group: Any = None) -> None:
    dist.all_reduce(np.ones(256, np.float16), group=group)


def algorithms() -> list[str]:
    return [call.algorithm for call in dist.stats()]


def test_a_slow_selector_on_one_rank_gives_the_default_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "PATIENCE_S", 0.2)

    class Sleeps(BaseSelector):
        def __init__(self, rank: int) -> None:
            self.rank = rank

        def get_coll_info(self, call: Call, table: CostTable) -> str:
            while self.rank == 2 and call.number == 1:
                time.sleep(0.01)
            return RING

    def worker(rank: int) -> list[tuple[str, str]]:
        dist.init_process_group(selector=Sleeps(rank))
        for _ in range(3):
            reduced()
        return [(call.algorithm, call.rule) for call in dist.stats()]

    with pytest.warns(SelectorWarning, match=r"call 2 of WORLD\): on rank 2 the selector Sleeps takes more than 0.2 s"):
        found = ahbm.spawn(worker, overrides=RANKS)
    default = ("lrab_hierarchical_allreduce", "default")
    assert found == [[(RING, "selector"), default, (RING, "selector")]] * 3


def test_nothing_is_raised_in_a_thread_after_its_function_has_ended() -> None:
    with pytest.raises(TooSlow):
        within(0.05, lambda: [time.sleep(0.005) for _ in range(10**6)])
    for _ in range(3):
        assert within(0.05, lambda: 7) == 7
        time.sleep(0.1)


def test_the_default_of_a_failure_is_not_the_selector_of_the_configuration(here: Path) -> None:
    (here / "mine.py").write_text("def selector(algorithms, request):\n    raise KeyError('lost')\n", encoding="utf-8")
    (here / "ccl.yaml").write_text("defaults: {selector: mine.py, algorithm: tree_allreduce}\n", encoding="utf-8")

    def worker() -> list[str]:
        dist.init_process_group()
        reduced()
        return algorithms()

    with pytest.warns(SelectorWarning, match="on ranks 0-2 the selector selector raised KeyError: 'lost'"):
        assert ahbm.spawn(worker, overrides=RANKS) == [[TREE]] * 3
    with pytest.warns(SelectorWarning, match="AHBM-X112 all_reduce: the selector selector raised KeyError"):
        assert ahbm.run("all_reduce", bytes_per_rank=512, overrides=RANKS, data=False).algorithm == TREE


def test_an_update_takes_effect_at_the_agreed_call_of_each_group() -> None:
    def worker(rank: int) -> list[tuple[str, str]]:
        dist.init_process_group(selector=Static({"all_reduce": RING}))
        pair = dist.new_group([0, 1])
        reduced()
        dist.set_selector(Static({"all_reduce": TREE}), at=2)
        for _ in range(3):
            reduced()
            if rank < 2:
                reduced(pair)
        dist.set_selector(None)
        reduced()
        with pytest.raises(ConfigError, match=r"AHBM-C129 at must be a call to come.*: 5 or later"):
            dist.set_selector(Static({}), at=4)
        return [(call.group, call.algorithm) for call in dist.stats()]

    found = ahbm.spawn(worker, overrides=RANKS)[0]
    default = "lrab_hierarchical_allreduce"
    assert [name for group, name in found if group == "WORLD"] == [RING, RING, TREE, TREE, default]
    assert [name for group, name in found if group == "group 1"] == [RING, RING, TREE]


def test_a_selector_observes_the_calls_that_its_rank_has_waited_for() -> None:
    class Observer(BaseSelector):
        def __init__(self) -> None:
            self.seen: list[tuple[int, str, float]] = []

        def get_coll_info(self, call: Call, table: CostTable) -> str:
            LOG.append((call.number, list(self.seen)))
            return RING

        def observe(self, call: Call, choice: Choice, time_ns: float) -> None:
            self.seen.append((call.number, choice.name, time_ns))

    LOG: list[tuple[int, list[tuple[int, str, float]]]] = []

    def worker() -> None:
        dist.init_process_group(selector=Observer())
        reduced()
        work = dist.all_reduce(np.ones(256, np.float16), async_op=True)
        reduced()
        assert work is not None
        work.wait()
        reduced()

    ahbm.spawn(worker, overrides=RANKS)
    took = ahbm.run("all_reduce", RING, bytes_per_rank=512, overrides=RANKS, data=False).latency_ns
    told = {number: seen for number, seen in LOG}
    assert [seen for number, seen in LOG if number == 3] == [told[3]] * 3
    # The second call was not waited for before the third was chosen for, nor before that ended.
    assert told[1] == told[2] == [(0, RING, took)]
    assert told[3] == [(0, RING, took), (1, RING, took), (2, RING, took)]


def test_selectors_are_begun_and_ended_once_for_each_group_and_rank() -> None:
    events: list[str] = []

    class Life(BaseSelector):
        def init(self, comm: Any) -> None:
            events.append(f"init {comm.group} of {comm.ranks}")

        def finalize(self) -> None:
            events.append("finalize")

    def worker() -> None:
        dist.init_process_group(selector=Life())
        pair = dist.new_group([0, 1])
        for group in (None, pair, pair, None):
            if group is None or dist.get_rank() < 2:
                reduced(group)
        dist.destroy_process_group()

    ahbm.spawn(worker, overrides=RANKS)
    assert sorted(events) == ["finalize"] * 5 + ["init WORLD of 3"] * 3 + ["init group 1 of 2"] * 2


def test_mixed_choices_wait_for_each_other_as_they_would_in_a_library() -> None:
    emulator = Emulator.load("npu_ring_8")
    request = Request("all_reduce", range(8), 64, "f16")
    found = mixed(emulator, request, {rank: TREE if rank == 3 else RING for rank in range(8)})
    assert found.hangs and isinstance(found.error, DeadlockError) and found.error.code == "AHBM-D101"
    assert "sip 3" in str(found) and "waits in recv" in str(found) and "[ring_allreduce.py:" in str(found)
    alike = mixed(emulator, request, dict.fromkeys(range(8), RING))
    assert not alike.hangs and alike.latency_ns == emulator.compile(request, RING).latency_ps / 1000


def test_every_pair_of_kernels_ends_or_is_told_why_not() -> None:
    emulator = Emulator.load("npu_ring_8")
    names = [name for name in emulator.algorithms("all_reduce") if name not in emulator.refusals(request := REQUEST)]
    for one in names:
        for other in names:
            found = mixed(emulator, request, {rank: one if rank % 2 else other for rank in range(8)})
            assert (found.error is None) == (found.latency_ns is not None)
            assert one != other or found.error is None


REQUEST = Request("all_reduce", range(8), 64, "f16")


def test_a_plan_cannot_be_mixed(here: Path) -> None:
    (here / "ccl.yaml").write_text("algorithms: {made: {synth: {method: greedy}}}\n", encoding="utf-8")
    with pytest.raises(UnsupportedError, match="AHBM-U233 made is a plan for all ranks"):
        mixed(Emulator.load("npu_ring_8"), REQUEST, {rank: "made" if rank else RING for rank in range(8)})
    with pytest.raises(ConfigError, match=r"AHBM-C129.*none for \[1, 2"):
        mixed(Emulator.load("npu_ring_8"), REQUEST, {0: RING})


def test_a_selector_that_answers_nonsense_is_refused_and_not_passed_over() -> None:
    def worker() -> None:
        dist.init_process_group(selector=Static({"all_reduce": "ring_alreduce"}))
        reduced()

    with pytest.raises(RankError, match="AHBM-C180"):
        ahbm.spawn(worker, overrides=RANKS)


def test_a_selector_that_cannot_be_copied_for_every_rank_is_refused() -> None:
    class Locked(BaseSelector):
        def __init__(self) -> None:
            self.lock = threading.Lock()

    with pytest.raises(RankError, match=r"AHBM-C129.*copy.deepcopy copies \(cannot pickle '_thread.lock' object\)"):
        ahbm.spawn(lambda: (dist.init_process_group(selector=Locked()), reduced()), overrides=RANKS)


def test_a_shortlist_decides_alike_on_all_ranks_and_explains_itself() -> None:
    def worker() -> list[str]:
        dist.init_process_group(selector=Shortlist(k=2))
        reduced()
        return algorithms()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ahbm.spawn(worker, overrides=RANKS)
    assert found == [found[0]] * 3
