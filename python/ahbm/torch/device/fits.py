"""Whether a script fits its device, and what the most of its memory is: parameters, gradients, optimizer state, ..."""

from __future__ import annotations

import gc
import sys
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ahbm.torch.device import marks, memory
from ahbm.torch.device.meter import meter


def tag(tensors: Any, kind: str) -> None:
    """Says what tensors are."""
    for x in tensors:
        for part in marks.parts(x) or [x]:
            held = marks.storage(part)
            mark = None if held is None else marks.mark_of(held)
            if mark is not None and mark.use is not None:
                mark.use.kind = kind


def tag_optimizer(optimizer: Any) -> None:
    """Says what the tensors of an optimizer are."""
    every = [p for group in optimizer.param_groups for p in group["params"]]
    _shapes.update(tuple(p.shape) for p in every)
    tag(every, memory.PARAMETERS)
    tag((p.grad for p in every if p.grad is not None), memory.GRADIENTS)
    state = [x for one in optimizer.state.values() if isinstance(one, dict) for x in one.values()]
    tag((x for x in state if isinstance(x, torch.Tensor)), memory.STATE)


def weights() -> list[tuple[int, ...]]:
    """The shapes of all parameters that optimizers have had, each once."""
    return sorted(_shapes)


def tag_all() -> None:
    """Says what all tensors are that the script still has; takes a while."""
    optimizers = []
    for found in gc.get_objects():
        if isinstance(found, torch.nn.Parameter):
            tag([found], memory.PARAMETERS)
            if found.grad is not None:
                tag([found.grad], memory.GRADIENTS)
        elif isinstance(found, torch.optim.Optimizer):
            optimizers.append(found)
    for optimizer in optimizers:
        tag_optimizer(optimizer)


def facts() -> dict[str, Any]:
    """What an answer says of the memory of the current device."""
    held = memory.of(marks.current())
    failed = held.failed if ended[0] else None
    return {
        "peak": held.highest,
        "reserved": held.reserved.peak,
        "libraries": held.kept,
        "failed": failed,
        "capacity": held.capacity,
        "most": held.most() + ([("what was asked for last", held.asked)] if failed else []),
    }


def install() -> None:
    """Watches optimizers, for what their tensors are, and the end of the script."""

    def before(optimizer: Any, *_: Any) -> None:
        tag_optimizer(optimizer)
        memory.stepping[0] = True
        if meter.host is not None:
            meter.host.steps(optimizer)

    def after(optimizer: Any, *_: Any) -> None:
        memory.stepping[0] = False
        tag_optimizer(optimizer)

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)
    hooks = sys.excepthook

    def hook(kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, torch.OutOfMemoryError):
            ended[0] = True
            tag_all()
        hooks(kind, error, trace)

    sys.excepthook = hook


_shapes = set[tuple[int, ...]]()
ended = [False]
"""Whether the end of the memory has ended the script."""
SMALLEST = 0.05
"""The share from which on a kind is named."""


def words(found: list[dict[str, Any]]) -> str:
    """Whether it fits, and what the most of it is. `found`: the facts of every rank."""
    if not found:
        return ""
    worst = max(found, key=lambda one: (one["failed"] or 0, one["peak"]))
    needed, capacity = worst["failed"] or worst["peak"], worst["capacity"]
    rows = sorted(worst["most"], key=lambda row: -row[1])
    most = [(kind, nbytes) for kind, nbytes in rows if nbytes >= SMALLEST * needed]
    digits = 3 if needed < memory.GIB else 1

    def gib(nbytes: int) -> str:
        return f"{nbytes / memory.GIB:,.{digits}f}"

    head = f"{'does not fit' if worst['failed'] else 'fits'}: {gib(needed)} of {capacity / memory.GIB:,.0f} GiB"
    if not worst["failed"] and needed < 0.5 * capacity:
        return head
    return head + (f", most of it: {', '.join(f'{kind} {gib(nbytes)}' for kind, nbytes in most)}" if most else "")
