"""Calls as events of torch's profiler: tensors, and group, ranks, root, peer and splits as JSON."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

F = TypeVar("F", bound=Callable[..., Any])

_profiling: Callable[[], bool] = torch.autograd._profiler_enabled


def recorded(method: F) -> F:
    """Wraps a method of `Collectives`; costs one test while no profiler is on."""

    @functools.wraps(method)
    def wrapper(self: Any, *args: Any, **kw: Any) -> Any:
        if not _profiling():
            return method(self, *args, **kw)
        facts = {
            "group": self.members.name,
            "ranks": list(self.members.ranks),
            "rank": self._me(),
            "sequence": self._state.sequence,
            **_facts(args),
        }
        handle = torch.autograd._record_function_with_args_enter(
            f"ahbm:{method.__name__}", *_tensors(args), json.dumps(facts)
        )
        try:
            return method(self, *args, **kw)
        finally:
            torch.autograd._record_function_with_args_exit(handle)

    return cast(F, wrapper)


def _tensors(args: Any) -> list[torch.Tensor]:
    if isinstance(args, torch.Tensor):
        return [args]
    return [t for arg in args for t in _tensors(arg)] if isinstance(args, (list, tuple)) else []


def _facts(args: tuple[Any, ...]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for arg in args:
        if isinstance(arg, int):
            facts["tag" if "peer" in facts else "peer"] = arg
        elif isinstance(arg, (list, tuple)) and arg and all(isinstance(size, int) for size in arg):
            facts["input_splits" if "output_splits" in facts else "output_splits"] = list(arg)
        for name in ("rootRank", "reduceOp"):
            if hasattr(arg, name):
                value = getattr(arg, name)
                facts["root" if name == "rootRank" else "op"] = value if name == "rootRank" else value.op.name
    return facts
