"""Memory that the libraries of a device take for as long as a kernel runs, and that tensors of the host do not show.

Seen with torch 2.11 on an H200: attention's backward sums the gradient of queries in f32, with a number a row, as
FlashAttention 2 and cuDNN do. Convolutions on tensor cores turn operands that lie by channels into channels_last.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from ahbm.torch.device import marks, memory
from ahbm.torch.device.smi import CAPABILITY

_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu_backward"
KINDS = {_ATTENTION, "convolution", "convolution_backward"}
"""Operations that take memory beside their results."""


def take(index: int | None, name: str, args: Any) -> None:
    """A kernel of a library runs on a device. Raises torch.OutOfMemoryError."""
    if index is None:
        return
    held = memory.of(index)
    if name == _ATTENTION:
        queries = args[1]
        held.scratch(4 * queries.numel() + 4 * queries.numel() // max(queries.shape[-1], 1))
    elif name == "convolution":
        held.scratch(_channels_last(args[0]))
    elif name == "convolution_backward":
        held.scratch(_channels_last(args[0]) + _channels_last(args[1]))
    else:
        held.library(CAPABILITY[0])


def _channels_last(x: torch.Tensor) -> int:
    """Bytes of a copy of an operand in channels_last, where cuDNN makes one."""
    if x.dim() not in (4, 5) or x.shape[1] == 1 or (x.dtype is torch.float32 and not torch.backends.cudnn.allow_tf32):
        return 0
    last = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
    return 0 if x.is_contiguous(memory_format=last) or x.dtype is torch.float64 else x.numel() * x.element_size()


# ---------------------------------------------------------------- what torch.compile does not keep

_FUSED = {
    "native_layer_norm", "native_layer_norm_backward", "native_group_norm", "native_group_norm_backward", "_softmax",
    "_softmax_backward_data", "_log_softmax", "_log_softmax_backward_data", "nll_loss_forward", "nll_loss_backward",
    "native_dropout", "native_dropout_backward", "_to_copy", "clone", "cat", "native_batch_norm", "_fused_rms_norm",
    "native_batch_norm_backward", "_native_batch_norm_legit", "_fused_rms_norm_backward", "mean", "var_mean",
    "slice_backward",
}  # fmt: skip
_depth = [0]
_compiled = [False]
_graphed = [False]
GRAPHED = ("reduce-overhead", "max-autotune")
"""Modes of `torch.compile` whose code is captured in CUDA graphs."""


def fuses(func: Any) -> bool:
    """Whether generated code makes an operation part of the kernels that read its result, and makes it again in
    backward where that is read there."""
    return torch.Tag.pointwise in func.tags or func._schema.name.rpartition("::")[2] in _FUSED


def passing(name: str, out: Any) -> bool:
    """Whether results that are fused take no memory now: in what is compiled, and in backward where something is. But
    casts to halves are operands of products, which are kept, and casts in backward are gradients."""
    if memory.in_backward():
        return _compiled[0] and name != "_to_copy"
    return _depth[0] > 0 and not (name == "_to_copy" and out.dtype in (torch.float16, torch.bfloat16))


def generates() -> bool:
    """Whether operations are now those of code that is generated: in what is compiled, and in backward where something
    is."""
    return _depth[0] > 0 or (_compiled[0] and memory.in_backward())


def graphed() -> bool:
    """Whether operations are now those of a graph that `torch.compile` has captured."""
    return _graphed[0] and generates()


def compiled() -> bool:
    """Whether the script has compiled anything."""
    return _compiled[0]


ends: list[Callable[[list[torch.Tensor]], None]] = []
"""Called with what compiled code returns."""


def _captures(kw: dict[str, Any]) -> None:
    options = kw.get("options") or {}
    if kw.get("mode") in GRAPHED or options.get("triton.cudagraphs"):
        _graphed[0] = True


def _enters(*_: Any) -> None:
    _depth[0] += 1


def _leaves(out: Any) -> None:
    """What compiled code returns lies in memory."""
    try:
        if _depth[0] == 1:
            found = [x for x in tree_leaves(out) if isinstance(x, torch.Tensor)]
            for x in found:
                marks.count(x)
            for end in ends:
                end(found)
    finally:
        _depth[0] -= 1


def install() -> None:
    """Has what `torch.compile` is given count as compiled."""
    compiles, compiles_module = torch.compile, torch.nn.Module.compile

    def enters(module: Any) -> Any:
        _compiled[0] = True
        function = module._call_impl if isinstance(module, torch.nn.Module) else module

        @functools.wraps(function)
        def run(*args: Any, **kw: Any) -> Any:
            _enters()
            out = None
            try:
                out = function(*args, **kw)
            finally:
                _leaves(out)
            return out

        if function is module:
            return run
        module._compiled_call_impl = run  # which torch calls, and leaves out of copies
        return module

    def compile_(model: Any = None, **kw: Any) -> Any:
        _captures(kw)
        made = compiles(model, **kw)
        return (lambda function: enters(made(function))) if model is None else enters(made)

    def compile_module(self: Any, *args: Any, **kw: Any) -> None:
        _captures(kw)
        compiles_module(self, *args, **kw)
        enters(self)

    torch.compile = compile_
    torch.nn.Module.compile = compile_module
