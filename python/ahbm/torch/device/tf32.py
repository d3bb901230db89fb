"""Which products torch's flags let a device do in TF32."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch

_precision: Callable[[str, str], str] | None = getattr(torch._C, "_get_fp32_precision_getter", None)


def in_tf32(convolves: bool) -> bool:
    """Whether products, or convolutions, of f32 are done in TF32."""
    if os.environ.get("NVIDIA_TF32_OVERRIDE") == "0":
        return False
    if _precision is not None:
        return _precision("cuda", "conv" if convolves else "matmul") == "tf32"
    flags = torch.backends.cudnn if convolves else torch.backends.cuda.matmul
    return bool(flags.allow_tf32)
