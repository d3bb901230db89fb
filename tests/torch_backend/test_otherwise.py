"""What a script could do otherwise, as changes of nodes, and what its nodes say of its work."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("torch")

from ahbm.config.topology import load_machine
from ahbm.torch.device import advice, batches, scratch
from ahbm.torch.device.shadow import FACT, GONE, SAME
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


def test_a_script_that_compiles_is_told_of_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = node("add", num_ops=0, tensor_size=8, with_compile=GONE)
    machine = load_machine("dgx_h200")
    for compiled, what in ((False, advice.COMPILED), (True, advice.REST)):
        monkeypatch.setattr(scratch, "_compiled", [compiled])
        assert what in [each for each, _ in advice.changed([[HOST, gone]], machine)]


def test_work_counts_kernels_operations_tokens_and_samples() -> None:
    def looked_up(rows: int, columns: int = 64) -> Node:
        return node("embedding", num_ops=0, tensor_size=1, kernel_kind="gather", kernel_dims=(rows, columns))

    loss = node("nll_loss_forward", num_ops=0, tensor_size=1, kernel_kind="loss", kernel_dims=(512, 10))
    biases = looked_up(16384, 8)
    nodes = [HOST, looked_up(4096), looked_up(128), looked_up(4096), HALF, biases, HALF, loss, looked_up(4096), PRODUCT]
    found = Work.of(nodes)
    assert found.kernels == 9
    assert found.operations == {"f16": 2_000_000, "f32": 2_000_000} and found.flops == 4_000_000
    assert (found.tokens, found.samples) == (8192, 512)


def test_generated_code_takes_the_place_of_the_kernels_that_it_does() -> None:
    ps = {"launch": 5, "generated": 10, "backward": 100, "python": 20, "operation": 30, "product": 40}
    said = [GONE, json.dumps([70, "f32", "pointwise", [64]]), SAME, SAME, None]
    nodes: list[Node] = []
    for number, fact in enumerate(said):
        nodes.append(node("host", 1000 if number == 3 else 50, is_cpu_op=1))
        facts = {"num_ops": 8, "tensor_size": 99, "kernel_kind": "product", "kernel_dims": (1, 2, 2, 2)}
        kind, name, _, start, took, described = node("mm", **facts)
        more = [] if fact is None else [(FACT, fact)]
        nodes.append((kind, name, [2 * number], start, took, described + more))
    after = advice.compiled(nodes, ps)
    assert [each[4] for each in after[::2]] == [0, 15, 95, 1000, 50]
    found = [dict(each[5]) for each in after[1::2]]
    assert [each["tensor_size"] for each in found] == [0, 70, 99, 99, 99]
    assert found[1]["kernel_dims"] == [64] and not any(FACT in each for each in found)
    assert not any(FACT in dict(each[5]) for each in advice.plain(nodes))


@pytest.mark.parametrize(
    ("kind", "dims", "after", "nbytes"),
    [
        ("product", (1, 512, 64, 32), (1, 1024, 64, 32), 100_000 + 2 * (512 * 32 + 512 * 64)),  # forward
        ("product", (1, 64, 32, 512), (1, 64, 32, 1024), 100_000 + 2 * (64 * 512 + 512 * 32)),  # gradient of a weight
        ("product", (8, 16, 16, 4), (16, 16, 16, 4), 100_000 + 2 * 8 * (64 + 64 + 256)),
        ("pointwise", (512,), (1024,), 200_000),
        ("cast", (64 * 32,), (64 * 32,), 100_000),
        ("foreach", (4, 4096), (4, 4096), 100_000),
        ("reduce", (1, 512, 64), (1, 1024, 64), 200_000),
        ("norm", (512, 32), (1024, 32), 200_000),
        ("embedding_backward", (512, 64, 9), (1024, 64, 9), 100_000),
    ],
)
def test_twice_the_batch_takes_twice_what_goes_over_samples(
    kind: str, dims: tuple[int, ...], after: tuple[int, ...], nbytes: int
) -> None:
    weights = batches.Weights([(64, 32), (64,)])
    was = 100_000
    found = weights.twice({"num_ops": 0, "tensor_size": was, "kernel_kind": kind, "kernel_dims": dims})
    assert found["kernel_dims"] == after
    assert found["tensor_size"] == nbytes


def test_twice_the_batch_is_asked_of_one_rank_that_trains_and_has_the_memory() -> None:
    memory = {"peak": 100, "capacity": 190, "failed": None, "most": [("activations", 80), ("parameters", 10)]}
    facts = {"memory": memory, "weights": [(64, 32)]}
    assert batches.asked([HALF, COPY], facts) is not None
    assert dict(batches.asked([COPY], facts)[0][5])["pageable"] == 4_000_000  # type: ignore[index]
    call: Node = ("COMM_COLL_NODE", "all_reduce", [], 0, 0, [])
    assert batches.asked([HALF, call], facts) is None
    assert batches.asked([HALF], facts | {"weights": []}) is None
    assert batches.asked([HALF], facts | {"memory": memory | {"capacity": 189}}) is None
