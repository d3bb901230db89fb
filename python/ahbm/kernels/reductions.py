"""Kernels that reduce: sums and the like by the blocks that torch gives them, softmax, sums that run, sorts."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ahbm.kernels.elements import of
from ahbm.kernels.model import Call, Flags, Kernel, Tensor, Unknown, kernel
from ahbm.kernels.rules import rule
from ahbm.kernels.touched import total

_THREADS = 512
_RESIDENT = 2048
"""Threads of a multiprocessor."""
_DIMS = {
    "sum": 1, "mean": 1, "amax": 1, "amin": 1, "any": 1, "all": 1, "prod": 1, "max": 1, "min": 1, "argmax": 1,
    "argmin": 1, "std": 1, "var": 1, "var_mean": 1, "std_mean": 1, "nansum": 1, "nanmean": 1, "count_nonzero": 1,
    "linalg_vector_norm": 2, "norm": 2, "aminmax": -1, "_is_all_true": -1, "_is_any_true": -1, "trace": -1,
    "sum_to_size": -1, "dot": -1, "vdot": -1, "_linalg_check_errors": -1, "equal": -1, "renorm": -1, "dist": -1,
}  # fmt: skip
"""Reductions with the place of the axes that they reduce."""


@rule(*_DIMS)
def _reduce(call: Call) -> list[Kernel]:
    x = call.need(0)
    axes = axes_of(x, call.ints(_DIMS[call.name]))
    if call.name in ("max", "min") and call.tensor(1) is not None:
        return [of(call)]
    return reducing(x, axes, call.flags, _bytes(call, x, axes))


def _bytes(call: Call, x: Tensor, axes: tuple[int, ...]) -> int:
    if call.outs is not None:
        return total(call, call.outs)
    kept = prod(n for i, n in enumerate(x.shape) if i not in axes)
    return x.nbytes + kept * x.itemsize


def axes_of(x: Tensor, given: tuple[int, ...]) -> tuple[int, ...]:
    """Axes that are named: all where none is."""
    count = len(x.shape)
    named = tuple(sorted({at % count for at in given if -count <= at < count})) if count else ()
    return named or tuple(range(count))


def reducing(x: Tensor, axes: tuple[int, ...], flags: Flags, nbytes: int | None = None) -> list[Kernel]:
    """The kernels of a reduction: one, and what clears the counters of blocks that share an output."""
    if not x.numel:
        return []
    outer, reduced, inner = _sides(x, axes)
    if nbytes is None:
        nbytes = x.nbytes + outer * inner * x.itemsize
    main = kernel(
        "reduce", outer, reduced, inner, nbytes=nbytes, arithmetic=Call("", (x,)).arithmetic(multiplies=False)
    )
    return [counters(flags), main] if shared(outer, reduced, inner, flags.units) else [main]


def counters(flags: Flags) -> Kernel:
    """What sets the counters of a kernel's blocks to zero."""
    return kernel("fill", flags.units)


def _sides(x: Tensor, axes: Sequence[int]) -> tuple[int, int, int]:
    """A reduction as the outputs outside, what is reduced, and the outputs inside, as its elements lie in memory."""
    step = x.step
    kept = [i for i in range(len(x.shape)) if i not in axes and x.shape[i] > 1]
    gone = [i for i in axes if x.shape[i] > 1]
    reduced = prod(x.shape[i] for i in gone)
    if not gone:
        return prod(x.shape[i] for i in kept), 1, 1
    slowest = max(step[i] for i in gone)
    quickest = min(step[i] for i in gone)
    outer = prod(x.shape[i] for i in kept if step[i] > quickest)
    inner = prod(x.shape[i] for i in kept if step[i] <= quickest)
    if outer > 1 and inner > 1 and all(step[i] > slowest for i in kept if step[i] > quickest):
        return outer, reduced, inner
    return (outer * inner, reduced, 1) if inner == 1 else (1 if outer == 1 else outer, reduced, inner)


