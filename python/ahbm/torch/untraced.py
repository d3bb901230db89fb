"""What torch.compile leaves alone: the Python of a process group, which is C++ under other backends.

TorchDynamo would look into each frame that compiled code calls, and into each function that it inlines. A mark on a
function's code, and on the function, tells it not to: it breaks the graph there, as it does for C++. Neither costs
anything where nothing is compiled, nor imports TorchDynamo.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import torch

_frames: Any = torch._C._dynamo.eval_frame
_mark: Any = getattr(_frames, "set_code_exec_strategy", None)
"""Missing in torch whose backends are no Python classes."""


def untraced(*classes: type) -> None:
    """Marks the methods and properties of `classes`, and so whatever they call."""
    for cls in classes:
        for member in vars(cls).values():
            for part in (member.fget, member.fset) if isinstance(member, property) else (member,):
                while isinstance(part, FunctionType):
                    _leave_alone(part)
                    part = getattr(part, "__wrapped__", None)


def _leave_alone(function: Any) -> None:
    function._torchdynamo_disable = True
    function._torchdynamo_disable_msg = "a process group of backend ahbm is no part of a graph"
    if _mark is not None:
        skip = _frames._FrameAction.SKIP
        _mark(function.__code__, _frames._FrameExecStrategy(skip, skip))
