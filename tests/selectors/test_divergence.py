"""Selectors that rest on values of their own rank are named with that value; those that do not raise no alarm."""

from __future__ import annotations

import json
import random
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ahbm
import ahbm.distributed as dist
from ahbm.base.request import Request
from ahbm.core.choice import SELECTOR, Choice
from ahbm.errors import SelectionError
from ahbm.selectors.nccl_model import NcclModel
from ahbm.selectors.protocol import AnySelector, BaseSelector, Call, CostTable
from ahbm.selectors.ranges import Range, Ranges
from ahbm.selectors.shortlist import Shortlist
from ahbm.selectors.static import Static
from ahbm.selectors.tree import Tree
from ahbm.source.algorithm import Algorithm

RING, TREE = "ring_allreduce", "tree_allreduce"
Algorithms = Mapping[str, Algorithm]
RANKS = {"system.sips.count": 3}


def reduced(elements: int = 512) -> None:
    dist.all_reduce(np.ones(elements, np.float16))


def diverging(worker: Callable[[int], None]) -> SelectionError:
    with pytest.raises(SelectionError) as caught:
        ahbm.spawn(worker, overrides=RANKS)
    error = caught.value
    assert error.code == "AHBM-X111" and error.values[0] != error.values[1]
    for value, rank in zip(error.values, error.ranks, strict=True):
        assert f"{error.feature} is" in error.message and f"{value} on rank {rank}" in error.message
    return error


def with_selector(make: Callable[[int], AnySelector]) -> Callable[[int], None]:
    def worker(rank: int) -> None:
        dist.init_process_group(selector=make(rank))
        reduced()

    return worker


def test_tables_of_different_files(tmp_path: Path) -> None:
    for rank, border in enumerate((1024, 1024, 512)):
        rules = [{"collective": "all_reduce", "algorithm": TREE, "max_bytes": border}]
        rules.append({"collective": "all_reduce", "algorithm": RING})
        (tmp_path / f"{rank}.json").write_text(json.dumps({"kind": "ranges", "rules": rules}), encoding="utf-8")
    error = diverging(with_selector(lambda rank: tmp_path / f"{rank}.json"))
    assert (error.feature, error.ranks, dict(error.choices)) == ("table", (0, 2), {0: TREE, 1: TREE, 2: RING})


def test_a_size_of_the_ranks_own_bytes() -> None:
    def by_own_bytes(algorithms: Algorithms, request: Request) -> str | None:
        return "pairwise_all_to_all" if request.nbytes < 100 else None

    def worker(rank: int) -> None:
        dist.init_process_group(selector=by_own_bytes)
        # Rank 2 sends more to itself than to the others.
        splits = [4 + 60 * (rank == other == 2) for other in range(3)]
        x = np.ones(sum(splits), np.float16)
        dist.all_to_all_single(np.empty_like(x), x, splits, splits)

    error = diverging(worker)
    assert (error.feature, error.ranks, error.values) == ("nbytes", (0, 2), ("24", "384"))


def test_a_border_that_was_computed_differently() -> None:
    class Border(BaseSelector):
        def __init__(self, border: float) -> None:
            self.border = border

        def get_coll_info(self, call: Call, table: CostTable) -> str:
            return TREE if call.nbytes / 1024 * 0.3 < self.border else RING

    error = diverging(with_selector(lambda rank: Border(0.3 if rank else 0.1 + 0.2)))
    assert (error.feature, error.values) == ("border", ("0.30000000000000004", "0.3"))


def test_a_clock() -> None:
    seen = deque[int]()

    def by_clock(algorithms: Algorithms, request: Request) -> str:
        now = time.perf_counter_ns()
        seen.append(now)
        return RING if now == seen[0] else TREE

    assert diverging(with_selector(lambda rank: by_clock)).feature == "time.perf_counter_ns()"


