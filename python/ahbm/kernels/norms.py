"""Norms over rows, groups and batches, and their gradients."""

from __future__ import annotations

from math import prod

from ahbm.kernels.elements import in_order
from ahbm.kernels.model import Call, Flags, Kernel, Tensor, kernel
from ahbm.kernels.reductions import counters, reducing
from ahbm.kernels.rules import rule
from ahbm.kernels.touched import once, total


def _rows(x: Tensor, shape: tuple[int, ...]) -> tuple[int, int]:
    columns = prod(shape) or 1
    return x.numel // columns, columns


@rule("native_layer_norm", "_fused_rms_norm")
def _norm(call: Call) -> list[Kernel]:
    x = call.need(0)
    rows, columns = _rows(x, call.ints(1))
    if not x.numel:
        return []
    stats = Tensor((rows,), "float32")
    outs = call.outs or (Tensor(x.shape, x.dtype), stats, stats)
    return [kernel("norm", rows, columns, nbytes=total(call, outs), arithmetic=call.arithmetic(multiplies=False))]


@rule("native_layer_norm_backward", "_fused_rms_norm_backward")
def _norm_backward(call: Call) -> list[Kernel]:
    """The gradient of the input, and that of the weights by columns."""
    x = call.need(1)
    rows, columns = _rows(x, call.ints(2))
    if not x.numel:
        return []
    layer = call.name.startswith("native")
    wanted = call.mask(7 if layer else 5, 3 if layer else 2)
    found = []
    arithmetic = call.arithmetic(x, multiplies=False)
    read = once(call.given)
    if wanted[0]:
        found.append(kernel("norm_backward", rows, columns, nbytes=read + x.numel * x.itemsize, arithmetic=arithmetic))
    weight = call.tensor(5 if layer else 4)
    if any(wanted[1:]) and weight is not None:
        many = sum(wanted[1:]) * weight.numel * weight.itemsize
        found.append(kernel("norm_weights", rows, columns, nbytes=read + many, arithmetic=arithmetic))
        if rows > 64 * 1024 and columns // 32 < call.flags.units // 2:  # by parts, which are added up
            parts = Tensor((128, columns), "float32")
            for _ in range(sum(wanted[1:])):
                found += reducing(parts, (0,), call.flags)
    return found


