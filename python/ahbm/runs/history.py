"""The history of an element: the tree of what it was made of, and the places that a contribution went to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

NAMED = 8
"""Contributions that a text names before it only counts the rest."""
SHOWN = 6
"""Operations of one hop that a text names; more than these are cut in the middle."""
SIGNS = {"add": " + ", "mul": " * ", "max": " max ", "min": " min ", "and": " & ", "or": " | ", "xor": " ^ "}
MOVES = ("load", "store", "post store", "copy", "post copy", "recv", "recv_async", "send", "cast")
"""Operations that change no number, or its type alone."""


@dataclass(frozen=True, order=True)
class Contribution:
    """An element of a rank's array as it was before the call."""

    rank: int
    index: int
    tile: int | None = None
    """Cube of a device tensor; None for host arrays."""

    def __str__(self) -> str:
        return f"element {self.index} of {self.whose}"

    @property
    def whose(self) -> str:
        """The rank in words."""
        return f"rank {self.rank}" + (f" cube {self.tile}" if self.tile is not None else "")


@dataclass(frozen=True)
class Step:
    """An operation that an element went through, or the memory that it stood in before the run."""

    at_ps: int
    """When the element was there: the end of the operation, or the arrival of what it posted; 0 before the run."""
    place: str
    """The PE, e.g. "sip 3 cube 0 pe 0"; empty before the run."""
    what: str
    """The operation, e.g. "add" or 'send(dir="E")'; "input" or "unset" before the run."""
    origin: str
    """The line that it was written in."""
    value: Any
    """The number; None where it is not known."""
    agent: int
    """-1 before the run."""
    op: int
    element: int
    """Index in the operation's tile; before the run, the byte in the buffer `op`."""
    contribution: Contribution | None = None
    """An input that counts; None for operations, and for memory that nobody had set."""
    links: tuple[int, ...] = ()
    """Of an origin, the steps that it was made of, in the order of the operands; of a fate, those that it went to."""
    left: tuple[str, ...] = ()
    """Of a fate: the memory that has it in the end."""
    over: tuple[str, ...] = ()
    """Of a fate: the operations that replaced it in memory."""

    @property
    def name(self) -> str:
        """The operation without its arguments."""
        return self.what.partition("(")[0]

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON-serialisable data."""
        whose = self.contribution
        data = {name: getattr(self, name) for name in ("at_ps", "place", "what", "origin", "value", "agent", "op")}
        data |= {"element": self.element, "links": list(self.links)}
        if whose is not None:
            data["contribution"] = {"rank": whose.rank, "tile": whose.tile, "index": whose.index}
        return data | {name: list(getattr(self, name)) for name in ("left", "over") if getattr(self, name)}

    def __str__(self) -> str:
        if self.agent < 0:
            return str(self.contribution or f"memory that nothing had set (buffer {self.op}, byte {self.element})")
        where = f" ({self.origin})" if self.origin else ""
        return f"{self.what}{where} on {self.place} at {ns(self.at_ps)} ns"


@dataclass(frozen=True)
class Lost:
    """A contribution that is missing, and the last place where it was seen."""

    contribution: Contribution
    last: Step
    why: str

    def to_json(self) -> dict[str, Any]:
        """As JSON-serialisable data."""
        whose = self.contribution
        lost = {"rank": whose.rank, "tile": whose.tile, "index": whose.index}
        return {"contribution": lost, "last": self.last.to_json(), "why": self.why}

    def __str__(self) -> str:
        return f"{self.contribution} is lost at {self.last}: {self.why}"


@dataclass(frozen=True)
class Origin:
    """What an element was made of at a time, as a graph in which everything stands once."""

    rank: int
    index: int
    tile: int | None
    at_ps: int
    steps: list[Step]
    """Each behind those that it was made of (`Step.links`)."""
    roots: tuple[int, ...]
    """What stood in the element, by byte; one, unless elements of other sizes were written."""
    expected: Counter[Contribution] | None = None
    """What the collective wants there in the end; None at an earlier time, and where nothing is wanted."""
    repeats: bool = False
    """Whether a contribution may take part more than once."""
    lost: tuple[Lost, ...] = ()

    @property
    def value(self) -> Any:
        """The number; None where several writers made it."""
        return self.steps[self.roots[0]].value if len(self.roots) == 1 else None

    @property
    def contributions(self) -> Counter[Contribution]:
        """How often each contribution takes part: along how many ways it comes here."""
        times = [0] * len(self.steps)
        for root in self.roots:
            times[root] += 1
        found: Counter[Contribution] = Counter()
        for number in range(len(self.steps) - 1, -1, -1):
            step = self.steps[number]
            for link in step.links:
                times[link] += times[number]
            if step.contribution is not None and times[number]:
                found[step.contribution] += times[number]
        return found

    @property
    def functions(self) -> list[str]:
        """The functions that it was computed by, without those that only move it."""
        used = {step.what: None for step in reversed(self.steps) if step.agent >= 0 and step.name not in MOVES}
        return list(used)

    @property
    def formula(self) -> str:
        """The contributions in a line, e.g. "rank 0 + rank 1"."""
        found = sorted(self.contributions.items())
        named = [(whose.whose if times == 1 else f"{times} x {whose.whose}") for whose, times in found[:NAMED]]
        # What takes one operand scales or converts it.
        joins = {step.what for step in self.steps if len(step.links) > 1}
        sign = SIGNS.get(next(iter(joins)), ", ") if len(joins) == 1 else ", "
        more = f"{sign}... ({len(found)} contributions)" if len(found) > NAMED else ""
        indices = {whose.index for whose, _ in found}
        where = f" (element {indices.pop()})" if len(indices) == 1 else ""
        by = f" by {', '.join(self.functions)}" if sign == ", " and len(found) > 1 and self.functions else ""
        return f"{sign.join(named)}{more}{where}{by}" if named else "no contribution"

    @property
    def missing(self) -> list[Contribution]:
        """Contributions that are wanted and not there."""
        return sorted((self.expected or Counter()) - self.contributions)

    @property
    def extra(self) -> list[Contribution]:
        """Contributions that are there and not wanted, or more often than wanted."""
        if self.expected is None:
            return []
        surplus = self.contributions - self.expected
        return sorted(one for one in surplus if not (self.repeats and one in self.expected))

    def to_json(self) -> dict[str, Any]:
        """As JSON-serialisable data."""
        return {
            "rank": self.rank,
            "tile": self.tile,
            "index": self.index,
            "at_ps": self.at_ps,
            "value": self.value,
            "contributions": [
                {"rank": whose.rank, "tile": whose.tile, "index": whose.index, "times": times}
                for whose, times in sorted(self.contributions.items())
            ],
            "missing": [str(one) for one in self.missing],
            "extra": [str(one) for one in self.extra],
            "lost": [lost.to_json() for lost in self.lost],
            "roots": list(self.roots),
            "steps": [step.to_json() for step in self.steps],
        }

    def lines(self, depth: int | None = None) -> Iterator[str]:
        """The tree in words, one line per visit of a PE, the latest first. `depth`: visits one behind the other."""
        yield f"{Contribution(self.rank, self.index, self.tile)} at {ns(self.at_ps)} ns = {self.value}: {self.formula}"
        yield from _described(self.steps, self.roots, depth, " <- ", self._taken)
        for what, which in (("missing", self.missing), ("not wanted", self.extra)):
            if which:
                more = f" and {len(which) - NAMED} more" if len(which) > NAMED else ""
                yield f"{what}: {', '.join(map(str, which[:NAMED]))}{more}"
        yield from map(str, self.lost)

    def _taken(self, members: Sequence[int]) -> str:
        inside = {link for number in members for link in self.steps[number].links}
        taken = [self.steps[link] for link in sorted(inside) if self.steps[link].agent < 0]
        value = self.steps[members[0]].value
        held = "" if value is None else f" = {value}"
        return held + "".join(f"; takes {one}" + ("" if one.value is None else f" = {one.value}") for one in taken)

    def __str__(self) -> str:
        return "\n".join(self.lines())


@dataclass(frozen=True)
class Fate:
    """Where a contribution went: every place that held it, or something made of it."""

    contribution: Contribution
    steps: list[Step]
    """The first is the input; `Step.links` are the steps that it went to."""
    ends: tuple[Contribution, ...]
    """The elements of the ranks' results that have it in the end."""
    results: frozenset[str] = field(default=frozenset(), repr=False)
    """The memory in `Step.left` that belongs to results."""

    @property
    def dead_ends(self) -> list[Step]:
        """Where it was last seen without getting any further, by time."""
        return sorted((step for step in self.steps if self._is_dead(step)), key=lambda step: step.at_ps)

    def _is_dead(self, step: Step) -> bool:
        return not step.links and not self.results.intersection(step.left)

    def why(self, step: Step) -> str:
        """Why it gets no further there."""
        if step.over:
            return f"replaced by {step.over[0]} before anything read it"
        if step.left:
            return "nothing reads it there"
        return "it was never received" if step.name == "send" else "nothing uses it"

    def to_json(self) -> dict[str, Any]:
        """As JSON-serialisable data."""
        whose = self.contribution
        return {
            "rank": whose.rank,
            "tile": whose.tile,
            "index": whose.index,
            "ends": [{"rank": one.rank, "tile": one.tile, "index": one.index} for one in self.ends],
            "steps": [step.to_json() for step in self.steps],
        }

    def lines(self, depth: int | None = None) -> Iterator[str]:
        """The way in words, one line per visit of a PE. `depth`: visits one behind the other."""
        first = self.steps[0]
        yield f"{self.contribution} = {first.value}" + ("" if first.links else ": nothing reads it")
        yield from _described(self.steps, first.links, depth, " -> ", self._ending)
        if self.ends:
            by: dict[tuple[int, int | None], list[int]] = {}
            for one in self.ends:
                by.setdefault((one.index, one.tile), []).append(one.rank)
            places = [
                f"element {index}{f' of cube {tile}' if tile is not None else ''} of {_ranks(ranks)}"
                for (index, tile), ranks in list(by.items())[:NAMED]
            ]
            more = f" and {len(by) - NAMED} more elements" if len(by) > NAMED else ""
            yield f"in the end it is in {', '.join(places)}{more}"
        else:
            yield "in the end it is in no result"
            if dead := self.dead_ends:
                yield str(Lost(self.contribution, dead[-1], self.why(dead[-1])))

    def _ending(self, members: Sequence[int]) -> str:
        steps = [self.steps[number] for number in members]
        kept = [where for step in steps for where in step.left if where in self.results]
        dead = [self.why(step) for step in steps if self._is_dead(step)]
        return "".join(f"; stays in {where}" for where in kept) + (f"; {dead[0]}" if dead and not kept else "")

    def __str__(self) -> str:
        return "\n".join(self.lines())


