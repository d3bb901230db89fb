"""An operation that ranks perform together, and each rank's part of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ahbm.base.words import span
from ahbm.errors import DistributedError, Site
from ahbm.ranks.groups import ProcessGroup
from ahbm.ranks.terms import Terms
from ahbm.ranks.ticket import Ticket

if TYPE_CHECKING:
    from ahbm.selectors.why import Why

Finish = Callable[[Ticket], object]
"""Takes a result back to the user's tensors; returns what `Work.result` gives."""


@dataclass(eq=False, slots=True)
class Part:
    """One rank's side of an operation."""

    ticket: Ticket
    """The rank's claim on the operation."""
    group: ProcessGroup
    """The group whose operation it is."""
    terms: Terms
    buffer: Any
    """The data that the operation works on; their meaning belongs to the performer."""
    finish: Finish
    clock_ps: int
    """The rank's simulated time at the call."""
    origin: str
    """`file:line` of the call."""
    why: Why | None = None
    """The evidence for what the rank's selector answered; None where none was asked."""
    load: Callable[[], object] | None = None
    """Reads the operand, once the calls that it comes after have ended."""
    after: tuple[Part, ...] = ()
    """The rank's parts in operations that end before its operand is read."""
    unread: Exception | None = None
    """What reading the operand raised."""
    supplied: bool = True
    """Whether nobody else brings the operand."""
    style: str = ""
    """See `Call`."""
    operation: Operation = field(init=False)

    @property
    def is_late(self) -> bool:
        """Whether its operand is not here yet."""
        return bool(self.after) or self.load is not None or not self.supplied

    @property
    def first(self) -> Part | None:
        """The first of those that it comes after and that has not ended."""
        return next((part for part in self.after if not part.ticket.done), None)

    def bring(self) -> None:
        """Reads the operand; nothing is left to come after. What fails is the operation's error."""
        self.after = ()
        load, self.load = self.load, None
        if load is not None:
            try:
                load()
            except Exception as error:
                self.unread = error

    @property
    def rank(self) -> int:
        """Global rank."""
        return self.ticket.rank

    def settle(self) -> None:
        """Takes the result back to the user and lets go of the memory."""
        self.ticket.result = self.finish(self.ticket)
        self.buffer, self.finish = None, _nothing


def _nothing(_: Ticket) -> None:
    pass


def _fail(error: Exception) -> int:
    raise error


class Ready(NamedTuple):
    """An operation of which all is known that its performance takes."""

    quick: bool
    """Whether that is so little that any thread may perform it: nothing to capture or to simulate."""
    perform: Callable[[], int]
    """Does it, returns its end in simulated ps."""


Performer = Callable[["Operation"], Ready]
"""Makes an operation that all sides have arrived for, and agree on, ready."""


class Operation:
    """A collective, or a matched send and receive, from its first arrival to its end."""

    def __init__(
        self, label: str, members: tuple[int, ...], performer: Performer, lane: tuple[object, ...] = ()
    ) -> None:
        """`lane`: the operations of one are performed in the order in which they fill up."""
        self.label = label
        self.lane = lane
        self.members = members
        self.performer = performer
        self.parts: dict[int, Part] = {}
        self.done = False
        self.error: BaseException | None = None
        self.end_ps = 0
        self._ready: Ready | None = None

    def add(self, part: Part) -> None:
        """Takes one rank's part; its ticket is for this operation from now on."""
        self.parts[part.ticket.rank] = part
        part.ticket.members = self.members
        part.operation = self

    def ordered(self) -> list[Part]:
        """The parts in the order of the members."""
        return [self.parts[rank] for rank in self.members]

    def absent(self) -> list[int]:
        """Members that have not arrived."""
        return [rank for rank in self.members if rank not in self.parts]

    def ready(self) -> Ready:
        """The operation, made ready once; what it fails with by then is raised by `Ready.perform`."""
        if self._ready is None:
            try:
                from ahbm.ranks.divergence import pardon

                for part in self.parts.values():
                    if part.unread is not None:
                        raise part.unread
                pardon(self.label, list(self.parts.values()))
                self._check_agreement()
                self._ready = self.performer(self)
            except Exception as error:
                self._ready = Ready(True, partial(_fail, error))
        return self._ready

    def let_go(self) -> None:
        """Lets go of the parts, which refer to it."""
        self.parts, self._ready = {}, None

    def _check_agreement(self) -> None:
        """Raises DistributedError (AHBM-X110) naming the ranks and both values of the first term that differs."""
        terms = next(iter(self.parts.values())).terms
        if all(part.terms is terms or part.terms == terms for part in self.parts.values()):
            return
        parts = [self.parts[rank] for rank in sorted(self.parts)]
        texts = {part.rank: part.terms.texts() for part in parts}
        for term in texts[parts[0].rank]:
            values: dict[object, list[Part]] = {}
            for part in parts:
                values.setdefault(texts[part.rank].get(term), []).append(part)
            if len(values) > 1:
                if term == "algorithm" and any(part.why is not None for part in parts):
                    from ahbm.ranks.divergence import divergence

                    raise divergence(self.label, parts)
                sides = [(span([part.rank for part in side]), value, side[0].origin) for value, side in values.items()]
                whose = "; ".join(
                    f"{who} {'has' if who.startswith('rank ') else 'have'} {value}" for who, value, _ in sides
                )
                raise DistributedError(
                    "AHBM-X110",
                    f"{self.label}: the ranks disagree on {term}: {whose}",
                    sites=[Site(f"{who}: {term} {value}", origin) for who, value, origin in sides],
                    hint="every rank of a group must make the same calls in the same order with equal arguments",
                )


def sort_held(operations: Iterable[Operation]) -> tuple[list[Operation], list[Operation]]:
    """Of operations that all sides have come to, those that can be performed and those that are still held: for an
    operand, or for an earlier one of their lane."""
    free, held, lanes = list[Operation](), list[Operation](), set[tuple[object, ...]]()
    for operation in operations:
        if operation.done:
            continue
        if operation.lane in lanes or any(part.is_late for part in operation.parts.values()):
            lanes.add(operation.lane)
            held.append(operation)
        else:
            free.append(operation)
    return free, held