def test_the_rank_asked_for_in_the_rule() -> None:
    def by_rank(algorithms: Algorithms, request: Request) -> str:
        return RING if dist.get_rank() == 0 else TREE

    error = diverging(with_selector(lambda rank: by_rank))
    assert (error.feature, error.ranks, error.values) == ("get_rank()", (0, 1), ("0", "1"))


def test_exploration_without_a_common_seed() -> None:
    class Explorer(BaseSelector):
        def __init__(self, seed: int) -> None:
            self.generator = random.Random(seed)

        def get_coll_info(self, call: Call, table: CostTable) -> str:
            return RING if self.generator.random() < 0.5 else TREE

    # The first numbers of the seeds 0 and 1 are 0.84 and 0.13.
    error = diverging(with_selector(lambda rank: Explorer(rank % 2)))
    assert error.feature == "generator" and error.values[0].startswith("digest ")


def test_random_numbers_that_all_ranks_draw_from() -> None:
    def by_chance(algorithms: Algorithms, request: Request) -> str:
        return RING if random.random() < 0.5 else TREE

    random.seed(0)  # 0.84, 0.76, 0.42
    assert diverging(with_selector(lambda rank: by_chance)).feature == "random state"


def test_an_update_that_comes_one_call_late() -> None:
    def worker(rank: int) -> None:
        dist.init_process_group(selector=Static({"all_reduce": RING}))
        for number in range(4):
            if number == 1:
                dist.set_selector(Static({"all_reduce": TREE}), at=3 if rank == 1 else 2)
            reduced()

    error = diverging(worker)
    assert (error.feature, error.ranks, error.values) == ("update", (0, 1), ("2", "1"))
    assert "all_reduce (call 3 of WORLD)" in error.message


def test_a_rank_without_the_selector() -> None:
    error = diverging(with_selector(lambda rank: None if rank == 2 else Static({"all_reduce": RING})))
    assert (error.feature, error.ranks, error.values) == ("selector", (0, 2), ("static", "nothing"))


def test_what_one_rank_has_counted_for_itself() -> None:
    class Bandit(BaseSelector):
        def __init__(self) -> None:
            self.tried = 0

        def get_coll_info(self, call: Call, table: CostTable) -> str:
            self.tried += 1
            return RING if self.tried % 2 else TREE

    def worker(rank: int) -> None:
        own = Bandit()
        own.tried = rank // 2
        dist.init_process_group(selector=own)
        reduced()

    error = diverging(worker)
    assert (error.feature, error.ranks, error.values) == ("tried", (0, 2), ("0", "1"))


def test_a_knob_alone() -> None:
    def made(rank: int) -> AnySelector:
        channels = 4 if rank else 2
        return lambda algorithms, request: Choice(SELECTOR, RING, channels=channels)

    error = diverging(with_selector(made))
    assert (error.feature, error.values) == ("channels", ("2", "4"))
    assert dict(error.choices)[1] == f"{RING}, channels 4"


def test_the_thread_that_a_rank_is() -> None:
    seen = deque[int]()

    def by_thread(algorithms: Algorithms, request: Request) -> str:
        seen.append(threading.get_ident())
        return RING if seen[-1] == seen[0] else TREE

    assert diverging(with_selector(lambda rank: by_thread)).feature == "threading.get_ident()"


class Observer(BaseSelector):
    """Tries each once, then keeps what was quickest."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}

    def get_coll_info(self, call: Call, table: CostTable) -> str:
        untried = [name for name in (RING, TREE) if name not in self.times]
        return untried[0] if untried else min(self.times, key=lambda name: self.times[name])

    def observe(self, call: Call, choice: Choice, time_ns: float) -> None:
        self.times[choice.name] = time_ns


class Seeded(BaseSelector):
    def __init__(self, seed: int) -> None:
        self.generator = random.Random(seed)

    def get_coll_info(self, call: Call, table: CostTable) -> str:
        return self.generator.choice([RING, TREE])


class Turns(BaseSelector):
    def get_coll_info(self, call: Call, table: CostTable) -> str:
        return (RING, TREE)[call.number % 2]


class Costs(BaseSelector):
    """Writes costs, as NCCL's tuners do, and leaves the choice to the table."""

    def get_coll_info(self, call: Call, table: CostTable) -> None:
        if call.collective == "all_reduce":
            table.us[table.algorithms.index(TREE)] = 0.0


