"""Rounding errors, orders of addition, and bits that do or do not depend on rank, run and size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ahbm.base.placement import DPPolicy
from ahbm.check import masks, orders
from ahbm.check.case import Case
from ahbm.check.numerics import Numerics, numerics
from ahbm.check.reference import inputs
from ahbm.core.compiled import Compiled
from ahbm.errors import BudgetError, DataError, UnsupportedError
from ahbm.runs.measure import Arguments, prepare


def measured(collective: str, algorithm: str | None, topology: str, **arguments: Unpack[Arguments]) -> Numerics:
    return numerics(prepare(collective, algorithm, topology, **arguments))


def test_a_tree_has_one_order() -> None:
    found = measured("all_reduce", "tree_allreduce", "npu_ring_8", bytes_per_rank=256)
    assert [(order.order, order.ranks, order.elements) for order in found.orders] == [
        ("((0+1)+(2+3))+((4+5)+(6+7))", [(0, 8)], [(0, 128)]),
    ]
    assert found.ranks_agree and found.runs_agree and found.sizes_agree


def test_a_ring_has_one_order_per_chunk_and_none_for_all_sizes() -> None:
    found = measured("all_reduce", "ring_allreduce", "npu_ring_8", bytes_per_rank=1024, dtype="f32")
    assert [order.elements for order in found.orders] == [[(32 * i, 32 * i + 32)] for i in range(8)]
    assert found.orders[0].order == "((((((0+1)+2)+3)+4)+5)+6)+7"
    assert found.orders[1].order == "0+((((((1+2)+3)+4)+5)+6)+7)"
    assert found.ranks_agree and not found.sizes_agree


def added(order: str, numbers: list[np.ndarray]) -> np.ndarray:
    """Adds as an order says, in the numbers' dtype."""

    def term(at: int) -> tuple[np.ndarray, int]:
        if order[at] != "(":
            end = at
            while end < len(order) and order[end].isdigit():
                end += 1
            return numbers[int(order[at:end])], end
        value, at = total(at + 1)
        return value, at + 1

    def total(at: int) -> tuple[np.ndarray, int]:
        value, at = term(at)
        while at < len(order) and order[at] == "+":
            more, at = term(at + 1)
            value = value + more
        return value, at

    return total(0)[0]


@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize(
    ("algorithm", "topology"),
    [
        ("ring_allreduce", "npu_ring_8"),
        ("tree_allreduce", "npu_mesh_4x4"),
        ("recursive_doubling_allreduce", "npu_hypercube_16"),
        ("lrab_hierarchical_allreduce", "npu_torus_4x4"),
    ],
)
def test_adding_in_the_order_that_was_found_gives_the_bits(algorithm: str, topology: str, dtype: str) -> None:
    """The strongest test of an order: NumPy, adding in it, rounds as the machine does."""
    found = measured("all_reduce", algorithm, topology, bytes_per_rank=512, dtype=dtype)
    case = prepare("all_reduce", algorithm, topology, bytes_per_rank=512, dtype=dtype)
    data = inputs(case.request, "random", 5)
    results = case.execute(data)[1]
    covered = 0
    for order in found.orders:
        for first, end in order.elements:
            numbers = [values[first:end] for values in data]
            for ranks in order.ranks:
                for rank in range(*ranks):
                    assert np.array_equal(added(order.order, numbers), results[rank][first:end]), order.order
                    covered += end - first
    assert covered == case.request.parties * case.request.size


def test_errors_shrink_with_digits_and_averages_are_measured_too() -> None:
    half, single = (measured("all_reduce", None, "npu_mesh_4x4", bytes_per_rank=512, dtype=d) for d in ("f16", "f32"))
    assert half.mean_ulp > 0.1 and single.mean_ulp > 0.1
    exact = measured("all_reduce", None, "npu_mesh_4x4", bytes_per_rank=512, dtype="f32", op="max")
    assert exact.max_ulp == 0 and exact.orders == []
    mean = measured("all_reduce", "ring_allreduce", "npu_ring_8", bytes_per_rank=512, op="avg")
    assert len(mean.orders) == 8 and mean.mean_ulp > 0


SUMS = (
    *(("all_reduce", f"{name}_allreduce") for name in ("ring", "tree", "recursive_doubling", "lrab_hierarchical")),
    ("reduce_scatter", "ring_reduce_scatter"),
    ("reduce", "binomial_reduce"),
)


