"""The plan as text."""

from __future__ import annotations

from ahbm.dsl.mscclpp.internal.globals import get_program

__all__ = ["JSON", "get_program"]


def JSON() -> str:
    """The plan of the current program, as `CollectiveProgram.to_json` says it."""
    return get_program().to_json()
