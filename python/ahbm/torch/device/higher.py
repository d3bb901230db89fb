"""Operators that are given functions: `torch.cond`, loops, and `flex_attention`.

A device is given the operations that their dense definitions are made of. In generated code, `flex_attention` is one
kernel of the blocks that its mask has.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from ahbm.base.logs import notice
from ahbm.kernels import Flags, describe
from ahbm.torch.device import described, kernels, marks, native, scratch, values
from ahbm.torch.device.meter import quiet
from ahbm.torch.device.tf32 import in_tf32

_MODULE = "torch.nn.attention.flex_attention"
_FLEX = ("flex_attention", "flex_attention_backward")
_BLOCKS, _FULL, _COLUMNS = 2, 4, -2
"""Where a mask has how many blocks each row of blocks has, those without a masked element, and the keys of a block."""
_SEEN = 4
"""Elements of each block, along either side, that a mask without data is made of."""
_SHARE = 0.5
"""Of the blocks, what a mask without data is said to have."""


def install() -> None:
    """Runs operators from now on; `flex_attention` is called as it is, without a compilation of its own."""
    kernels.operators[0] = run
    native.when_imported((_MODULE,), _uncompiled)


def _uncompiled(module: Any) -> None:
    module._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True
    makes = module.create_block_mask

    @functools.wraps(makes)
    def create_block_mask(
        mask_mod: Any, B: Any, H: Any, Q_LEN: int, KV_LEN: int, device: Any = None, BLOCK_SIZE: Any = 128, **kw: Any
    ) -> Any:
        """That of a mask too large to have data (`--fake`) is made of some elements of each block."""
        sides = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
        each = (B or 1) * (H or 1)
        sampled = each * Q_LEN * KV_LEN > values.INTEGERS and min(sides) > _SEEN
        if marks.fake[0] is None or not sampled:
            return makes(mask_mod, B, H, Q_LEN, KV_LEN, device, BLOCK_SIZE, **kw)
        places = [_sampled(length, side, device) for length, side in zip((Q_LEN, KV_LEN), sides, strict=True)]

        def some(b: Any, h: Any, i: Any, j: Any) -> Any:
            return mask_mod(b, h, places[0][i], places[1][j])

        made = makes(some, B, H, *map(len, places), device, _SEEN, **kw)
        made.seq_lengths, made.BLOCK_SIZE, made.mask_mod = (Q_LEN, KV_LEN), sides, mask_mod
        return made

    module.create_block_mask = create_block_mask


def _sampled(length: int, side: int, device: Any) -> torch.Tensor:
    """Places of a sequence: some of each block, the first and the last among them."""
    blocks = range(0, length, side)
    at = [
        start + min(part * (side - 1) // (_SEEN - 1), length - start - 1) for start in blocks for part in range(_SEEN)
    ]
    return torch.tensor(at, device=marks.KIND if device is None else device)


def run(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Runs an operator that is given functions."""
    name = func.name()
    if name in _FLEX:
        if scratch.generates():
            return _fused(mode, func, name, args, kwargs)
        notice("flex_attention outside of torch.compile is many kernels, and holds all scores")
        with mode:
            return func.py_kernels[torch._C.DispatchKey.CompositeExplicitAutograd](*args, **kwargs)
    with mode:
        if name == "cond":
            return args[1 if args[0] else 2](*args[3])
        if name == "while_loop":
            return _loop(*args)
    out = func(*args, **kwargs)
    _put(out, next(filter(None.__ne__, (marks.where(x) for x in _tensors((args, kwargs)))), None))
    return out


def _tensors(values: Any) -> list[torch.Tensor]:
    return [x for x in tree_leaves(values) if isinstance(x, torch.Tensor)]


def _put(out: Any, index: int | None) -> None:
    for x in _tensors(out) if index is not None else ():
        marks.put(x, index)


def _loop(again: Any, body: Any, carried: Any, beside: Any = ()) -> Any:
    while again(*carried, *beside):
        carried = tuple(body(*carried, *beside))
    return carried


def _fused(mode: Any, func: Any, name: str, args: Any, kwargs: Any) -> Any:
    query, key, value = args[:3]
    keys = _keys(args[9 if name.endswith("backward") else 4], key.shape[-2])
    with quiet():
        if mode.fake is not None and any(map(values.hollow, args[:3])):
            with values.Faking(mode.fake):
                out = func(*args, **kwargs)
        else:
            out = func(*args, **kwargs)
    _put(out, marks.where(query))
    flags = Flags(tf32_products=in_tf32(False), units=mode.meter.units)
    given = [query, key, value]
    found = describe(name, (*map(described.bare, given), keys), flags=flags)
    mode.meter.starts(name, found, out, given)
    return out


def _keys(mask: Any, keys: int) -> int:
    """How many keys the blocks of a query have, as a mean."""
    counted = [values.data(x) for x in (mask[_BLOCKS], mask[_FULL]) if x is not None]
    if any(x is None for x in counted):
        notice("--fake invents blocks: a mask of flex_attention that has no data has half of its blocks")
        return max(round(keys * _SHARE), 1)
    blocks = sum(float(x.double().mean()) for x in counted if x is not None)
    return max(min(round(blocks * int(mask[_COLUMNS])), keys), 1)
