"""A rank's journal by streams: kernels of a stream follow each other, and what else they wait for.

The host runs ahead of the device: only where it waits for the device, what it starts later waits as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from ahbm.ranks.blame import call_origin
from ahbm.ranks.seat import Call
from ahbm.torch.compute import Stopwatch
from ahbm.torch.journal import Event, Family, Journal

MOST = 2_000_000
"""Nodes of a rank that are kept."""


class Lanes(Journal):
    """See above. A step ends with the step of an optimizer: kept are the first step and `steps` later ones."""

    def __init__(self, steps: int) -> None:
        self._chains: dict[int, list[int]] = {}
        self._fence: list[int] = []
        self.stream = 0
        self.limit = steps
        self.steps = 0
        """How many have ended."""
        self.first: list[Event] | None = None
        """The nodes of the first step."""
        self._whole = 0
        """How many nodes lie in whole steps."""
        self._generation = 0
        super().__init__(Stopwatch("none"))

    @property
    def _chain(self) -> list[int]:
        return self._chains.setdefault(self.stream, list(self._fence))

    @_chain.setter
    def _chain(self, numbers: list[int]) -> None:
        self._chains[self.stream] = numbers

    @property
    def full(self) -> bool:
        """Whether all steps that are kept have ended."""
        return self.steps > self.limit or len(self.events) >= MOST

    def kernel(self, name: str, operations: int, nbytes: int, kind: str, host: bool) -> None:
        """A kernel on the current stream; see `Meter.add`."""
        if operations or nbytes:
            with self._lock:
                if not self.full:
                    event = self._add("COMP_NODE", name)
                    event.facts = {"num_ops": operations, "tensor_size": nbytes}
                    if kind != "f16":
                        event.facts["num_ops_dtype"] = kind
                    if host:
                        event.facts["host_copy"] = 1
                    event.stream = self.stream
                    if self.stream:  # a device interleaves streams; these are short copies before calls
                        event.facts["comm_priority"] = 1
                    self._chain = [event.number]

    def call(self, call: Call, me: int) -> tuple[int, Event] | None:
        """A call of rank `me`, on the current stream."""
        if self.full:
            return None
        origin = call_origin()
        event = self.issue(call, me)
        event.facts.setdefault("ranks", call.group.ranks)  # a group that only sends is not told of elsewhere
        event.name = f"{event.name} {origin}"
        return self._generation, event

    def waited(self, issued: tuple[int, Event] | None) -> None:
        """The current stream waits for a call."""
        if issued is not None and issued[0] == self._generation:
            self.join([issued[1]])

    def tail(self, stream: int) -> tuple[int, ...]:
        """See `Meter`."""
        if stream < 0:
            return tuple(dict.fromkeys(number for chain in self._chains.values() for number in chain))
        return tuple(self._chains.get(stream, self._fence))

    def wait(self, stream: int, tail: Iterable[int]) -> None:
        """See `Meter`."""
        with self._lock:
            chain = self._chains.setdefault(stream, list(self._fence))
            chain += [number for number in tail if number < len(self.events) and number not in chain]

    def host_waits(self, tail: Iterable[int]) -> None:
        """See `Meter`."""
        tail = [number for number in tail if number < len(self.events)]
        for stream in self._chains:
            self.wait(stream, tail)
        self._fence = list(tail) or self._fence

    def step(self) -> None:
        """A step has ended."""
        if self.full:
            return
        self.steps += 1
        self._whole = len(self.events)
        if self.steps == 1:
            self.first, self.events = self.events, []
            self._chains, self._fence, self._whole = {}, [], 0
            self._generation += 1

    def settle(self) -> int:
        """Leaves the steps after the first, or where there are none all that there is; returns how many steps."""
        if self.steps > 1:
            self.events = self.events[: self._whole]
        elif self.first is not None:
            self.events = self.first
        return max(self.steps - 1, min(self.steps, 1))

    def keep(self, prefix: Path, rank: int, ranks: int, alike: Sequence[Family] | None) -> int:
        """Writes what `settle` leaves, see `write`; returns how many steps."""
        steps = self.settle()
        self.write(prefix, rank, ranks, alike)
        return steps