def ns(ps: int) -> str:
    """Nanoseconds with the picoseconds behind the point."""
    return f"{ps / 1000:,.3f}"


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) > 2 and list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]} to {ranks[-1]}"
    shown = ", ".join(map(str, ranks[:NAMED]))
    more = f" and {len(ranks) - NAMED} more" if len(ranks) > NAMED else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"


def _visit(steps: Sequence[Step], entry: int) -> tuple[list[int], list[int]]:
    """The steps of one agent that follow each other from `entry` on, and the first ones of other agents behind them."""
    members, further, seen, queue = [], dict[int, None](), {entry}, [entry]
    while queue:
        number = queue.pop(0)
        members.append(number)
        for link in steps[number].links:
            if steps[link].agent < 0 or link in seen:
                continue
            if steps[link].agent == steps[entry].agent:
                seen.add(link)
                queue.append(link)
            else:
                further[link] = None
    return members, list(further)


def _described(
    steps: Sequence[Step],
    entries: Sequence[int],
    depth: int | None,
    arrow: str,
    about: Callable[[Sequence[int]], str],
) -> Iterator[str]:
    """A line per visit. What follows a visit alone is not indented, so that a chain reads downwards."""
    texts: dict[int, int] = {}
    open_ = [(entry, 1, 1) for entry in reversed(entries) if steps[entry].agent >= 0]
    yield from (f"  {steps[entry]}" for entry in entries if steps[entry].agent < 0)
    cut = False
    while open_:
        entry, indent, far = open_.pop()
        margin = "  " * min(indent, 20)
        step = steps[entry]
        if entry in texts:
            yield f"{margin}{ns(step.at_ps):>14} ns  {step.place}: {step.what}, see line {texts[entry]}"
            continue
        if depth is not None and far > depth:
            cut = True
            continue
        texts[entry] = len(texts) + 1
        members, further = _visit(steps, entry)
        names = _names([steps[number] for number in members])
        yield f"{margin}{texts[entry]:>4} {ns(step.at_ps):>14} ns  {step.place}: {arrow.join(names)}{about(members)}"
        deeper = indent + (len(further) > 1)
        open_.extend((link, deeper, far + 1) for link in reversed(further))
    if cut:
        yield f"  ... and more behind {depth} hops"


def _names(steps: Sequence[Step]) -> list[str]:
    """Operations with their lines; a file is named once."""
    shown = list(steps) if len(steps) <= SHOWN else [*steps[: SHOWN // 2], *steps[-SHOWN // 2 :]]
    names, last = [], ""
    for step in shown:
        file, colon, line = step.origin.partition(":")
        where = f" {colon}{line}" if colon and file == last else f" {step.origin}" if step.origin else ""
        last = file
        names.append(f"{step.what}{where}")
    if len(steps) > SHOWN:
        names.insert(SHOWN // 2, f"({len(steps) - SHOWN} more)")
    return names
