"""A plain function as a selector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ahbm.core.choice import Candidates, Choice
from ahbm.selectors.protocol import BaseSelector, Call, Comm, CostTable, Function

if TYPE_CHECKING:
    from ahbm.source.algorithm import Algorithm


class FunctionSelector(BaseSelector):
    """`function(algorithms, request)` chooses: a name, an algorithm, a Choice, or None."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.name = getattr(function, "__qualname__", "") or type(function).__name__
        self._candidates: dict[str, Mapping[str, Algorithm]] = {}
        self._comm = Comm(0)

    def init(self, comm: Comm) -> None:
        """See `Selector`."""
        self._comm = comm

    def get_coll_info(self, call: Call, table: CostTable) -> Choice | str | None:
        """See `Selector`."""
        name, emulator = call.collective, self._comm.emulator
        if name not in self._candidates:
            assert emulator is not None
            self._candidates[name] = Candidates(emulator, name)
        algorithms = self._candidates[name]
        assert call.request is not None
        answer: Any = self.function(algorithms, call.request)
        known = getattr(answer, "name", None)
        named = isinstance(known, str) and known in algorithms and algorithms[known] is answer
        chosen: Choice | str | None = known if named else answer
        return chosen
