"""Thread blocks that share the bytes of a statement."""

from __future__ import annotations

from collections.abc import Sequence

from ahbm.dsl.mscclpp.internal.faults import fault
from ahbm.dsl.mscclpp.internal.numbers import exact

__all__ = ["ThreadBlockGroup"]


class ThreadBlockGroup:
    """Thread blocks that share the bytes of a statement.

    Raises `ProgramError` (AHBM-A103, a ValueError) for none, for one twice, or for numbers that no thread block has.
    """

    __slots__ = ("tb_list",)

    def __init__(self, tb_list: Sequence[int]) -> None:
        self.tb_list = [exact(block) for block in tb_list]
        if len(set(self.tb_list)) < len(self.tb_list) or not all(0 <= block < 1 << 16 for block in self.tb_list):
            message = "the thread blocks of a group are different numbers from 0 to 65535"
            raise fault("ValueError", "AHBM-A103", message)

    def numtb(self) -> int:
        """How many there are."""
        return len(self.tb_list)

    def get_internal_id(self, tb: int) -> int:
        """The position of a thread block in the group. Raises `ProgramError` (AHBM-A103, a ValueError)."""
        if tb in self.tb_list:
            return self.tb_list.index(tb)
        raise fault("ValueError", "AHBM-A103", f"thread block {tb} is not in the group")
