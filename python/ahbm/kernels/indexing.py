"""Kernels that read or write by numbers of rows: by what is touched, never by the size of a table."""

from __future__ import annotations

from math import prod

from ahbm.kernels.elements import of
from ahbm.kernels.model import Call, Kernel, Tensor, Unknown, kernel
from ahbm.kernels.reductions import counters, sorts
from ahbm.kernels.rules import rule
from ahbm.kernels.touched import PUTS, elements_of, indexed, total

_FEW = 3072
"""Indices whose gradient one kernel adds up without sorting them (torch's `embedding_dense_backward_cuda`)."""


@rule("embedding")
def _embedding(call: Call) -> list[Kernel]:
    table, index = call.need(0), call.need(1)
    columns = table.shape[-1] if table.shape else 1
    outs = call.outs or (Tensor((*index.shape, columns), table.dtype),)
    return [kernel("gather", index.numel, columns, nbytes=total(_with(call, outs), outs))]


def _with(call: Call, outs: tuple[Tensor, ...]) -> Call:
    return call if call.outs else Call(call.name, call.args, outs, call.flags)


@rule("index_select", "gather", "take", "take_along_dim", "_embedding_bag", "_embedding_bag_forward_only")
def _gather(call: Call) -> list[Kernel]:
    table = call.need(0)
    index = next((x for x in call.given[1:] if x.dtype in ("int64", "int32")), None)
    if index is None:
        raise Unknown(call.name)
    if call.name.startswith("_embedding_bag"):
        columns = table.shape[-1] if table.shape else 1
        bags = call.tensor(2)
        made = (
            Tensor((bags.numel if bags else index.numel, columns), table.dtype),
            *[Tensor(index.shape, "int64")] * 2,
        )
        return [kernel("gather", index.numel, columns, nbytes=total(call, call.outs or made))]
    columns = 1
    if call.name == "index_select" and table.shape:
        columns = table.numel // max(table.shape[int(call.number(1)) % len(table.shape)], 1)
        outs = call.outs or (Tensor((index.numel, columns), table.dtype),)
    else:
        outs = call.outs or (Tensor(index.shape, table.dtype),)
        if index.strides and 0 in index.strides and index.shape:  # rows, as torch sees as well
            columns = index.shape[-1]
    return [kernel("gather", outs[0].numel // max(columns, 1), columns, nbytes=total(_with(call, outs), outs))]


@rule("index", "_unsafe_index", "masked_select")
def _index(call: Call) -> list[Kernel]:
    table = call.need(0)
    masked = call.name == "masked_select"
    indices = call.arg(1, ())
    indices = (indices,) if isinstance(indices, Tensor) else indices
    masks = [x for x in indices if isinstance(x, Tensor) and x.dtype in ("bool", "uint8")]
    if call.outs:
        outs = call.outs
    elif masks or not indices or not call.given[1:]:
        raise Unknown(call.name)
    else:
        outs = (Tensor((indexed(table, indices),), table.dtype),)
    columns = _row(table, indices)
    found = [each for mask in masks for each in nonzero(mask, call)]
    nbytes = total(_with(call, outs), outs)
    rows = outs[0].numel // max(columns, 1)
    if masked:
        return [*found, kernel("gather", outs[0].numel, 1, nbytes=nbytes)]
    return [*found, kernel("gather", rows, columns, nbytes=nbytes)]


def _row(x: Tensor, indices: tuple[Tensor | None, ...]) -> int:
    """Elements that lie beside each other in what an index takes."""
    at = sum(len(i.shape) if i is not None and i.dtype in ("bool", "uint8") else 1 for i in indices)
    return prod(x.shape[at:])


def nonzero(x: Tensor, call: Call) -> list[Kernel]:
    """Where elements are not zero: they are counted, the count goes to the host, and their places are written."""
    count = x.numel
    if not count:
        return []
    return [
        kernel("reduce", 1, count, 1, nbytes=x.nbytes),
        kernel("reduce", 1, min(count, 512), 1, nbytes=2048),
        kernel("pointwise", 1, nbytes=8),
        counters(call.flags),
        kernel("scan", 1, count, nbytes=x.nbytes + 8 * min(count, 1 << 20)),
        *([kernel("pointwise", count, nbytes=x.nbytes)] if len(x.shape) > 1 else []),
    ]


@rule("nonzero", "nonzero_static", "argwhere")
def _nonzero(call: Call) -> list[Kernel]:
    return nonzero(call.need(0), call)


_ROWS = {
    "index_add_",
    "index_copy_",
    "index_reduce_",
    "index_fill_",
    "index_add",
    "index_copy",
    "index_fill",
    "index_reduce",
}
_PLACES = {"scatter_", "scatter_add_", "scatter_reduce_", "put_", "scatter", "scatter_add", "scatter_reduce", "put"}


@rule(*_ROWS, *_PLACES)
def _scatter(call: Call) -> list[Kernel]:
    table = call.need(0)
    before: list[Kernel] = []
    nbytes = 0
    inner = call
    if not call.in_place:
        before = [kernel("pointwise", table.numel, nbytes=2 * table.nbytes)]
        inner = Call(call.name + "_", call.args, (table,), call.flags)
    nbytes = total(inner, inner.outs or (table,))
    elements, _ = elements_of(inner, (table,))
    columns = 1
    if inner.name in _ROWS and table.shape:
        columns = table.numel // max(table.shape[int(call.number(1)) % len(table.shape)], 1)
    return [*before, kernel("scatter", elements // max(columns, 1), columns, nbytes=nbytes)]


@rule("index_put_", "_index_put_impl_", "_unsafe_index_put", "index_put", "_unsafe_masked_index_put_accumulate")
def _put(call: Call) -> list[Kernel]:
    """Without sums one kernel; with them, what makes one number of the indices, a sort, and sums of equal rows."""
    table, given = call.need(0), call.arg(1, ())
    before: list[Kernel] = []
    inner = call
    if call.name not in PUTS:
        before = [kernel("pointwise", table.numel, nbytes=2 * table.nbytes)]
        inner = Call("index_put_", call.args, (table,), call.flags)
    if given == ():  # the profiler does not write optional tensors
        return [*before, *_summed(call, table, call.need(2), max(len(table.shape), 1))]
    indices = [x for x in ((given,) if isinstance(given, Tensor) else given) if isinstance(x, Tensor)]
    for mask in (x for x in indices if x.dtype in ("bool", "uint8") and len(x.shape) > 1):
        before += nonzero(mask, call)
    nbytes = total(inner, ())
    elements, _ = elements_of(inner, ())
    columns = _row(table, (given,) if isinstance(given, Tensor) else given)
    rows = elements // max(columns, 1)
    if not call.arg(3, False) or not rows:
        return [*before, kernel("scatter", rows, columns, nbytes=nbytes)]
    return [*before, *_ordered(table, rows, columns, len(indices)), kernel("scatter", rows, columns, nbytes=nbytes)]


def _ordered(table: Tensor, rows: int, columns: int, count: int) -> list[Kernel]:
    """One number of so many indices, and their sort."""
    each = kernel("pointwise", rows, nbytes=24 * rows)
    order = kernel("fill", rows, nbytes=8 * rows)
    bits = max(table.numel // max(columns, 1), 2).bit_length()
    return [*[each] * (3 * count), order, *sorts(rows, bits, 32 * rows)]


def _summed(call: Call, table: Tensor, values: Tensor, most: int) -> list[Kernel]:
    """By the values alone: the axes that they have in common with the table are not indexed."""
    same = 0
    while same < min(most - 1, len(values.shape)) and values.shape[-1 - same] == table.shape[-1 - same]:
        same += 1
    columns = prod(table.shape[len(table.shape) - same :])
    rows = values.numel // max(columns, 1)
    adds = bool(call.arg(3, False))
    nbytes = (2 + adds) * values.nbytes + 8 * rows
    before = _ordered(table, rows, columns, len(table.shape) - same) if adds and rows else []
    return [*before, kernel("scatter", rows, columns, nbytes=nbytes)]


@rule("add", "sub")
def _added(call: Call) -> list[Kernel]:
    """Rows that a sparse operand stores are added in their places."""
    rows = next((x for x in call.given if x.sparse), None)
    if rows is None or all(x.sparse for x in call.given):
        return [of(call)]
    added = kernel("scatter", *(*rows.shape, 1)[:2], nbytes=3 * rows.nbytes)
    if call.name.endswith("_"):
        return [added]
    return [kernel("pointwise", call.need(0).numel, nbytes=2 * call.need(0).nbytes), added]


@rule("embedding_dense_backward", "_embedding_bag_dense_backward", "_embedding_bag_backward", "embedding_backward")
def _embedding_backward(call: Call) -> list[Kernel]:
    grad, index = call.need(0), call.need(1)
    bag = call.name.startswith("_embedding_bag")
    at = (6 if call.name == "_embedding_bag_backward" else 5) if bag else 2
    rows = call.outs[0].shape[0] if call.outs and call.outs[0].shape else int(call.number(at))
    columns = grad.shape[-1] if grad.shape else 1
    made = rows * columns * grad.itemsize
    clears = kernel("fill", rows * columns, nbytes=made)
    read = sum(x.nbytes for x in (grad, index))
    count = index.numel
    if call.name == "_embedding_bag_backward" and call.arg(9, False):
        return [kernel("gather", count, columns, nbytes=2 * count * columns * grad.itemsize + 8 * count)]
    if not count:
        return [clears]
    if not bag and count <= _FEW and call.number(3, -1) < 0:
        part = read + count * columns * grad.itemsize
        return [clears, kernel("embedding_backward", count, columns, rows, nbytes=part)]
    partial = kernel("embedding_backward", count, columns, rows, nbytes=read + count * columns * 4)
    places = kernel("pointwise", count, nbytes=16 * count)
    added = kernel("scatter", count, columns, nbytes=count * columns * (4 + grad.itemsize))
    order = [
        kernel("fill", count, nbytes=8 * count),
        *sorts(max(count, 2305), 64, 32 * count),
        counters(call.flags),
        kernel("scan", 1, count, nbytes=24 * count),
        kernel("scan", 1, count, nbytes=16 * count),
        counters(call.flags),
        *[places] * 3,
    ]
    if bag:
        order.insert(0, places)
    return [clears, *order, partial, added]


@rule("masked_fill_", "_masked_scale")
def _masked(call: Call) -> list[Kernel]:
    return [of(call)]


@rule("masked_fill")
def _masked_fill(call: Call) -> list[Kernel]:
    """A copy, which is filled."""
    one = of(call)
    out = call.outs[0] if call.outs else Tensor((one.dims[0],), call.need(0).dtype)
    copy = kernel("pointwise", out.numel, nbytes=2 * out.nbytes)
    return [copy, one]


@rule("where")
def _where(call: Call) -> list[Kernel]:
    return nonzero(call.need(0), call) if len(call.args) == 1 else [of(call)]


@rule("masked_scatter_", "masked_scatter")
def _masked_scatter(call: Call) -> list[Kernel]:
    mask = call.need(1)
    counts = kernel("scan", 1, mask.numel, nbytes=9 * mask.numel)
    return [kernel("cast", mask.numel, nbytes=9 * mask.numel), counts, of(call)]
