"""What is one operation on a device and many on the host: recurrent layers of cuDNN, and the norm by the root mean
square. The host calculates as it does; the meter sees the device's kernels, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from ahbm.kernels import Flags, Kernel, Tensor, describe
from ahbm.torch.device import marks
from ahbm.torch.device.described import bare
from ahbm.torch.device.meter import meter, quiet
from ahbm.torch.device.tf32 import in_tf32
from ahbm.torch.replacing import replace

Described = Callable[[Sequence[torch.Tensor], bool], tuple[str, tuple[Kernel, ...]]]
"""The name and the kernels of an operation by its tensors; True: of its gradient."""


def _run(described: Described, xs: Sequence[torch.Tensor], *, back: bool) -> None:
    meter.whole(*described(xs, back))


class _Fused(torch.autograd.Function):
    """`function` of tensors, in whose place the meter sees what `described` says. It is calculated again in backward
    where `again` says so, as what keeps no more than its operands is."""

    @staticmethod
    def forward(ctx: Any, function: Any, described: Any, again: bool, *xs: torch.Tensor) -> Any:
        ctx.function, ctx.described = function, described
        ctx.cast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        ctx.wanted = ctx.needs_input_grad[3:]
        ctx.kept = None
        with quiet():
            if again:
                outs = function(*xs)
                ctx.save_for_backward(*xs)
            else:
                ctx.kept = _made(function, xs, ctx.wanted)
                outs = tuple([out.detach() for out in ctx.kept[1]])
        _run(described, xs, back=False)
        return outs

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        with quiet():
            if ctx.kept is None:
                on, dtype = ctx.cast
                with torch.autocast("cpu", dtype=dtype, enabled=on):
                    inner, outs = _made(ctx.function, ctx.saved_tensors, ctx.wanted)
            else:
                inner, outs = ctx.kept
            ends = [(out, grad) for out, grad in zip(outs, grads, strict=True) if grad is not None and out.grad_fn]
            wanted = [x for x, want in zip(inner, ctx.wanted, strict=True) if want]
            found = torch.autograd.grad([a for a, _ in ends], wanted, [b for _, b in ends], allow_unused=True)
        ctx.kept = None
        _run(ctx.described, inner, back=True)
        left = iter(found)
        return None, None, None, *[next(left) if want else None for want in ctx.wanted]


def _made(function: Any, xs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> tuple[Any, Any]:
    with torch.enable_grad():
        inner = [x.detach().requires_grad_(want) for x, want in zip(xs, wanted, strict=True)]
        return inner, function(*inner)


_MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
"""cuDNN's numbers of the kinds of cells."""


def _recurrent(name: str, original: Any) -> Any:
    """A layer's function, given a tensor and hidden states, or a packed sequence with its sizes as well."""

    def layer(*args: Any) -> Any:
        leaves, tree = tree_flatten(args)
        at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        xs = [leaves[i] for i in at]
        if not xs or marks.where(xs[0]) is None or not xs[0].is_floating_point():
            return original(*args)
        packed = isinstance(args[3], list | tuple)
        layers, bidirectional = int(args[5 if packed else 4]), bool(args[8 if packed else 7])

        def function(*tensors: torch.Tensor) -> Any:
            given = list(leaves)
            for i, x in zip(at, tensors, strict=True):
                given[i] = x
            return original(*tree_unflatten(given, tree))

        def described(tensors: Sequence[torch.Tensor], back: bool) -> tuple[str, tuple[Kernel, ...]]:
            x = bare(tensors[0])
            if packed:
                sizes = args[1]
                x = Tensor((sizes.numel(), -(-x.shape[0] // max(sizes.numel(), 1)), x.shape[1]), x.dtype)
            elif len(x.shape) == 3 and args[8]:
                x = Tensor((x.shape[1], x.shape[0], x.shape[2]), x.dtype)
            states = args[2] if packed else args[1]
            hidden = (states[-1] if isinstance(states, list | tuple) else states).shape[-1]
            rest = (_MODES[name], hidden, 0, layers, False, 0.0, True, bidirectional)
            before = (x, *[None] * (9 if back else 5))
            flags = Flags(tf32_convolutions=in_tf32(True), units=meter.units)
            title = "_cudnn_rnn_backward" if back else "_cudnn_rnn"
            return title, describe(title, (*before, *rest), flags=flags)

        return _applied(function, described, xs, again=False)

    return layer


def _applied(function: Any, described: Described, xs: Sequence[torch.Tensor], *, again: bool) -> Any:
    if torch.is_grad_enabled() and any(x.requires_grad for x in xs):
        return _Fused.apply(function, described, again, *xs)
    with quiet():
        out = function(*xs)
    _run(described, xs, back=False)
    return out


def _rms_norm(original: Any) -> Any:
    def rms_norm(
        input: torch.Tensor, normalized_shape: Any, weight: torch.Tensor | None = None, eps: float | None = None
    ) -> Any:
        """`torch.rms_norm`, one kernel on a device. With data, its parts keep the rounding of the host."""
        if marks.fake[0] is None or marks.where(input) is None or not input.is_floating_point():
            return original(input, normalized_shape, weight, eps)
        shape = tuple(normalized_shape)

        def function(x: torch.Tensor, w: torch.Tensor | None = None) -> Any:
            return (original(x, shape, w, eps),)

        def described(xs: Sequence[torch.Tensor], back: bool) -> tuple[str, tuple[Kernel, ...]]:
            x, *weights = [bare(each) for each in xs]
            w = weights[0] if weights else None
            if not back:
                return "_fused_rms_norm", describe("_fused_rms_norm", (x, shape, w, eps))
            stats = Tensor((x.numel // max(Tensor(shape).numel, 1),))
            wanted = (True, w is not None)
            name = "_fused_rms_norm_backward"
            return name, describe(name, (x, x, shape, stats, w, wanted), flags=Flags(units=meter.units))

        xs = [input] if weight is None else [input, weight]
        return _applied(function, described, xs, again=True)[0]

    return rms_norm


def install() -> None:
    """Puts all this in torch's place."""
    functions: Any = torch._VF
    for name in _MODES:
        setattr(functions, name, _recurrent(name, getattr(functions, name)))
    replace(torch.rms_norm, _rms_norm(torch.rms_norm))