def shared(outer: int, reduced: int, inner: int, units: int) -> bool:
    """Whether several blocks reduce one output, by torch's `setReduceConfig` (aten/src/ATen/native/cuda/Reduce.cuh)."""
    outputs = outer * inner
    along = inner == 1
    if along:
        wide = 4 if outputs == 1 and reduced > 128 else 1
        first, second, vector = reduced // wide, outputs, 1
    else:
        vector = next(n for n in (4, 2, 1) if inner % n == 0)
        first, second = outputs // vector, reduced
    most = _THREADS // vector
    first, second = (min(1 << max(n.bit_length() - 1, 0), most) for n in (max(first, 1), max(second, 1)))
    width = min(first, 32)
    height = min(second, most // width)
    width = min(first, most // height)
    values = -(-reduced // width) if along else reduced
    if values < height * 16 and values < 256:
        return False
    values = -(-values // height)
    blocks = -(-(outputs // vector) // (1 if along else width))
    target = units * (_RESIDENT // (width * height))
    if values < 256 or blocks > target:
        return False
    return max(min(-(-target // blocks), -(-values // 16)), -(-values // 256)) > 1


@rule("_softmax", "_log_softmax", "_safe_softmax", "_masked_softmax")
def _softmax(call: Call) -> list[Kernel]:
    return _rows("softmax", call, call.need(0), int(call.number(1, -1)))


@rule("_softmax_backward_data", "_log_softmax_backward_data", "_masked_softmax_backward")
def _softmax_backward(call: Call) -> list[Kernel]:
    found = _rows("softmax_backward", call, call.need(0), int(call.number(2, -1)))
    if found and "log" not in call.name:  # torch multiplies the gradient by the result first
        x = call.need(0)
        found.insert(0, kernel("pointwise", x.numel, nbytes=2 * x.nbytes + x.numel * x.itemsize))
    return found


def _rows(kind: str, call: Call, x: Tensor, axis: int) -> list[Kernel]:
    columns = x.shape[axis] if x.shape and -len(x.shape) <= axis < len(x.shape) else 1
    if not x.numel:
        return []
    outs = call.outs or (Tensor(x.shape, x.dtype),)
    arithmetic = call.arithmetic(x, multiplies=False)
    return [kernel(kind, x.numel // columns, columns, nbytes=total(call, outs), arithmetic=arithmetic)]


@rule("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "_cummax_helper", "_cummin_helper")
def _scan(call: Call) -> list[Kernel]:
    return _rows("scan", call, call.need(0), int(call.number(1, -1)))


@rule("logsumexp")
def _logsumexp(call: Call) -> list[Kernel]:
    """The largest, the differences' exponentials, their sum, its logarithm."""
    x = call.need(0)
    axes = axes_of(x, call.ints(1))
    each = Call("sub", (x,), (Tensor(x.shape, x.dtype, x.strides),), call.flags)
    largest = reducing(x, axes, call.flags)
    return [*largest, of(each), of(each), *reducing(x, axes, call.flags, _bytes(call, x, axes))]


_SINGLE = 2304
"""Keys that a single block sorts."""


def sorts(count: int, bits: int, nbytes: int) -> list[Kernel]:
    """CUB's sort of so many pairs by their lowest bits: one block, or a pass for every eight bits."""
    if count <= _SINGLE:
        return [kernel("sort", 1, count, nbytes=nbytes)]
    passes = -(-bits // 8)
    clears = [kernel("fill", 256, nbytes=1024)] * (2 + passes)
    each = kernel("sort", 1, count, nbytes=nbytes)
    read = kernel("reduce", 1, count, 1, nbytes=nbytes // 2)
    return [*clears, read, kernel("scan", 1, 256 * passes, nbytes=2048 * passes), *[each] * passes]


@rule("sort", "argsort", "msort", "kthvalue", "median", "nanmedian", "mode", "topk")
def _sort(call: Call) -> list[Kernel]:
    x = call.need(0)
    axis = {"kthvalue": 2, "topk": 2}.get(call.name, 1)
    at = int(call.number(axis, -1)) if len(call.args) > axis and not isinstance(call.args[axis], bool) else -1
    columns = x.shape[at] if x.shape and -len(x.shape) <= at < len(x.shape) else 1
    if not x.numel:
        return []
    outs = call.outs or (x, Tensor(x.shape, "int64"))
    nbytes = total(call, outs)
    rows = x.numel // columns
    if call.name == "topk":
        few = int(call.number(1, 1))
        return [kernel("sort", rows, columns, nbytes=nbytes), kernel("sort", rows, few, nbytes=rows * few * 24)]
    if call.name in ("kthvalue", "median", "nanmedian", "mode"):
        return [kernel("sort", rows, columns, nbytes=nbytes)]
    index = kernel("fill", x.numel, nbytes=8 * x.numel)
    copy = kernel("pointwise", x.numel, nbytes=2 * x.nbytes)
    if columns <= 4096:
        return [copy, index, kernel("sort", rows, columns, nbytes=nbytes)]
    return [copy, index, *sorts(x.numel, 8 * x.itemsize, nbytes)]


@rule("randperm")
def _randperm(call: Call) -> list[Kernel]:
    count = call.outs[0].numel if call.outs else int(call.number(0))
    if not count:
        return []
    return [kernel("random", count, nbytes=8 * count), *sorts(count, 64, 32 * count)]


@rule("unique_dim", "_unique", "_unique2", "unique_consecutive", "bincount", "histc", "unique_dim_consecutive")
def _unique(call: Call) -> list[Kernel]:
    x = call.need(0)
    nbytes = 2 * x.nbytes
    return [*sorts(x.numel, 8 * x.itemsize, nbytes), *[kernel("scan", 1, x.numel, nbytes=nbytes)] * 4]


@rule("multinomial")
def _multinomial(call: Call) -> list[Kernel]:
    x = call.need(0)
    columns = x.shape[-1] if x.shape else 1
    rows = x.numel // max(columns, 1)
    checks = [kernel("reduce", 1, x.numel, 1, nbytes=x.nbytes)] * 3
    draws = [kernel("random", x.numel, nbytes=2 * x.nbytes), kernel("pointwise", x.numel, nbytes=3 * x.nbytes)]
    return [*checks, *draws, kernel("reduce", rows, columns, 1, nbytes=x.nbytes)]


@rule("searchsorted", "bucketize")
def _search(call: Call) -> list[Kernel]:
    values = call.tensor(1) if call.name == "searchsorted" else call.tensor(0)
    if values is None:
        raise Unknown(call.name)
    return [kernel("gather", values.numel, 1, nbytes=values.nbytes + 8 * values.numel)]
