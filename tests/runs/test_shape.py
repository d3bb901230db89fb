"""One id of an algorithm, whatever states it and however its ranks are numbered; its kind by its structure."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from ahbm._core import read_plan
from ahbm.config.ccl import CclConfig
from ahbm.core.emulator import Emulator
from ahbm.errors import UnsupportedError
from ahbm.runs.plans import _plan_of
from ahbm.runs.shape import KINDS, Shape, shape_of

RANKS = 8
PACKAGED = {
    "lrab_hierarchical_allreduce": ("all_reduce", "ring"),
    "ring_allreduce": ("all_reduce", "ring"),
    "bidirectional_ring_allreduce": ("all_reduce", "ring"),
    "all_pairs_allreduce": ("all_reduce", "direct"),
    "tree_allreduce": ("all_reduce", "tree"),
    "recursive_doubling_allreduce": ("all_reduce", "halving_doubling"),
    "double_binary_tree_allreduce": ("all_reduce", "tree"),
    "nccl_ring_allreduce": ("all_reduce", "ring"),
    "hierarchical_ring_allreduce": ("all_reduce", "ring"),
    "ring_all_gather": ("all_gather", "ring"),
    "ring_reduce_scatter": ("reduce_scatter", "ring"),
    "nccl_ring_all_gather": ("all_gather", "ring"),
    "nccl_ring_reduce_scatter": ("reduce_scatter", "ring"),
    "pat_all_gather": ("all_gather", "halving_doubling"),
    "pat_reduce_scatter": ("reduce_scatter", "halving_doubling"),
    "pairwise_all_to_all": ("all_to_all", "direct"),
    "grouped_all_to_all": ("all_to_all", "direct"),
    "binomial_broadcast": ("broadcast", "tree"),
    "binomial_reduce": ("reduce", "tree"),
    "binomial_gather": ("gather", "tree"),
    "binomial_scatter": ("scatter", "tree"),
    "ring_broadcast": ("broadcast", "tree"),
    "ring_reduce": ("reduce", "tree"),
}
"""Those that plans can express."""


def shape(plan: object) -> Shape:
    found = shape_of(plan)  # type: ignore[arg-type]
    assert found is not None
    return found


@pytest.fixture(scope="module")
def emulator() -> Emulator:
    return Emulator.load("npu_ring_8")


@pytest.mark.parametrize("name", PACKAGED)
def test_a_packaged_algorithm_has_one_id(name: str, emulator: Emulator, tmp_path: Path) -> None:
    collective, kind = PACKAGED[name]
    plan = _plan_of(emulator, name, collective, ())
    own = shape(plan)
    assert own.kind == kind
    for ending, file in (("xml", "a.xml"), ("json", "a.json"), ("et", "a.0.et")):
        plan.save(tmp_path / f"a.{ending}")
        again = shape(read_plan(tmp_path / file))
        assert (again.id, again.kind, again.out_degree) == (own.id, own.kind, own.out_degree), ending
    for seed in range(20):
        number = list(range(RANKS))
        Random(seed).shuffle(number)
        moved = {(number[src], number[dst]): share for (src, dst), share in own.sent.items()}
        other = Shape(own.collective, own.ranks, own.added, moved)
        assert (other.id, other.kind) == (own.id, own.kind)


def test_every_packaged_algorithm_is_here(emulator: Emulator) -> None:
    for name in CclConfig.packaged().algorithms:
        for collective in emulator.algorithm(name).collectives:
            if name not in PACKAGED:
                with pytest.raises(UnsupportedError):
                    _plan_of(emulator, name, collective, ())


def test_different_algorithms_have_different_ids(emulator: Emulator) -> None:
    ids = {name: shape(_plan_of(emulator, name, collective, ())).id for name, (collective, _) in PACKAGED.items()}
    # On a ring_1d LRAB is a ring; rings in channels go the same ways with the same bytes, and so do both exchanges.
    assert len(set(ids.values())) >= len(ids) - 5
    assert all(kind in KINDS for _, kind in PACKAGED.values())


def test_a_schedule_for_a_network_is_topology_aware() -> None:
    import ahbm

    made = ahbm.synthesize("all_gather", topology="npu_mesh_4x4", size=1 << 20, method="greedy")
    assert shape(made.plan).kind == "topology_aware"
