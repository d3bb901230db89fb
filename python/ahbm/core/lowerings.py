"""Programs that were made for one machine, for others that differ from it in times and bandwidths alone."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import lru_cache

from ahbm._core import Machine
from ahbm.source.algorithm import Lowered

KEPT_OPS = 4_000_000
"""Operations in the programs that are kept; the least recently used ones go first."""
COSTS = ("ps", "GB/s")
"""Ends of the values of a machine's parameters that a program does not depend on."""

_Found = tuple[Lowered, str]


class Lowerings:
    """What emulators that share it have lowered, by the shape of the machine. Thread-safe."""

    def __init__(self, most_ops: int = KEPT_OPS) -> None:
        self._most_ops = most_ops
        self._lock = threading.Lock()
        self._found: OrderedDict[Hashable, _Found] = OrderedDict()
        self._ops = 0

    def lowered(self, machine: Machine, what: Hashable, make: Callable[[], _Found]) -> _Found:
        """What `make` gives for `machine`, or gave for a machine of its shape; `what` says what else it depends on.

        Raises what `make` raises, each time.
        """
        # Of protocols, a kernel sees slices alone.
        key = (_shape(machine), machine.slice_bytes, what)
        with self._lock:
            known = self._found.get(key)
            if known is not None:
                self._found.move_to_end(key)
        if known is not None:
            lowered, note = known
            return lowered._replace(program=lowered.program.on(machine)), note
        made = make()
        with self._lock:
            if key not in self._found:
                self._found[key] = made
                self._ops += made[0].program.ops
            while len(self._found) > 1 and self._ops > self._most_ops:
                self._ops -= self._found.popitem(last=False)[1][0].program.ops
        return made


@lru_cache(64)
def _shape(machine: Machine) -> tuple[tuple[str, str], ...]:
    def shapes(name: str, value: str) -> bool:
        return not value.endswith(COSTS) and not name.startswith("protocols.")

    return tuple((name, value) for name, value in machine.parameters if shapes(name, value))
