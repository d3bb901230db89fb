"""Sends and receives that have not met their other side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ahbm.ranks.operation import Part, Performer


@dataclass(eq=False)
class Letter:
    """A posted send or receive that has not met its other side."""

    src: int | None
    """Global rank; None receives from any source."""
    dst: int
    tag: int
    part: Part


@dataclass(eq=False)
class Mailbox:
    """The unmatched sends and receives of one group."""

    performer: Performer
    name: str
    sends: list[Letter] = field(default_factory=list)
    receives: list[Letter] = field(default_factory=list)

    def pair(self) -> list[tuple[Letter, Letter]]:
        """Takes out every (send, receive) that belongs together whatever happens next.

        A receive from any source holds back the later receives of its rank and tag, as it may take their sender.
        """
        pairs = []
        held: set[tuple[int, int]] = set()
        for receive in list(self.receives):
            if receive.src is None:
                held.add((receive.dst, receive.tag))
            elif (receive.dst, receive.tag) not in held:
                found = next((send for send in self.sends if _fits(send, receive)), None)
                if found is not None:
                    pairs.append(self.take(found, receive))
        return pairs

    def wildcard(self) -> tuple[Letter, Letter] | None:
        """The earliest receive from any source that has a sender, with its earliest sender; nothing is taken out."""
        for receive in sorted((r for r in self.receives if r.src is None), key=lambda r: (r.part.clock_ps, r.dst)):
            fitting = [send for send in self.sends if _fits(send, receive)]
            if fitting:
                return min(fitting, key=lambda send: (send.part.clock_ps, send.part.rank)), receive
        return None

    def take(self, send: Letter, receive: Letter) -> tuple[Letter, Letter]:
        """Removes both sides."""
        self.sends.remove(send)
        self.receives.remove(receive)
        return send, receive


def first_wildcard(boxes: Iterable[Mailbox]) -> tuple[Mailbox, tuple[Letter, Letter]] | None:
    """Of the `Mailbox.wildcard` of all boxes the earliest, and its box."""
    found = [(box, pair) for box in boxes if (pair := box.wildcard()) is not None]
    return min(found, key=lambda entry: (entry[1][1].part.clock_ps, entry[1][1].dst), default=None)


def _fits(send: Letter, receive: Letter) -> bool:
    return send.dst == receive.dst and send.tag == receive.tag and receive.src in (None, send.src)