@settings(max_examples=25, deadline=None)
@given(
    sum_=st.sampled_from(SUMS),
    topology=st.sampled_from(["npu_ring_8", "npu_mesh_4x4", "npu_hypercube_16"]),
    count=st.integers(1, 100),
    dtype=st.sampled_from(["f16", "bf16", "f32", "f64"]),
)
def test_operations_and_results_tell_the_same_orders(
    sum_: tuple[str, str], topology: str, count: int, dtype: str
) -> None:
    """The masks look at results alone: they are the reference for what is read off the operations."""
    assume(topology != "npu_hypercube_16" or not sum_[1].startswith("lrab"))
    case = prepare(*sum_, topology, bytes_per_rank=128 * count, dtype=dtype)
    read = orders.read(case)
    assert read is not None
    assert orders.grouped(read) == orders.grouped(masks.probed(case))


def test_orders_of_tiles_are_read_too() -> None:
    case = prepare("all_reduce", "lrab_hierarchical_allreduce", None, bytes_per_pe=64, placement=DPPolicy())
    read = orders.read(case)
    assert case.request.tiles == 16 and read is not None
    assert orders.grouped(read) == orders.grouped(masks.probed(case))


def test_many_elements_are_asked_in_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every chunk of a ring has an order of its own, yet each is asked about 15 pairs and then about its own 15."""
    case = prepare(
        "all_reduce", "ring_allreduce", "npu_ring_8", bytes_per_rank=512, overrides={"system.sips.count": 16}
    )
    runs = 0
    execute = Case.execute

    def counted(self: Case, given: Sequence[NDArray[Any]]) -> tuple[Compiled, list[NDArray[Any]]]:
        nonlocal runs
        runs += 1
        return execute(self, given)

    monkeypatch.setattr(Case, "execute", counted)
    assert len(orders.grouped(masks.probed(case))) == 16
    assert runs <= 30


@pytest.mark.parametrize("find", [orders.read, lambda case: list(masks.probed(case))])
def test_orders_that_differ_everywhere_are_a_budget_error(
    find: Callable[[Case], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masks, "MOST_STRETCHES", 20)
    with pytest.raises(BudgetError) as caught:
        find(prepare("all_reduce", "ring_allreduce", "npu_ring_8", bytes_per_rank=512))
    assert caught.value.code == "AHBM-B123"


def test_one_part_per_rank() -> None:
    found = measured("reduce_scatter", None, "npu_ring_8", bytes_per_rank=512)
    assert found.ranks_agree is None and len(found.orders) == 8
    rooted = measured("reduce", None, "npu_ring_8", bytes_per_rank=512, root=3)
    assert len(rooted.orders) == 1


DOUBLE = """
def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, dtype="f16"):
    return (n_elem, world_size, dtype)

def kernel(t_ptr, n_elem, n_sips, dtype, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, *, tl):
    acc = current = tl.load(t_ptr, shape=(n_elem,), dtype=dtype)
    for step in range(n_sips - 1):
        tl.send(dir="global_E", src=current)
        current = tl.recv(dir="global_W", shape=(n_elem,), dtype=dtype)
        acc = acc + current
    tl.store(t_ptr, {wrong})
"""


@pytest.mark.parametrize("wrong", ["acc + current", "current", "acc - current"])
def test_what_is_no_sum_has_no_order(wrong: str, tmp_path: Path) -> None:
    """The operations do not say how to read it, and the results say what is wrong."""
    module = tmp_path / "wrong.py"
    module.write_text(DOUBLE.replace("{wrong}", wrong))
    with pytest.raises(DataError) as caught:
        measured("all_reduce", str(module), "npu_ring_8", bytes_per_rank=64, dtype="f32")
    assert caught.value.code == "AHBM-V320"


@pytest.mark.parametrize("extra", ["acc * 1.0", "tl.maximum(acc, acc)", "tl.cast(tl.cast(acc, 'f64'), dtype)"])
def test_what_does_more_than_add_is_probed(extra: str, tmp_path: Path) -> None:
    module = tmp_path / "more.py"
    module.write_text(DOUBLE.replace("{wrong}", extra))
    case = prepare("all_reduce", str(module), "npu_ring_8", bytes_per_rank=64, dtype="f32")
    assert orders.read(case) is None
    plain = tmp_path / "plain.py"
    plain.write_text(DOUBLE.replace("{wrong}", "acc"))
    alike = prepare("all_reduce", str(plain), "npu_ring_8", bytes_per_rank=64, dtype="f32")
    found = orders.read(alike)
    assert found is not None and orders.orders(case) == orders.grouped(found)


def test_what_does_not_round() -> None:
    for collective, dtype in (("all_gather", "f16"), ("all_reduce", "i32")):
        with pytest.raises(UnsupportedError) as caught:
            measured(collective, None, "npu_ring_8", bytes_per_rank=512, dtype=dtype)
        assert caught.value.code == "AHBM-U140"
