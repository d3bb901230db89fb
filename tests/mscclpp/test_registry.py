"""Registered plans and their selectors, of both generations, without torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ahbm
from ahbm import mscclpp
from ahbm.core.choice import Choice
from ahbm.core.emulator import Emulator
from ahbm.errors import AhbmError, ConfigError, DistributedError, UnsupportedError
from ahbm.front.arguments import own
from ahbm.front.marshal import Member
from ahbm.mscclpp.choosing import choose
from ahbm.mscclpp.refused import NAMES
from ahbm.ranks.groups import ProcessGroup
from support.allreduce import allreduce_by_reading, spec

KIB = 1 << 10
PAIR = {"system.sips.count": 2}


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("MSCCLPP_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    yield
    mscclpp.ExecutionPlanRegistry.reset_instance()
    mscclpp.AlgorithmCollectionBuilder.reset()


def compiled(**changes: Any) -> mscclpp.Algorithm:
    return mscclpp.compile(allreduce_by_reading, spec(**changes), 0)


def chosen(elements: int, collective: str = "all_reduce", ccl: str | None = None) -> str:
    """The choice for a call of two ranks on f16: rule and algorithm."""
    group = ProcessGroup("WORLD", (0, 1))
    member = Member(group, 0)
    x = np.zeros(elements, np.float16)
    if collective == "all_reduce":
        call = member.all_reduce(own(x, "x"), "sum")
    else:
        call = member.all_gather_single(own(np.zeros(2 * elements, np.float16), "out"), own(x, "x"))
    found = choose(call, 0, Emulator.load(None, ccl, PAIR))
    return "none" if found is None else f"{found.rule} {found.name}"


def test_the_registry_is_one_and_answers_by_its_selectors() -> None:
    registry, plan = mscclpp.ExecutionPlanRegistry(), compiled()
    assert mscclpp.ExecutionPlanRegistry() is registry
    registry.register_plan(plan)
    assert registry.get(plan.id) is plan and registry.get("another") is None
    ask = ("allreduce", 2, 2, 64, 64, KIB)
    assert registry.select(*ask) is None
    seen: list[Any] = []

    def selector(plans: list[Any], request: mscclpp.ExecutionRequest) -> Any:
        seen.append((plans, request.message_size, request.hints))
        return None

    registry.set_selector(selector)
    registry.set_default_selector(lambda plans, request: plans[0] if "reads" in plans[0].tags else None)
    assert registry.select(*ask, {"root": [1]}) is plan
    assert seen == [([plan], KIB, {"root": [1]})]
    for other in (
        ("allgather", 2, 2, 64, 64, KIB),
        ("allreduce", 4, 2, 64, 64, KIB),
        ("allreduce", 2, 1, 64, 64, KIB),
        ("allreduce", 2, 2, 64, 4096, KIB),
        ("allreduce", 2, 2, 64, 64, KIB - 1),
        ("allreduce", 2, 2, 64, 64, (1 << 20) + 1),
    ):
        assert registry.select(*other) is None
    assert len(seen) == 1
    registry.set_selector(lambda plans, request: "by_reading")  # type: ignore[arg-type, return-value]
    with pytest.raises(ConfigError, match="AHBM-C180"):
        registry.select(*ask)
    mscclpp.ExecutionPlanRegistry.reset_instance()
    assert mscclpp.ExecutionPlanRegistry().get(plan.id) is None


def test_calls_go_by_selector_then_plan_then_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(KIB) == "none"
    registry, plan = mscclpp.ExecutionPlanRegistry(), compiled()
    registry.register_plan(plan)
    assert chosen(KIB) == "plan by_reading"
    assert chosen(KIB, "all_gather") == "none"
    # Of a wrong size.
    assert chosen(KIB // 2 - 1) == "none" and chosen(1 << 20) == "none"
    builder = mscclpp.ext.AlgorithmCollectionBuilder()
    builder.add_algorithm_builder(compiled(name="other"))
    builder.set_algorithm_selector(lambda algorithms, request: algorithms["allreduce"].get("other"))
    assert chosen(KIB) == "selector other"
    builder.set_algorithm_selector(lambda algorithms, request: None)
    registry.set_selector(lambda plans, request: plans[0] if request.message_size > KIB else None)
    assert chosen(KIB) == "selector by_reading" and chosen(KIB // 2) == "plan by_reading"
    monkeypatch.setenv("MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION", "allgather,allreduce")
    assert chosen(KIB) == "default lrab_hierarchical_allreduce"
    monkeypatch.setenv("MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION", "everything")
    with pytest.raises(ConfigError, match="AHBM-C127"):
        chosen(KIB)


def test_the_forced_default_is_not_what_ccl_yaml_says(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "own.yaml").write_text("collectives: {all_reduce: ring_allreduce}\n", encoding="utf-8")
    assert chosen(KIB, ccl="own.yaml") == "none"
    monkeypatch.setenv("MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION", "all")
    assert chosen(KIB, ccl="own.yaml") == "default lrab_hierarchical_allreduce"


def test_a_selector_that_chooses_a_plan_of_other_sizes_is_an_error() -> None:
    plan = compiled()
    builder = mscclpp.AlgorithmCollectionBuilder()
    builder.add_algorithm_builder(plan)
    builder.set_algorithm_selector(lambda algorithms, request: plan)
    with pytest.raises(DistributedError, match="AHBM-X131"):
        chosen(8)


def test_a_request_knows_whether_it_is_in_place() -> None:
    seen: list[mscclpp.CollectiveRequest] = []
    builder = mscclpp.AlgorithmCollectionBuilder()
    builder.set_algorithm_selector(lambda algorithms, request: seen.append(request))  # type: ignore[func-returns-value]
    chosen(KIB)
    chosen(KIB, "all_gather")
    group = ProcessGroup("WORLD", (0, 1))
    whole = np.zeros(2 * KIB, np.float32)
    for me in (0, 1):
        part = whole[me * KIB : (me + 1) * KIB]
        for call in (
            Member(group, me).all_gather_single(own(whole, "out"), own(part, "x")),
            Member(group, me).reduce_scatter_single(own(part, "out"), own(whole, "x"), "sum"),
        ):
            choose(call, me, Emulator.load(None, None, PAIR))
    modes = [(request.collective, request.message_size, request.buffer_mode().name) for request in seen]
    assert modes == [
        ("allreduce", 2 * KIB, "InPlace"),
        ("allgather", 2 * KIB, "OutOfPlace"),
        *[("allgather", 4 * KIB, "InPlace"), ("reducescatter", 8 * KIB, "InPlace")] * 2,
    ]
    assert {request.dtype for request in seen} == {mscclpp.DataType.float16, mscclpp.DataType.float32}


def test_native_algorithms_have_labelled_stand_ins() -> None:
    made = mscclpp.AlgorithmCollectionBuilder().build_default_algorithms(0, 0, 0)
    assert len(list(made)) == 12 and len(made.get_by_collective("allgather")) == 2
    emulator = Emulator.load(None, None, PAIR)
    for algorithm in made:
        choice = algorithm.choice("selector")
        assert choice.rule == f"selector, stands in for {algorithm.name}"
        collective = {"allreduce": "all_reduce", "allgather": "all_gather"}[algorithm.collective]
        assert choice.name in emulator.algorithms(collective)


def test_a_registered_plan_runs_with_the_right_sum() -> None:
    plan = compiled().plan
    assert plan is not None

    def worker(rank: int) -> Any:
        import ahbm.distributed as dist

        dist.init_process_group(selector=lambda algorithms, request: plan.algorithm)
        x = np.arange(KIB, dtype=np.float32) + rank
        dist.all_reduce(x)
        return x.sum().item(), dist.stats()[0].algorithm, dist.stats()[0].rule

    total = 2 * sum(range(KIB)) + KIB
    assert ahbm.spawn(worker, overrides=PAIR) == [(total, "by_reading", "selector")] * 2


def test_equal_plans_are_one_choice() -> None:
    plan = compiled().plan
    assert plan is not None
    again = mscclpp.ExecutionPlan(plan.algorithm.path, 0)
    assert again.algorithm is not plan.algorithm
    assert Choice("plan", again.algorithm) == Choice("plan", plan.algorithm)


@pytest.mark.parametrize("name", NAMES)
def test_what_needs_a_gpu_can_be_named_and_not_used(name: str) -> None:
    thing = getattr(mscclpp, name)
    for use in (lambda: thing(), lambda: thing.create):
        with pytest.raises(UnsupportedError, match="AHBM-U180") as caught:
            use()
        assert name in str(caught.value)


def test_refusals_name_the_part() -> None:
    with pytest.raises(UnsupportedError, match="mpi_comm"):
        mscclpp.CommGroup(mpi_comm=object())
    with pytest.raises(UnsupportedError, match="create_from_native_capsule"):
        mscclpp.Algorithm.create_from_native_capsule(None)
    for trio in ("lo", "lo:127.0.0.1", "lo:127.0.0.1:no", "lo::1", "lo:127.0.0.1:70000"):
        with pytest.raises(AhbmError, match="AHBM-X131"):
            mscclpp.CommGroup(interfaceIpPortTrio=trio, rank=0, size=2)
