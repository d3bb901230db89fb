"""The program that is being written in this context."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

from ahbm._core import MscclppProgram
from ahbm.dsl.mscclpp.internal.faults import fault

if TYPE_CHECKING:
    from ahbm.dsl.mscclpp.program import CollectiveProgram

__all__ = ["get_program"]

PROGRAM: ContextVar[CollectiveProgram | None] = ContextVar("ahbm_mscclpp_program", default=None)


def get_program() -> CollectiveProgram:
    """The current program. Raises `ProgramError` (AHBM-A101, a RuntimeError) outside of one."""
    program = PROGRAM.get()
    if program is None:
        message = "No Program in context: the statement stands outside of a program"
        hint = "with CollectiveProgram(…): opens one; channels, buffers and semaphores belong to theirs"
        raise fault("RuntimeError", "AHBM-A101", message, hint)
    return program


def get_recorder() -> MscclppProgram:
    """The recorder of the current program. Raises as `get_program`."""
    return get_program().recorder
