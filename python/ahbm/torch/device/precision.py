"""Types of two bytes that a kernel of a GPU has and the host's has not: calculated in f32, and rounded once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch

from ahbm.torch.device import gpu_only, marks, native

_NARROW = (torch.float16, torch.bfloat16)
_MISSING = re.compile(
    "not implemented for '(Half|BFloat16|ComplexHalf)'|could not create a primitive|"
    "(not support|[Uu]nsupported|[Ee]xpected|only).*(Half|BFloat16|half|bfloat16|[Ff]loat16|fp16|bf16)"
)


def again(func: Any, known: Any, args: Any, kwargs: Any, given: Sequence[torch.Tensor], error: Exception) -> Any:
    """What a device's kernel makes of arguments with which the host's has raised `error`.

    Raises UnsupportedError (AHBM-U156) for a kernel that only GPUs have, else `error`.
    """
    if not any(marks.where(x) is not None for x in given):
        raise error
    of_gpu = gpu_only.find(func)
    if of_gpu is not None:
        return of_gpu(*args, **kwargs)
    narrow = next((x.dtype for x in given if x.dtype in _NARROW), None)
    if narrow is not None and _MISSING.search(str(error)) is not None:
        return _in_f32(func, known, args, kwargs, narrow)
    if native.speaks_of_a_driver(error):
        raise native.refusal(f"the kernel {func}", native.first_line(error)) from error
    raise error


def _in_f32(func: Any, known: Any, args: Any, kwargs: Any, narrow: torch.dtype) -> Any:
    wide: dict[int, torch.Tensor] = {}

    def widened(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if value.dtype not in _NARROW:
                return value
            return wide.setdefault(id(value), value.float())
        if value in _NARROW if isinstance(value, torch.dtype) else False:
            return torch.float32
        if type(value) in (list, tuple):
            return type(value)(map(widened, value))
        return {key: widened(each) for key, each in value.items()} if type(value) is dict else value

    def narrowed(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            for key, each in wide.items():
                if each is value:
                    return originals[key]
            return value.to(narrow) if value.dtype is torch.float32 else value
        return type(value)(map(narrowed, value)) if type(value) in (list, tuple) else value

    originals: dict[int, torch.Tensor] = {}
    for x in torch.utils._pytree.tree_leaves((args, kwargs)):
        if isinstance(x, torch.Tensor):
            originals[id(x)] = x
    out = func(*widened(args), **widened(kwargs))
    if known.writes_operands:
        for key, each in wide.items():
            originals[key].copy_(each)
    return narrowed(out)