@rule("native_group_norm")
def _group_norm(call: Call) -> list[Kernel]:
    """The moments of each group, what they make of the weights, and the elements."""
    x = call.need(0)
    groups = int(call.number(6, 1))
    if not x.numel:
        return []
    rows = x.shape[0] * groups
    outs = call.outs or (Tensor(x.shape, x.dtype), Tensor((rows,)), Tensor((rows,)))
    channels = x.shape[0] * x.shape[1] if len(x.shape) > 1 else rows
    return [
        *in_order(x),
        kernel("norm", rows, x.numel // rows, nbytes=x.nbytes + 8 * rows),
        kernel("pointwise", channels, nbytes=16 * channels),
        kernel("broadcast", x.numel, nbytes=total(call, outs), arithmetic=call.arithmetic(multiplies=False)),
    ]


@rule("native_group_norm_backward")
def _group_norm_backward(call: Call) -> list[Kernel]:
    x = call.need(1)
    channels = x.shape[0] * x.shape[1] if len(x.shape) > 1 else 1
    if not x.numel:
        return []
    wanted = call.mask(9, 3)
    groups = x.shape[0] * int(call.number(8, 1))
    both = 2 * x.nbytes
    found = [
        *in_order(x),
        *in_order(call.need(0)),
        kernel("reduce", channels, x.numel // channels, 1, nbytes=both + 8 * channels),
    ]
    if wanted[0]:
        found += [
            kernel("pointwise", channels, nbytes=12 * channels),
            kernel("pointwise", groups, nbytes=16 * groups),
            kernel("broadcast", x.numel, nbytes=both + x.numel * x.itemsize),
        ]
    if any(wanted[1:]):
        found.append(kernel("reduce", 1, x.shape[0], x.shape[1], nbytes=12 * channels))
    return found


def _batch(x: Tensor) -> tuple[int, int, int, int]:
    n, c = (*x.shape, 1, 1)[:2]
    spatial = prod(x.shape[2:])
    return n, c, spatial, int(x.channels_last or (len(x.shape) == 2))


def _by_cudnn(x: Tensor, weight: Tensor | None) -> bool:
    """Whether cuDNN does it (torch's `_select_batch_norm_backend`)."""
    if weight is None or len(x.shape) < 3 or "bfloat16" in (x.dtype, weight.dtype):
        return False
    return x.dtype != "float16" or weight.dtype == "float32"


_TRAINING = {
    "native_batch_norm": 5, "cudnn_batch_norm": 5, "_native_batch_norm_legit": 5,
    "_batch_norm_with_update": -1, "miopen_batch_norm": 5, "_native_batch_norm_legit_functional": 5,
    "_batch_norm_with_update_functional": -1, "_batch_norm_no_update": -2, "_native_batch_norm_legit_no_training": -2,
    "_native_batch_norm_legit_no_stats": 3,
}  # fmt: skip
"""Batch norms with the place of their argument `training`; -1: always, -2: never."""


@rule(*_TRAINING)
def _batch_norm(call: Call) -> list[Kernel]:
    x, weight = call.need(0), call.tensor(1)
    if not x.numel:
        return []
    dims = _batch(x)
    place = _TRAINING[call.name]
    trains = place == -1 or (place >= 0 and bool(call.arg(place, True)))
    stats = Tensor((dims[1],))
    outs = call.outs or (Tensor(x.shape, x.dtype), stats, stats)
    nbytes = total(call, outs)
    arithmetic = call.arithmetic(multiplies=False)
    if not trains:
        found = [kernel("broadcast", x.numel, nbytes=nbytes, arithmetic=arithmetic)]
        return found if _by_cudnn(x, weight) else [kernel("pointwise", dims[1], nbytes=8 * dims[1]), *found]
    if call.name == "cudnn_batch_norm" or _by_cudnn(x, weight):
        return [kernel("batch_norm", *dims, nbytes=nbytes, arithmetic=arithmetic)]
    return [
        *_cleared(dims, call.flags),
        kernel("batch_norm", *dims, nbytes=x.nbytes + 8 * dims[1], arithmetic=arithmetic),
        kernel("pointwise", dims[1], nbytes=32 * dims[1]),
        kernel("batch_norm", *dims, nbytes=nbytes, arithmetic=arithmetic),
    ]


def _cleared(dims: tuple[int, int, int, int], flags: Flags) -> list[Kernel]:
    """Blocks that share channels, as those of channels_last do, have counters."""
    return [counters(flags)] if dims[3] else []


@rule("native_batch_norm_backward", "cudnn_batch_norm_backward", "batch_norm_backward", "miopen_batch_norm_backward")
def _batch_norm_backward(call: Call) -> list[Kernel]:
    cudnn = call.name.startswith(("cudnn", "miopen"))
    x = call.need(0 if cudnn else 1)
    weight = call.tensor(2)
    if not x.numel:
        return []
    dims = _batch(x)
    stats = Tensor((dims[1],))
    nbytes = total(call, call.outs or (Tensor(x.shape, x.dtype), stats, stats))
    arithmetic = call.arithmetic(x, multiplies=False)
    if cudnn or _by_cudnn(x, weight) or not dims[3]:
        return [kernel("batch_norm_backward", *dims, nbytes=nbytes, arithmetic=arithmetic)]
    return [
        *_cleared(dims, call.flags),
        kernel("batch_norm_backward", *dims, nbytes=2 * x.nbytes + 16 * dims[1], arithmetic=arithmetic),
        kernel("batch_norm_backward", *dims, nbytes=nbytes, arithmetic=arithmetic),
    ]
