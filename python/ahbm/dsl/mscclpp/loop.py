"""Loops over pieces of chunks."""

from __future__ import annotations

from types import TracebackType

from ahbm.dsl.mscclpp.internal.globals import get_program, get_recorder
from ahbm.dsl.mscclpp.internal.numbers import whole

__all__ = ["Loop", "LoopIterationContext", "get_program"]


class LoopIterationContext:
    """Repeats the statements inside over pieces of `unit` bytes until `num_chunks` chunks are covered.

    Every thread block repeats its own. Raises `ProgramError` (AHBM-A102) inside another loop.
    """

    def __init__(self, unit: int, num_chunks: int) -> None:
        self.unit = unit
        self.num_chunks = num_chunks

    def __enter__(self) -> None:
        get_recorder().make("loop", (whole(self.unit), whole(self.num_chunks)))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        get_recorder().leave_loop()


class Loop:
    """The older name of `LoopIterationContext`."""

    @staticmethod
    def iteration(unit: int, num_chunks: int) -> LoopIterationContext:
        """A loop."""
        get_program().older("Loop.iteration", "LoopIterationContext(unit, num_chunks)")
        return LoopIterationContext(unit, num_chunks)
