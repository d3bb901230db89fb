"""Memory that the libraries of a device take for as long as a kernel runs, and that tensors of the host do not show.

Seen with torch 2.11 on an H200: attention's backward sums the gradient of queries in f32, with a number a row, as
FlashAttention 2 and cuDNN do. Convolutions on tensor cores turn operands that lie by channels into channels_last.
"""

from __future__ import annotations

from typing import Any

import torch

from ahbm.torch.device import memory

GENERATION = 9
"""What scripts are told of the device's generation, see `module.CAPABILITY`."""
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
        held.scratch(_turned(args[0]))
    elif name == "convolution_backward":
        held.scratch(_turned(args[0]) + _turned(args[1]))
    else:
        held.library(GENERATION)


def _turned(x: torch.Tensor) -> int:
    """Bytes of a copy of an operand in channels_last, where cuDNN makes one."""
    if x.dim() not in (4, 5) or x.shape[1] == 1 or (x.dtype is torch.float32 and not torch.backends.cudnn.allow_tf32):
        return 0
    last = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
    return 0 if x.is_contiguous(memory_format=last) or x.dtype is torch.float64 else x.numel() * x.element_size()
