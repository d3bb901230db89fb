"""What a script could do otherwise, as changes of the nodes that ranks have kept: the changed job is replayed.

What the machine could have otherwise is asked of `what_if`; see `answer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ahbm.torch.journal import Node

TF32 = "products of f32 in TF32 (torch.set_float32_matmul_precision)"
PINNED = "copies from pinned memory (pin_memory=True, non_blocking=True)"
GRAPH = "the step as one CUDA graph, if it can be captured (torch.cuda.graph)"


def _with(node: Node, facts: dict[str, Any], ps: int | None = None) -> Node:
    kind, name, deps, start, took, _ = node
    return kind, name, deps, start, took if ps is None else ps, list(facts.items())


def in_tf32(nodes: Sequence[Node]) -> list[Node]:
    """Products of f32 multiply in ten bits."""
    out = []
    for node in nodes:
        facts: dict[str, Any] = dict(node[5])
        if facts.get("num_ops") and facts.get("num_ops_dtype") == "f32":
            node = _with(node, {**facts, "num_ops_dtype": "tf32"})
        out.append(node)
    return out


def pinned(nodes: Sequence[Node]) -> list[Node]:
    """Memory that is copied to or from is pinned: the host does not copy it as well."""
    out = []
    for node in nodes:
        facts: dict[str, Any] = dict(node[5])
        if staged := facts.pop("pageable", 0):
            node = _with(node, facts, node[4] - staged)
        out.append(node)
    return out


def captured(nodes: Sequence[Node]) -> list[Node]:
    """The host issues all in one: what it did for each kernel takes nothing."""
    return [
        _with(node, dict(node[5]), 0) if any(key == "is_cpu_op" and value for key, value in node[5]) else node
        for node in nodes
    ]


CHANGES: dict[str, Callable[[Sequence[Node]], list[Node]]] = {TF32: in_tf32, PINNED: pinned, GRAPH: captured}
"""By what they are called in an answer."""


def changed(ranks: Sequence[Sequence[Node]]) -> list[tuple[str, list[list[Node]]]]:
    """The changes that would change something, with the nodes of every rank after each."""
    found = []
    for what, change in CHANGES.items():
        after = [change(nodes) for nodes in ranks]
        if after != list(map(list, ranks)):
            found.append((what, after))
    return found
