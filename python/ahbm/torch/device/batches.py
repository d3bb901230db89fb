"""Nodes of a rank for a batch of twice as many samples.

What goes over activations takes twice as much, by the dimension that holds the samples; what goes over weights alone
remains: optimizers, casts of weights, operands of products. Which sizes are those of weights is known by the parameters
of optimizers. The host issues the same. Calls between ranks are not followed: their sizes may or may not grow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ahbm.torch.journal import Node

FIXED = ("parameters", "gradients", "results of backward", "optimizer state")
"""What of the memory does not grow (`memory.PARAMETERS` and the like); what backward has not yet given to a parameter
is mostly for weights."""
_SIZES = {"f8": 1, "i8": 1, "f16": 2, "f32": 4, "tf32": 4, "f64": 8}
_ELEMENTS = ("pointwise", "cast", "strided", "broadcast", "fill", "random")
MOST = (1 << 32) - 1
TWICE = "twice the batch"


class Weights:
    """Sizes of the parameters of a script."""

    def __init__(self, shapes: Iterable[Sequence[int]]) -> None:
        shapes = [tuple(shape) for shape in shapes]
        self.counts = {prod(shape) for shape in shapes}
        self.pairs = {tuple(sorted((shape[0], prod(shape[1:])))) for shape in shapes if len(shape) > 1}

    def twice(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """The facts of a kernel for twice as many samples."""
        found = dict(facts)
        kind, dims = facts.get("kernel_kind", "plain"), list(facts.get("kernel_dims", ()))
        nbytes = facts.get("tensor_size", 0)
        if not dims:
            if "host_copy" in facts and nbytes not in (1, 2, 4, 8):
                found["tensor_size"] = 2 * nbytes
            return found
        if kind == "foreach" or (kind in _ELEMENTS and (dims[0] in self.counts or dims[0] == 1)):
            return found
        at = 0
        if kind == "product":
            at = self._samples(dims)
            size = _SIZES.get(facts.get("num_ops_dtype", "f16"), 2)
            batch, m, n, k = dims[:4]
            more = (m * k + k * n + m * n, m * k + m * n, k * n + m * n, m * k + k * n)[at]
            found["tensor_size"] = nbytes + min(size * batch * more, nbytes)
        elif kind == "reduce":
            outer, reduced, inner = dims[:3]
            whole = outer * inner == 1
            if whole and reduced in self.counts:
                return found
            at = 1 if whole or outer * inner in self.counts else 0
            found["tensor_size"] = 2 * nbytes
        elif kind != "embedding_backward":  # whose bytes are those of the table
            found["tensor_size"] = 2 * nbytes
        dims[at] = min(2 * dims[at], MOST)
        found["kernel_dims"] = tuple(dims)
        found["num_ops"] = 2 * facts.get("num_ops", 0)
        return found

    def _samples(self, dims: Sequence[int]) -> int:
        """Which of the dimensions of a product holds the samples: the one that is no weight's."""
        batch, m, n, k = dims[:4]
        if batch > 1:
            return 0
        fits = [at for at, pair in ((1, (k, n)), (3, (m, n)), (2, (m, k))) if tuple(sorted(pair)) in self.pairs]
        return fits[0] if fits else 1


def doubled(nodes: Sequence[Node], shapes: Iterable[Sequence[int]]) -> list[Node]:
    """The nodes for twice the batch. `shapes`: those of all parameters."""
    weights = Weights(shapes)
    known: dict[Any, dict[str, Any]] = {}
    out = []
    for kind, name, deps, start, took, described in nodes:
        facts = dict(described)
        if kind == "COMP_NODE" and "is_cpu_op" not in facts:
            key = (*facts.items(),) if all(type(value) is not list for value in facts.values()) else None
            more = known.get(key) if key is not None else None
            if more is None:
                more = weights.twice(facts)
                if key is not None:
                    known[key] = more
            out.append((kind, name, deps, start, took, list(more.items())))
            continue
        staged: Any = facts.get("pageable", 0)
        if staged:
            took, facts["pageable"] = took + staged, 2 * staged
        out.append((kind, name, deps, start, took, list(facts.items())))
    return out


def asked(nodes: Sequence[Node], facts: Mapping[str, Any]) -> list[Node] | None:
    """The nodes of a rank for twice the batch; None where it calls others, has no optimizer, or that does not fit.
    `facts`: those that it has kept."""
    shapes = facts.get("weights")
    if not shapes or any(node[0] != "COMP_NODE" for node in nodes) or not fits(facts["memory"]):
        return None
    return doubled(nodes, shapes)


def fits(memory: Mapping[str, Any]) -> bool:
    """Whether twice the batch fits; `memory`: what `fits.facts` says."""
    fixed = sum(nbytes for kind, nbytes in memory["most"] if kind in FIXED)
    needed: int = 2 * memory["peak"] - min(fixed, memory["peak"])
    return not memory["failed"] and needed <= memory["capacity"]
