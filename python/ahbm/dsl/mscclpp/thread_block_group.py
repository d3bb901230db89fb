"""Thread blocks that share the bytes of a statement."""

from __future__ import annotations

from ahbm._core import MscclppThreadBlockGroup as ThreadBlockGroup

__all__ = ["ThreadBlockGroup"]
