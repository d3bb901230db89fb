"""The bytes that an operation reads and writes, each once."""

from __future__ import annotations

from collections.abc import Iterable

from ahbm.kernels.model import Call, Tensor, broadcast

OVERWRITING = {
    "copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_", "_foreach_copy_",
    "geometric_", "cauchy_", "log_normal_", "_foreach_zero_",
}  # fmt: skip
"""Operations in place that do not read what they write."""
READS = {
    "embedding", "index_select", "index", "_unsafe_index", "gather", "take", "masked_select", "select_copy",
    "slice_copy", "narrow_copy", "diagonal_copy", "as_strided_copy", "unfold_copy",
}  # fmt: skip
"""Operations that read of their first operand what they make."""
BAGS = {"_embedding_bag", "_embedding_bag_forward_only"}
LOSSES = {"nll_loss_forward", "nll_loss2d_forward"}
"""Operations that read an element for each target."""
LOSSES_BACK = {"nll_loss_backward", "nll_loss2d_backward"}
"""Operations that read the shape of their second operand alone."""
_BY_INDEX = {"scatter_", "scatter_add_", "scatter_reduce_", "put_"}
_BY_SOURCE = {"index_add_", "index_copy_", "index_reduce_"}
PUTS = {"index_put_", "_index_put_impl_"}
_ADDING = {"scatter_add_", "scatter_reduce_", "index_add_", "index_reduce_"}
_PARTS = READS | BAGS | LOSSES | LOSSES_BACK | _BY_INDEX | _BY_SOURCE | PUTS | {"index_fill_"}
"""Operations that touch their operands in part."""


def once(xs: Iterable[Tensor]) -> int:
    """The bytes of several tensors, each counted once."""
    return sum(x.nbytes for x in xs if not x.again)


def total(call: Call, outs: tuple[Tensor, ...]) -> int:
    """The bytes of an operation with these results."""
    read = call.given[1:] if call.name in OVERWRITING else call.given
    if call.name in _PARTS:
        return _in_part(call, read, outs)
    return once(read) + sum(x.nbytes for x in outs)


def _in_part(call: Call, read: list[Tensor], outs: tuple[Tensor, ...]) -> int:
    """Of operations that touch their first operand (or, backward, the second one) in part."""
    name, made = call.name, sum(x.nbytes for x in outs)
    if name in LOSSES_BACK:
        return once(read) - call.need(1).nbytes + made
    table = call.need(0)
    elements, times = elements_of(call, outs)
    nbytes = once(read) - table.nbytes + times * min(elements * table.itemsize, table.nbytes)
    return nbytes + (made if name in READS | BAGS | LOSSES else 0)


def elements_of(call: Call, outs: tuple[Tensor, ...]) -> tuple[int, int]:
    """How many elements of its first operand an operation touches, and how often: 2 where it reads and writes them."""
    name, table = call.name, call.need(0)
    if name in READS:
        return outs[0].numel if outs else 0, 1
    if name in BAGS | LOSSES:
        return call.need(1).numel * (table.shape[-1] if name in BAGS and table.shape else 1), 1
    if name in PUTS:
        return indexed(table, call.arg(1, ())), 1 + bool(call.arg(3, False))
    if name == "put_":
        return call.need(1).numel, 1 + bool(call.arg(3, False))
    adds = name in _ADDING or (name == "scatter_" and isinstance(call.arg(4), str))
    if name in _BY_SOURCE:
        return call.need(3).numel, 1 + adds
    if name == "index_fill_" and table.shape:
        at = int(call.number(1))
        return call.need(2).numel * (table.numel // max(table.shape[at] if at < len(table.shape) else 1, 1)), 1
    index = call.tensor(2) or call.tensor(1)
    return index.numel if index else 0, 1 + adds


def indexed(x: Tensor, indices: tuple[Tensor | None, ...] | Tensor) -> int:
    """How many elements `x[indices]` has. A mask has as many as are true, or all where that is not known."""
    shapes, rest, at = [], list(x.shape), 0
    for index in (indices,) if isinstance(indices, Tensor) else indices:
        if index is None:
            at += 1
            continue
        masks = index.dtype in ("bool", "uint8")
        shapes.append((index.numel if index.true is None else index.true,) if masks else index.shape)
        for _ in range(len(index.shape) if masks else 1):
            if at < len(rest):
                rest[at] = 1
            at += 1
    count = 1
    for n in (*(broadcast(shapes) or ()), *rest) if shapes else rest:
        count *= n
    return count
