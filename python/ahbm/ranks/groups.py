"""Process groups and reduction operators: the nouns of `ahbm.distributed`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ahbm.base.arguments import refused, shown
from ahbm.errors import DistributedError


class ReduceOp(Enum):
    """The reduction operator of a collective; names and meaning of torch.distributed."""

    SUM = "sum"
    PRODUCT = "prod"
    MIN = "min"
    MAX = "max"
    AVG = "avg"
    BAND = "band"
    BOR = "bor"
    BXOR = "bxor"

    @classmethod
    def parse(cls, op: object) -> ReduceOp:
        """`op` as a ReduceOp: one of ours, a name ("sum", "PRODUCT", "prod"), or another library's enum member.

        Raises DistributedError (AHBM-X131) for anything else.
        """
        if isinstance(op, cls):
            return op
        name = op if isinstance(op, str) else getattr(op, "name", None)
        if isinstance(name, str):
            for member in cls:
                if name.lower() in (member.name.lower(), member.value):
                    return member
        known = ", ".join(member.name for member in cls)
        raise DistributedError("AHBM-X131", f"unknown reduction operator {shown(op)}", hint=f"one of {known}")


@dataclass(eq=False)
class ProcessGroup:
    """Ranks that hold collectives together, in ascending order of their global rank."""

    name: str
    """`"WORLD"` or `"group <k>"`, k counting the calls of `new_group`."""
    ranks: tuple[int, ...]
    """Global ranks; the position in this tuple is the group rank."""
    latest: dict[tuple[object, ...], tuple[int, int]] = field(default_factory=dict)
    """Per sequence of operations, collectives under () and messages under (sender, receiver, tag): end of the latest
    operation in ps, had it run alone, and its number in the session's history."""
    terms: dict[tuple[object, ...], Any] = field(default_factory=dict)
    """The `Terms` of its calls, each made once."""

    def __post_init__(self) -> None:
        try:
            self._positions = {rank: position for position, rank in enumerate(self.ranks)}
        except Exception as error:  # whatever a stranger's object raises
            raise refused("ranks", "a list of ranks", self.ranks) from error

    def size(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    def rank_of(self, global_rank: int) -> int:
        """Group rank of `global_rank`, -1 when it is no member."""
        try:
            return self._positions.get(global_rank, -1)
        except TypeError as error:
            raise refused("global_rank", "a rank", global_rank) from error

    def __repr__(self) -> str:
        return f"<ProcessGroup {self.name} ranks={list(self.ranks)}>"


class Groups:
    """The groups that were asked for by name. Thread-safe."""

    def __init__(self, *known: ProcessGroup) -> None:
        self._groups = {(group.name, group.ranks): group for group in known}

    def named(self, name: str, ranks: tuple[int, ...]) -> ProcessGroup:
        """The group called `name` of these ranks; the first that asks for it creates it."""
        return self._groups.setdefault((name, ranks), ProcessGroup(name, ranks))


NON_GROUP_MEMBER = ProcessGroup("NON_GROUP_MEMBER", ())
"""The value that `new_group` returns to the ranks it leaves out."""