class Logs(BaseSelector):
    """Reads what differs from rank to rank, and chooses by the size."""

    def __init__(self, rank: int) -> None:
        self.rank, self.last = rank, 0.0

    def get_coll_info(self, call: Call, table: CostTable) -> str:
        self.last = time.perf_counter()
        return RING if call.nbytes > 1024 else TREE


def by_size(algorithms: Algorithms, request: Request) -> str:
    return RING if request.nbytes > 1024 else TREE


def stump() -> Tree:
    arrays: dict[str, Any] = {"feature": [0, -2, -2], "threshold": [10.5, 0, 0], "value": [0, 0, 1]}
    return Tree(["log2_bytes"], [TREE, RING], **arrays, left=[1, -1, -1], right=[2, -1, -1])


LADDER = [Range("all_reduce", TREE, max_bytes=1024), Range("all_reduce", RING)]
CLEAN: dict[str, Callable[[int], AnySelector]] = {
    "none": lambda rank: None,
    "function": lambda rank: by_size,
    "lambda": lambda rank: lambda algorithms, request: RING,
    "an algorithm itself": lambda rank: lambda algorithms, request: algorithms[RING],
    "answers nothing": lambda rank: lambda algorithms, request: None,
    "callable object": lambda rank: type("Callable", (), {"__call__": lambda self, a, r: by_size(a, r)})(),
    "static": lambda rank: Static({"all_reduce": RING}),
    "static of another collective": lambda rank: Static({"all_gather": "ring_all_gather"}),
    "nccl": lambda rank: "nccl",
    "nccl with constants": lambda rank: NcclModel({"generation": "ampere", "bus_gbs": 200.0}),
    "ranges": lambda rank: Ranges(LADDER),
    "ranges with knobs": lambda rank: Ranges([Range("all_reduce", RING, protocol="simple", channels=2)]),
    "tree": lambda rank: stump(),
    "shortlist": lambda rank: Shortlist(k=2),
    "shortlist by nccl": lambda rank: Shortlist(NcclModel(), 2),
    "observer": lambda rank: Observer(),
    "seeded": lambda rank: Seeded(7),
    "turns": lambda rank: Turns(),
    "costs": lambda rank: Costs(),
    "logs its rank and the clock": lambda rank: Logs(rank),
    "one object for all ranks": lambda rank: SHARED,
}
SHARED = Observer()


@pytest.mark.slow
@pytest.mark.parametrize("name", CLEAN)
def test_clean_selectors_raise_no_alarm(name: str) -> None:
    def worker(rank: int) -> list[tuple[str, str]]:
        dist.init_process_group(selector=CLEAN[name](rank))
        pair = dist.new_group([0, 2])
        for elements in (8, 512, 4096, 8, 512):
            reduced(elements)
            if rank != 1:
                dist.all_reduce(np.ones(elements, np.float16), group=pair)
        dist.set_selector(Static({"all_reduce": RING}), at=6)
        reduced()
        reduced()
        return [(call.algorithm, call.rule) for call in dist.stats() if call.group == "WORLD"]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, *others = ahbm.spawn(worker, overrides=RANKS)
    assert others == [first] * 2 and first[-1] == (RING, "selector")


def test_there_are_twenty_clean_selectors_and_ten_planted_ones() -> None:
    planted = [name for name, value in globals().items() if name.startswith("test_") and "diverging" in names(value)]
    assert len(CLEAN) >= 20 and len(planted) >= 10


def names(function: Any) -> tuple[str, ...]:
    found: tuple[str, ...] = function.__code__.co_names
    return found
