"""What ranks do together: an operation, and each rank's part of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ahbm._core import Gate
from ahbm.errors import DistributedError, Site
from ahbm.groups import span


@dataclass(eq=False, slots=True)
class Part:
    """One rank's side of an operation."""

    rank: int
    """Global rank."""
    terms: dict[str, object]
    """What all sides must agree on, in the order in which a disagreement is reported."""
    buffer: Any
    """What the operation works on; its meaning belongs to whoever performs it."""
    finish: Callable[[Operation], object]
    """Takes the result back to the user; returns what `Work.result` gives."""
    clock_ps: int
    """The rank's simulated time at the call."""
    origin: str
    """`file:line` of the call."""
    notify: Callable[[BaseException | None], None] | None = None
    """Called once, from any thread, when the operation has ended; gets its error."""
    call: int = -1
    """How many calls the rank made before."""
    ticket: int = 0
    """Its number, where the world is in another process."""
    result: object = None
    operation: Operation = field(init=False)
    gates: list[Gate] = field(default_factory=list)
    """What waiting threads are blocked on."""

    def settle(self) -> None:
        """Takes the result back to the user and lets go of the memory."""
        self.result = self.finish(self.operation)
        self.buffer, self.finish, self.terms = None, _nothing, {}


def _nothing(_: Operation) -> None:
    pass


@dataclass(frozen=True)
class Performer:
    """How a kind of operation is performed."""

    perform: Callable[[Operation], int]
    """Does it, returns its end in simulated ps."""
    quick: Callable[[Operation], bool]
    """Whether that takes so little that any thread may do it: nothing to capture or to simulate."""


class Operation:
    """A collective, or a matched send and receive, from its first arrival to its end."""

    def __init__(self, label: str, members: tuple[int, ...], performer: Performer) -> None:
        self.label = label
        self.members = members
        self.performer = performer
        self.parts: dict[int, Part] = {}
        self.done = False
        self.error: BaseException | None = None
        self.end_ps = 0
        self.record: object = None

    def add(self, part: Part) -> None:
        """Takes one rank's part; its wait refers to this operation from now on."""
        self.parts[part.rank] = part
        part.operation = self

    def ordered(self) -> list[Part]:
        """The parts in the order of the members."""
        return [self.parts[rank] for rank in self.members]

    def absent(self) -> list[int]:
        """Members that have not arrived."""
        return [rank for rank in self.members if rank not in self.parts]

    def check_agreement(self) -> None:
        """Raises DistributedError (AHBM-X110) naming the ranks and both values of the first term that differs."""
        parts = [self.parts[rank] for rank in sorted(self.parts)]
        terms = parts[0].terms
        if all(part.terms == terms for part in parts):
            return
        for term in terms:
            values: dict[object, list[Part]] = {}
            for part in parts:
                values.setdefault(part.terms.get(term), []).append(part)
            if len(values) > 1:
                sides = [(span([part.rank for part in side]), value, side[0].origin) for value, side in values.items()]
                told = "; ".join(
                    f"{who} {'has' if who.startswith('rank ') else 'have'} {value}" for who, value, _ in sides
                )
                raise DistributedError(
                    "AHBM-X110",
                    f"{self.label}: the ranks disagree on {term}: {told}",
                    sites=[Site(f"{who}: {term} {value}", origin) for who, value, origin in sides],
                    hint="every rank of a group must make the same calls in the same order with equal arguments",
                )
