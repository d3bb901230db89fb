"""Kernels of lists of tensors, and optimizers that are fused: torch's `multi_tensor_apply`."""

from __future__ import annotations

from collections.abc import Sequence

from ahbm.kernels.model import Call, Kernel, Tensor, kernel
from ahbm.kernels.rules import rule

CHUNK = 65536
BLOCKS = 320
TENSORS = (110, 64, 48, 36, 30)
SCALED = (96, 64, 48, 36, 30)
"""Tensors of a launch by how many lists it has, without and with a number for each tensor (`MultiTensorApply.cuh`)."""
_FUSED = {
    "_fused_adam_": ((0, 2, 3, 4), 4), "_fused_adamw_": ((0, 2, 3, 4), 4), "_fused_sgd_": ((0, 2), 2),
    "_fused_adagrad_": ((0, 2), 3), "_fused_adam": ((0, 2, 3, 4), 4), "_fused_adamw": ((0, 2, 3, 4), 4),
    "_fused_sgd": ((0, 2), 2), "_fused_adagrad": ((0, 2), 3), "_fused_muon_": ((0, 2), 3),
}  # fmt: skip
"""Fused optimizers: the lists that they write, and how many they have at least."""


def launches(sizes: Sequence[int], depth: int, *, scalars: bool = False) -> list[tuple[int, int]]:
    """The tensors and elements of each launch for lists of tensors of these sizes."""
    most = (SCALED if scalars else TENSORS)[min(max(depth, 1), 5) - 1]
    found: list[tuple[int, int]] = []
    tensors = blocks = elements = 0
    for size in sizes:
        if not size:
            continue
        tensors += 1
        chunks = -(-size // CHUNK)
        left = chunks
        while left:
            take = min(left, BLOCKS - blocks)
            blocks += take
            left -= take
            elements += min(take * CHUNK, size - (chunks - left - take) * CHUNK)
            full = blocks == BLOCKS or (not left and tensors == most)
            if full:
                found.append((tensors, elements))
                blocks = elements = 0
                tensors = 1 if left else 0
    if blocks:
        found.append((tensors, elements))
    return found


def _lists(call: Call) -> list[tuple[Tensor, ...]]:
    return [
        arg for arg in call.args if isinstance(arg, tuple) and arg and all(isinstance(each, Tensor) for each in arg)
    ]


def each_of(call: Call, lists: Sequence[Sequence[Tensor]], depth: int, nbytes: int, *, scalars: bool) -> list[Kernel]:
    """The launches for lists of tensors, which have so many bytes together."""
    sizes = [x.numel for x in lists[0]]
    whole = sum(sizes)
    arithmetic = call.arithmetic(lists[0][0], multiplies=False)
    found, done = [], 0
    for tensors, elements in launches(sizes, depth, scalars=scalars):
        before, done = done, done + elements
        share = nbytes * done // whole - nbytes * before // whole
        found.append(kernel("foreach", tensors, elements, nbytes=share, arithmetic=arithmetic))
    return found


@rule(*_FUSED)
def _fused(call: Call) -> list[Kernel]:
    written, depth = _FUSED[call.name]
    lists = _lists(call)
    if not lists:
        return []
    states = [arg for arg in lists[1:] if len(arg) == len(lists[0]) and arg[0].numel == lists[0][0].numel]
    depth = max(depth, 1 + len(states))
    read = sum(x.nbytes for arg in lists for x in arg)
    writes = sum(x.nbytes for at in written for x in call.arg(at, ()) if isinstance(x, Tensor))
    return each_of(call, lists, depth, read + writes, scalars=False)


def foreach(call: Call) -> list[Kernel]:
    """Of a `_foreach_` operation: one kernel for many tensors of one type; else one for each tensor."""
    lists = _lists(call)
    if not lists:
        return []
    first = lists[0]
    written = call.name.endswith("_")
    name = call.name.removeprefix("_foreach_").rstrip("_")
    if name == "copy":
        nbytes = sum(x.nbytes for arg in lists[:2] for x in arg)
    elif name == "zero":
        nbytes = sum(x.nbytes for x in first)
    else:
        read = sum(x.nbytes for arg in lists for x in arg if not x.again)
        made = call.outs if call.outs is not None and not written else first
        nbytes = read + sum(x.nbytes for x in made)
    depth = len(lists) + (not written)
    if name in ("norm", "max", "powsum"):
        nbytes = sum(x.nbytes for x in first)
        found = each_of(call, lists, 1, nbytes, scalars=False)
        return [kernel("fill", 320 * len(first), nbytes=4 * len(first)), *found, _cleanup(first)]
    if len({x.dtype for arg in lists for x in arg}) > 1 and name != "copy":
        return _apart(lists, nbytes)
    numbers = call.arg(len(lists), ())
    scalars = isinstance(numbers, tuple) and len(numbers) == len(first)
    return each_of(call, lists, depth, nbytes, scalars=scalars)


def _cleanup(xs: Sequence[Tensor]) -> Kernel:
    return kernel("reduce", len(xs), CHUNK // 128, 1, nbytes=8 * len(xs))


def _apart(lists: Sequence[Sequence[Tensor]], nbytes: int) -> list[Kernel]:
    whole = sum(x.numel for x in lists[0]) or 1
    return [kernel("cast", x.numel, nbytes=nbytes * x.numel // whole) for x in lists[0] if x.numel]


@rule("_amp_foreach_non_finite_check_and_unscale_", "_amp_foreach_non_finite_check_and_unscale")
def _unscaled(call: Call) -> list[Kernel]:
    lists = _lists(call)
    if not lists:
        return []
    return each_of(call, lists[:1], 1, 2 * sum(x.nbytes for x in lists[0]), scalars=False)
