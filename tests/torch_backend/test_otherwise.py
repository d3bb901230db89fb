"""What a script could do otherwise, as changes of nodes, and what its nodes say of its work."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from ahbm.torch.device import advice
from ahbm.torch.device.work import Work
from ahbm.torch.journal import Node


def node(name: str, ps: int = 0, **facts: Any) -> Node:
    return "COMP_NODE", name, [], 0, ps, list(facts.items())


PRODUCT = node("mm", num_ops=2_000_000, tensor_size=100, num_ops_dtype="f32")
HALF = node("mm", num_ops=1_000_000, tensor_size=100)
HOST = node("host", 9_000_000, is_cpu_op=1)
COPY = node("host", 9_000_000, is_cpu_op=1, pageable=2_000_000)
SUM = node("sum", num_ops=0, tensor_size=100, num_ops_dtype="f32")


def test_products_of_f32_become_tf32_and_nothing_else_changes() -> None:
    changed = advice.in_tf32([PRODUCT, HALF, SUM, HOST])
    assert dict(changed[0][5])["num_ops_dtype"] == "tf32"
    assert changed[1:] == [HALF, SUM, HOST]


def test_a_graph_takes_the_time_of_the_host_alone() -> None:
    changed = advice.captured([HOST, PRODUCT, HOST])
    assert [each[4] for each in changed] == [0, 0, 0]
    assert changed[1] == PRODUCT


def test_the_host_does_not_copy_what_is_pinned() -> None:
    assert advice.pinned([COPY, HALF]) == [node("host", 7_000_000, is_cpu_op=1), HALF]


@pytest.mark.parametrize(
    ("nodes", "offered"),
    [
        ([HALF], []),
        ([PRODUCT], [advice.TF32]),
        ([COPY, HALF], [advice.PINNED, advice.GRAPH]),
        ([HOST, PRODUCT], [advice.TF32, advice.GRAPH]),
    ],
)
def test_only_changes_that_change_something_are_offered(nodes: list[Node], offered: list[str]) -> None:
    assert [what for what, _ in advice.changed([nodes, nodes])] == offered


def test_work_counts_kernels_operations_tokens_and_samples() -> None:
    def looked_up(rows: int) -> Node:
        return node("embedding", num_ops=0, tensor_size=1, kernel_kind="gather", kernel_dims=(rows, 64))

    loss = node("nll_loss_forward", num_ops=0, tensor_size=1, kernel_kind="loss", kernel_dims=(512, 10))
    found = Work.of([HOST, looked_up(4096), looked_up(128), looked_up(4096), HALF, loss, looked_up(4096), PRODUCT])
    assert found.kernels == 7
    assert found.operations == {"f16": 1_000_000, "f32": 2_000_000} and found.flops == 3_000_000
    assert (found.tokens, found.samples) == (8192, 512)
