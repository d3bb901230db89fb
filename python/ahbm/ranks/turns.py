"""Turns: one rank's thread runs at a time, and hands over where it waits or ends, in rank order.

The table knows no threads and takes no lock: its owner calls it under a lock of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Protocol

from ahbm._core import Gate


class Pause(Protocol):
    """Actions of a rank's thread as it gives its turn away and gets it back, e.g. swapping state that threads share."""

    def pause(self, rank: int) -> None:
        """The calling thread, `rank`, is about to wait."""

    def resume(self, rank: int) -> None:
        """The calling thread, `rank`, runs again."""


class TurnTable:
    """The rank whose turn it is, and the ranks that would like to have one.

    Invariant: a rank that has the turn is not among those that wish for one.
    """

    def __init__(self, size: int, hooks: Pause) -> None:
        self.hooks = hooks
        self._ready: list[Gate | None] = [None] * size
        """Per rank, what opens when the rank may run; None for ranks that do not ask to."""
        self.turn: int | None = None
        """The rank that has the turn."""
        self._last = size - 1
        self.aside = [False] * size
        """Per rank, whether its thread waits for another thread instead of for an operation."""
        self.helped = [0] * size
        """Per rank, how many threads wait for operations in its place."""

    def wishes(self, rank: int) -> bool:
        """Whether `rank` waits for its turn."""
        return self._ready[rank] is not None

    def wish(self, rank: int, gate: Gate) -> None:
        """`gate` is to be opened when `rank` may run."""
        self._ready[rank] = gate

    def withdraw(self, rank: int) -> None:
        """`rank` runs on and wants no turn."""
        self._ready[rank] = None

    def lends(self, rank: int) -> bool:
        """Whether `rank` has the turn, and waits for a thread that may wait for ranks without."""
        return self.turn == rank and self.aside[rank] and self.helped[rank] > 0

    def end(self, rank: int) -> bool:
        """`rank` gives its turn away; False when it has none."""
        if self.turn != rank:
            return False
        self.turn = None
        return True

    def give(self, free: Callable[[int], bool]) -> None:
        """Gives the turn, which nobody has, to the next rank in order that wishes for it and is `free` to go on.

        The rank that wishes for a turn behind it is told to be awake.
        """
        size, last = len(self._ready), self._last
        for rank in chain(range(last + 1, size), range(last + 1)):
            gate = self._ready[rank]
            if gate is not None and free(rank):
                self.turn = self._last = last = rank
                self._ready[rank] = None
                gate.open()
                break
        for rank in chain(range(last + 1, size), range(last + 1)):
            gate = self._ready[rank]
            if gate is not None:
                gate.announce()
                return
