"""The older name of `loop`."""

from __future__ import annotations

from ahbm.dsl.mscclpp.loop import Loop, LoopIterationContext, get_program

__all__ = ["Loop", "LoopIterationContext", "get_program"]
