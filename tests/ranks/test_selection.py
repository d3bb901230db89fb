"""Selectors: who chooses the algorithm of a call, and ranks that choose differently."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ahbm
import ahbm.distributed as dist
from ahbm.base.request import Request
from ahbm.errors import ConfigError, DistributedError, RankError, SelectorWarning
from ahbm.selectors.ranges import Range, Ranges
from ahbm.source.algorithm import Algorithm

Algorithms = Mapping[str, Algorithm]
THREE = {"system.sips.count": 3}


def by_size(algorithms: Algorithms, request: Request) -> str | Algorithm | None:
    if request.collective != "all_reduce" or request.nbytes < 64:
        return None
    return "tree_allreduce" if request.nbytes < 1024 else algorithms["ring_allreduce"]


def told(sizes: list[int], **options: Any) -> list[tuple[str, str]]:
    """Algorithm and rule of an all_reduce of each size (elements of f16)."""

    def worker() -> list[tuple[str, str]]:
        dist.init_process_group(**options)
        for size in sizes:
            dist.all_reduce(np.ones(size, np.float16))
        return [(call.algorithm, call.rule) for call in dist.stats()]

    found = ahbm.spawn(worker, overrides=THREE)
    assert found[0] == found[1] == found[2]
    first = found[0]
    assert isinstance(first, list)
    return first


def test_every_call_is_chosen_by_the_selector_else_by_the_configuration(here: Path) -> None:
    own = ("lrab_hierarchical_allreduce", "default")
    assert told([8, 64, 4096, 8], selector=by_size) == [
        own,
        ("tree_allreduce", "selector"),
        ("ring_allreduce", "selector"),
        own,
    ]
    assert told([8], algorithm="ring_allreduce") == [("ring_allreduce", "argument")]
    (here / "ccl.yaml").write_text("collectives: {all_reduce: tree_allreduce}\n", encoding="utf-8")
    assert told([8, 4096], selector=by_size) == [("tree_allreduce", "ccl.yaml"), ("ring_allreduce", "selector")]


def test_a_group_has_its_own_selector_and_spawn_gives_the_default() -> None:
    def worker() -> list[tuple[str, str, str]]:
        dist.init_process_group()
        pair = dist.new_group([0, 2], selector=lambda algorithms, request: "ring_allreduce")
        plain = dist.new_group([0, 2])
        for group in (pair, plain, None):
            if dist.get_rank() != 1 or group is None:
                dist.all_reduce(np.ones(64, np.float16), group=group)
        return [(call.group, call.algorithm, call.rule) for call in dist.stats()]

    assert ahbm.spawn(worker, overrides=THREE, selector=by_size)[0] == [
        ("group 1", "ring_allreduce", "selector"),
        ("group 2", "tree_allreduce", "selector"),
        ("WORLD", "tree_allreduce", "selector"),
    ]


def test_a_group_s_selector_is_told_its_nodes() -> None:
    machine = {"system.sips.count": 4, "system.sips.topology": "nodes", "system.sips.nodes.size": 2}

    def worker() -> list[tuple[str, str]]:
        rules = Ranges([Range("all_reduce", "tree_allreduce", min_nodes=2), Range("all_reduce", "ring_allreduce")])
        dist.init_process_group(selector=rules)
        inside, between = dist.new_group([0, 1]), dist.new_group([0, 2])
        for group in (inside, between) if dist.get_rank() == 0 else ():
            dist.all_reduce(np.ones(64, np.float16), group=group)
        if dist.get_rank() in (1, 2):
            dist.all_reduce(np.ones(64, np.float16), group=(inside, between)[dist.get_rank() - 1])
        dist.all_reduce(np.ones(64, np.float16))
        return [(call.group, call.algorithm) for call in dist.stats()]

    assert ahbm.spawn(worker, overrides=machine)[0] == [
        ("group 1", "ring_allreduce"),
        ("group 2", "tree_allreduce"),
        ("WORLD", "tree_allreduce"),
    ]


def test_a_selector_is_asked_for_every_collective_and_sees_its_algorithms() -> None:
    seen: list[tuple[str, int, int, bool]] = []

    def selector(algorithms: Algorithms, request: Request) -> None:
        known = all(request.collective in algorithms[name].collectives for name in algorithms)
        seen.append((request.collective, request.nbytes, request.world_size, bool(algorithms) and known))

    def worker() -> None:
        dist.init_process_group(selector=selector)
        x = np.ones(6, np.float32)
        dist.all_reduce(x)
        dist.all_gather([np.ones(6, np.float32) for _ in range(3)], x)
        dist.all_to_all_single(np.ones(6, np.float32), x)
        dist.barrier()

    ahbm.spawn(worker, overrides=THREE)
    assert sorted(set(seen)) == [
        ("all_gather", 72, 3, True),
        ("all_reduce", 24, 3, True),
        ("all_to_all", 24, 3, True),
        ("barrier", 2, 3, True),
    ]
    assert len(seen) == 12


@pytest.mark.parametrize("other", ["tree_allreduce", None])
def test_ranks_that_select_differently_are_named_with_their_choices(other: str | None) -> None:
    def worker(rank: int) -> None:
        dist.init_process_group(selector=lambda algorithms, request: other if rank == 1 else "ring_allreduce")
        dist.all_reduce(np.ones(64, np.float16))

    with pytest.raises(DistributedError) as caught:
        ahbm.spawn(worker, overrides=THREE)
    assert caught.value.code == "AHBM-X111"
    wanted = other or "what ccl.yaml says"
    assert f"(ranks 0, 2: ring_allreduce; rank 1: {wanted})" in str(caught.value)


@pytest.mark.parametrize("answer", ["ring_alreduce", "ring_all_gather", 7, object()])
def test_an_answer_that_is_no_algorithm_of_the_collective_is_refused(answer: Any) -> None:
    def worker() -> None:
        dist.init_process_group(selector=lambda algorithms, request: answer)
        dist.all_reduce(np.ones(64, np.float16))

    with pytest.raises(RankError, match="AHBM-C180"):
        ahbm.spawn(worker, overrides=THREE)
    with pytest.raises(ConfigError, match="AHBM-C180"):
        ahbm.run(selector=lambda algorithms, request: answer)


def test_what_is_no_function_is_no_selector() -> None:
    wrong: Any
    for wrong, told in (7, "AHBM-C129: selector must be a selector"), ("ring_allreduce", "AHBM-C181: unknown selector"):
        with pytest.raises(RankError, match=told):
            ahbm.spawn(lambda: dist.init_process_group(selector=wrong), overrides=THREE)  # noqa: B023 - it has ended.
        with pytest.raises(RankError, match=told):
            ahbm.spawn(lambda: dist.init_process_group(), overrides=THREE, selector=wrong)
        with pytest.raises(ConfigError, match=told.partition(":")[0]):
            ahbm.run(selector=wrong)


def test_where_a_selector_fails_on_one_rank_the_configuration_chooses_on_all() -> None:
    def worker(rank: int) -> tuple[str, str]:
        def selector(algorithms: Algorithms, request: Request) -> str:
            if rank == 1:
                raise TypeError("mine")
            return "ring_allreduce"

        dist.init_process_group(selector=selector)
        dist.all_reduce(np.ones(8, np.float16))
        return dist.stats()[0].algorithm, dist.stats()[0].rule

    with pytest.warns(
        SelectorWarning, match=r"AHBM-X112 all_reduce .* on rank 1 the selector .* raised TypeError: mine"
    ):
        found = ahbm.spawn(worker, overrides=THREE)
    assert found == [("lrab_hierarchical_allreduce", "default")] * 3


def test_a_run_is_chosen_as_well() -> None:
    chosen = ahbm.run("all_reduce", bytes_per_rank=4096, selector=by_size, data=False)
    named = ahbm.run("all_reduce", "ring_allreduce", bytes_per_rank=4096, data=False)
    assert (chosen.algorithm, chosen.timeline_hash) == (named.algorithm, named.timeline_hash)
    with pytest.raises(ConfigError, match="AHBM-C129"):
        ahbm.run("all_reduce", "ring_allreduce", selector=by_size)
