"""The latency of a run, taken apart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ahbm._core import categories
from ahbm.base import html
from ahbm.base.arguments import checked, overrides, refused, text
from ahbm.config.protocols import ALIKE, cap_of
from ahbm.runs.advice import BUDGET, SIMULATED, SIPS, Advice, Advisor, link_class
from ahbm.runs.answer import described, sentences

if TYPE_CHECKING:
    from ahbm._core import Machine, Program, Timeline
    from ahbm.core.limits import Bound
    from ahbm.runs.rivals import Alternatives


_FOLDERS = re.compile(r"(?<![^\s(])/(?:[^/\s#]+/)+")
"""The folders of an absolute path."""
_NAME = re.compile(r"[a-z_]+(?: [a-z_]+)*(?= \w+\[| [\d+]|\(|$)")
"""An operation in words, without its number, type and arguments."""
_CHANNEL = re.compile(r'dir="[^"]*\.(\w+)"')
_NO_LINK = _NO_LINE = 2**32 - 1
_MOST_OPERATIONS = 16
"""Operations of one line that are looked at."""


@dataclass(frozen=True)
class Step:
    """A line of the algorithm on the critical path."""

    origin: str
    """The line that it was written in; empty when that is not known."""
    what: str
    """Its first operation on the path, in words."""
    operations: int
    """Operations of this line on the path, of all agents."""
    ps: int
    by_category: dict[str, int]
    """ps by category, the largest first."""
    kind: str
    """Names of the line's operations, and their channel if it has a name: the same for steps that do the same."""
    ranks: list[int]
    """The ranks whose operations these are."""

    @property
    def place(self) -> str:
        """`origin` without the folders of its files."""
        return _FOLDERS.sub("", self.origin) or "(no source)"


@dataclass(frozen=True)
class Kind:
    """The lines on the critical path that do the same."""

    kind: str
    lines: int
    operations: int
    """Operations of these lines on the path."""
    ranks: list[int]
    """The ranks that the path comes to them on."""
    ps: int
    by_category: dict[str, int]
    """ps by category, the largest first."""


@dataclass(frozen=True)
class Rank:
    """The part of a rank's operations in the critical path."""

    rank: int
    ps: int
    by_category: dict[str, int]
    """ps by category, the largest first."""


@dataclass(frozen=True)
class Link:
    """The use of a link by the whole run."""

    name: str
    busy_ps: int
    crossed: int
    """Messages that crossed it; flits under the flit model."""
    waits: int
    """Those of them that waited for another."""
    waited_ps: int
    """Sum of these waits."""
    path_ps: int
    """Time that the critical path spends on it."""


@dataclass(frozen=True)
class Collision:
    """A link that more flows take than would if they were spread evenly over equal ways."""

    link: str
    flows: list[tuple[int, int]]
    """The SIPs that send and receive."""
    among: int
    """Flows that had the choice of this link."""
    even: int
    """Most flows of a link if all of these were spread evenly."""
    links: int
    """Links of that choice."""
    busy_ps: int
    even_ps: int
    """How long each link of the choice would be busy if all were equally."""


@dataclass(frozen=True)
class Stretch:
    """A stretch of the critical path: one operation, one category."""

    start_ps: int
    end_ps: int
    category: str
    agent: int
    place: str
    op: int
    what: str
    origin: str
    link: str
    """Empty when no link is involved."""


class Explanation:
    """The reasons of a run's latency; times in ps. Costly parts are computed when they are asked for."""

    @checked
    def __init__(
        self,
        program: Program,
        timeline: Timeline,
        bound: Bound | None = None,
        alternatives: Alternatives | None = None,
    ) -> None:
        """Of a program and a timeline of it with detail. Raises DataError (AHBM-V123) without.

        bound: the least time that any algorithm could take, where one is known. alternatives: what may be done
        otherwise than on another machine.
        """
        self._program = program
        self._bound = bound
        self._alternatives = alternatives
        self._timeline = timeline
        self._agent, self._op, self._category, self._link, self._line, start, end = timeline.critical_path()
        self._start: NDArray[np.int64] = start.astype(np.int64)
        self._ps: NDArray[np.int64] = end.astype(np.int64) - self._start

    @property
    def bound_ps(self) -> int | None:
        """The least time that any algorithm could take; None where none is known."""
        return None if self._bound is None else self._bound.ps

    @property
    def latency_ps(self) -> int:
        """Of the run: the sum of the critical path, in whatever way it is broken down."""
        return self._timeline.latency_ps

    @property
    def timeline_hash(self) -> str:
        """16 hex digits: those of the same run without detail."""
        return f"{self._timeline.hash:016x}"

    @cached_property
    def by_category(self) -> dict[str, int]:
        """Time of the critical path by category, the largest first."""
        return _by_category(self._category, self._ps)

    @cached_property
    def agents_by_category(self) -> dict[str, int]:
        """Time of all agents together, each from the launch to the end of the run, with categories for waits."""
        return _largest(dict(zip(categories(), self.time_of_agents.sum(axis=0).tolist(), strict=True)))

    @cached_property
    def steps(self) -> list[Step]:
        """The lines of the algorithm in the order in which the critical path first comes to them."""
        sorted_, counts = np.argsort(self._step, kind="stable"), np.bincount(self._step)
        ends = np.cumsum(counts)
        of_agents, steps = np.asarray(self._ranks, dtype=np.int64), []
        for first, last in zip(ends - counts, ends, strict=True):
            here = sorted_[first:last]
            agent, op = int(self._agent[here[0]]), int(self._op[here[0]])
            steps.append(
                Step(
                    self._program.line(agent, op),
                    self._program.describe(agent, op)[0],
                    len(np.unique(self._agent[here].astype(np.uint64) << np.uint64(32) | self._op[here])),
                    int(self._ps[here].sum()),
                    _by_category(self._category[here], self._ps[here]),
                    self._kind(agent, op),
                    np.unique(of_agents[self._agent[here]]).tolist(),
                )
            )
        return steps

    @cached_property
    def _step(self) -> NDArray[np.int64]:
        """The place in `steps` of each stretch's line."""
        _, first, of = np.unique(self._line, return_index=True, return_inverse=True)
        places = np.empty(len(first), dtype=np.int64)
        places[np.argsort(first)] = np.arange(len(first))
        return places[of]

    @property
    def _numbers(self) -> list[int]:
        """The number of each step's line; -1 for none."""
        lines, first = np.unique(self._line, return_index=True)
        return [-1 if line == _NO_LINE else line for line in lines[np.argsort(first)].tolist()]

    def _kind(self, agent: int, op: int) -> str:
        """The operations that stand together in the line of this operation, by name, and their channel."""
        line, length, first = self._program.line(agent, op), self._program.lengths[agent], op
        while first > 0 and self._program.line(agent, first - 1) == line:
            first -= 1
        texts: list[str] = []
        while first < length and self._program.line(agent, first) == line and len(texts) < _MOST_OPERATIONS:
            texts.append(self._program.describe(agent, first)[0])
            first += 1
        names = dict.fromkeys(match[0] if (match := _NAME.match(what)) else what for what in texts)
        channels = dict.fromkeys(match[1] for match in map(_CHANNEL.search, texts) if match)
        return ", ".join(names) + (f" on {', '.join(channels)}" if channels else "")

    @cached_property
    def kinds(self) -> list[Kind]:
        """The lines on the critical path by what they do, the most time first."""
        alike: dict[str, list[Step]] = {}
        for step in self.steps:
            alike.setdefault(step.kind, []).append(step)
        kinds = []
        for kind, steps in alike.items():
            by_category: dict[str, int] = {}
            for step in steps:
                for name, ps in step.by_category.items():
                    by_category[name] = by_category.get(name, 0) + ps
            ranks = sorted({rank for step in steps for rank in step.ranks})
            ps, operations = sum(step.ps for step in steps), sum(step.operations for step in steps)
            kinds.append(Kind(kind, len(steps), operations, ranks, ps, _largest(by_category)))
        return sorted(kinds, key=lambda kind: -kind.ps)

    @cached_property
    def ranks(self) -> list[Rank]:
        """The parts of the ranks in the critical path, the largest first."""
        of, ranks = np.asarray(self._ranks, dtype=np.int64)[self._agent], []
        for rank in np.unique(of).tolist():
            here = of == rank
            by_category = _by_category(self._category[here], self._ps[here])
            ranks.append(Rank(rank, int(self._ps[here].sum()), by_category))
        return sorted(ranks, key=lambda rank: -rank.ps)

    @cached_property
    def _ranks(self) -> list[int]:
        return self._program.ranks

    @cached_property
    def advice(self) -> list[Advice]:
        """What would help: other algorithms and changes of the machine, then lines at no cost, simulated again; then
        bounds; the best of each first.

        A long run is simulated again less often than `MOST_RUNS` times, or not at all: `advise` does it all the same.
        """
        return self.advise(BUDGET)

    @checked
    def advise(self, budget: int | None = None) -> list[Advice]:
        """As `advice`; `budget` limits the engine events and operations of all runs together, None does not.

        Raises as `what_if`.
        """
        if not self.latency_ps:
            return []
        links = [(number, name, self._on_links.get(number, 0)) for number, name, *_ in self._timeline.link_use()]
        lines = [(number, step.place, step.ps) for number, step in zip(self._numbers, self.steps, strict=True)]
        links.sort(key=lambda link: -link[2])
        lines.sort(key=lambda line: -line[2])
        found = self._advisor.advise(self.unlinked, links, lines, budget)
        if self._alternatives is None:
            return found
        others = self._alternatives.simulated(self.latency_ps, budget)
        changes = [entry for entry in found if entry.way == SIMULATED and not entry.line]
        rest = [entry for entry in found if entry not in changes]
        ordered = sorted([*others, *changes], key=lambda entry: -entry.gain_ps)
        return [replace(entry, command=self._command(entry)) for entry in [*ordered, *rest]]

    def _command(self, entry: Advice) -> str:
        return "" if self._alternatives is None else self._alternatives.command(entry)

    @checked
    def what_if(self, changes: Mapping[str, object]) -> Advice:
        """The time that the same program takes on a changed machine, simulated.

        changes: dotted path of the topology -> value; "2x" or "×2" is twice the parameter's value. Whatever chose the
        algorithm does not choose again.

        Raises ConfigError: AHBM-C107 for a factor of no parameter, C146 for a factor of no number, or a machine of
        another shape; TopologyError, LintError, DeadlockError as a run on the machine.
        """  # noqa: RUF002
        found = self._advisor.what_if(overrides(changes) or {})
        return replace(found, command=self._command(found))

    @cached_property
    def _advisor(self) -> Advisor:
        return Advisor(self._program, self.latency_ps, self._timeline.events + self._program.ops)

    @cached_property
    def _on_links(self) -> dict[int, int]:
        """ps of the critical path by the number of a link."""
        numbers, of = np.unique(self._link, return_inverse=True)
        return dict(zip(numbers.tolist(), np.bincount(of, self._ps).astype(np.int64).tolist(), strict=True))

    @cached_property
    def links(self) -> list[Link]:
        """Every link that was used, the one most waited for first."""
        return [
            Link(name, busy, crossed, waits, waited, self._on_links.get(number, 0))
            for number, name, busy, crossed, waits, waited in self._timeline.link_use()
        ]

    @cached_property
    def collisions(self) -> list[Collision]:
        """Flows that meet on a link although there are other ways as short, the most crowded link first; those of links
        that are busy for longer than if all were equally."""
        busy = {link.name: link.busy_ps for link in self.links}
        found = []
        for link, flows, among, choice in self._program.collisions():
            even = sum(busy.get(other, 0) for other in choice) // len(choice)
            if busy.get(link, 0) > even:
                least = -(-among // len(choice))
                found.append(Collision(link, flows, among, least, len(choice), busy[link], even))
        return sorted(found, key=lambda each: -each.busy_ps)

    def link_load(self, frames: int) -> dict[str, list[int]]:
        """How busy each link is over time, by its name: ps in each of `frames` equal parts of the run.

        Raises ConfigError (AHBM-C129) unless frames is 1 to 1000.
        """
        return {name: busy for _, name, busy in self._timeline.link_load(frames)}

    @checked
    def bandwidth_on(self, link: str) -> str:
        """In words, the limit of the library's protocols on a link between SIPs by its name, where the link itself has
        more; else empty. Raises ConfigError (AHBM-C129) for what is no text."""
        text("link", link)
        calls = self._program.protocols(ALIKE) if link_class(link) == SIPS else []
        found = [(name, cap_of(link, caps)) for name, _, caps in calls]
        limits = sorted(gbs for _, gbs in found if gbs is not None)
        if not limits or len(limits) < len(found):
            return ""
        names = " or ".join(dict.fromkeys(name for name, _ in found))
        least, most = (f"{gbs:.3g}" for gbs in (limits[0], limits[-1]))
        return f"at the bandwidth of protocol {names}, {least if least == most else f'{least} to {most}'} GB/s"

    @cached_property
    def unlinked(self) -> dict[str, int]:
        """Time of the critical path on no link by category, the largest first. DMA that hands bytes over to a link is
        time on that link."""
        here = self._link == _NO_LINK
        return _by_category(self._category[here], self._ps[here])

    @checked
    def shares(self, category: str = "", link: str = "") -> list[tuple[Step, int]]:
        """The lines with ps of the critical path on no link in this category, on this link, or on all links where
        neither is named; the largest first. Raises ConfigError (AHBM-C129) for names that there are not."""
        if text("category", category):
            if category not in categories():
                raise refused("category", f"one of {', '.join(categories())}", category)
            here = (self._category == categories().index(category)) & (self._link == _NO_LINK)
        elif text("link", link):
            numbers = {name: number for number, name, *_ in self._timeline.link_use()}
            if link not in numbers:
                raise refused("link", "the name of a link in use", link)
            here = self._link == numbers[link]
        else:
            here = self._link != _NO_LINK
        sums = np.bincount(self._step[here], self._ps[here], minlength=len(self.steps)).astype(np.int64).tolist()
        found = [(step, ps) for step, ps in zip(self.steps, sums, strict=True) if ps]
        return sorted(found, key=lambda entry: -entry[1])

    def stretches(self) -> Iterator[Stretch]:
        """The critical path from launch to end; each stretch starts where the one before ended."""
        names, links = categories(), {number: name for number, name, *_ in self._timeline.link_use()}
        columns = (self._start, self._ps, self._category, self._agent, self._op, self._link)
        for start, ps, category, agent, op, link in zip(*(column.tolist() for column in columns), strict=True):
            what, origin = self._program.describe(agent, op)
            place = self._program.place(agent)
            name = links.get(link, "")
            yield Stretch(start, start + ps, names[category], agent, place, op, what, origin, name)

    @cached_property
    def _recorded(self) -> Timeline:
        """When each operation ran: simulated again, for few ask, and it takes as much memory as a fifth of the rest."""
        return self._program.simulate()

    def operations(self, agent: int) -> Iterator[tuple[int, int, str, str]]:
        """An agent's operations: start and end in ps, the operation in words, and the line that it was written in."""
        starts, ends = self._recorded.spans(agent)
        for op, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            yield start, end, *self._program.describe(agent, op)

    def spans(self, agent: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Start and end of each of an agent's operations, in ps and in order."""
        starts, ends = self._recorded.spans(agent)
        return starts.astype(np.int64), ends.astype(np.int64)

    def operation(self, agent: int, op: int) -> tuple[str, str]:
        """An agent's operation in words, and the line that it was written in."""
        return self._program.describe(agent, op)

    @property
    def path(self) -> tuple[NDArray[np.int64], ...]:
        """The critical path as columns, a row per stretch: start and end in ps, agent, operation, and category by its
        position in `categories()`.
        """
        columns = (self._start, self._start + self._ps, self._agent, self._op, self._category)
        return tuple(column.astype(np.int64) for column in columns)

    def intervals(self, agent: int) -> tuple[NDArray[np.int64], ...]:
        """An agent's time from the launch to the end of the run as columns, a row per interval: start and end in ps,
        operation (after its end the last one), and category by its position in `categories()`.

        Raises ConfigError (AHBM-C129).
        """
        op, category, start, end = self._timeline.intervals(agent)
        return tuple(column.astype(np.int64) for column in (start, end, op, category))

    def tracks(self) -> Any:
        """The run as rows of slices, as `Timeline.tracks`. Raises BudgetError (AHBM-B122) for one too long to show."""
        return self._timeline.tracks()

    @property
    def machine(self) -> Machine:
        """The machine of the run."""
        return self._program.machine

    @property
    def rank_of_agents(self) -> list[int]:
        """The rank of each agent."""
        return self._ranks

    @property
    def places(self) -> list[str]:
        """The place of each agent, e.g. "sip0.cube3.pe0"."""
        return [self._program.place(agent) for agent in range(self._program.agents)]

    @property
    def time_of_agents(self) -> NDArray[np.int64]:
        """ps per agent (rows) and category (columns, as `categories()`); every row sums to the latency."""
        return self._timeline.agent_time().reshape(-1, len(categories())).astype(np.int64)

    @checked
    def to_json(self, full: bool = False, advice: Sequence[Advice] | None = None) -> dict[str, Any]:
        """As JSON-serialisable data; `full` with every stretch of the path. `advice`: instead of the attribute."""
        data: dict[str, Any] = {
            "program": self._program.name,
            "latency_ps": self.latency_ps,
            "bound_ps": self.bound_ps,
            "timeline_hash": self.timeline_hash,
            "summary": sentences(self, self.advice if advice is None else advice),
            "critical_path_ps": self.by_category,
            "agents_ps": self.agents_by_category,
            "steps": [asdict(step) for step in self.steps],
            "kinds": [asdict(kind) for kind in self.kinds],
            "ranks": [asdict(rank) for rank in self.ranks],
            "links": [asdict(link) for link in self.links],
            "collisions": [asdict(each) for each in self.collisions],
            "advice": [asdict(entry) for entry in (self.advice if advice is None else advice)],
        }
        if full:
            data["path"] = [asdict(stretch) for stretch in self.stretches()]
        return data

    @property
    def name(self) -> str:
        """Of the program."""
        return self._program.name

    @checked
    def text(self, advice: Sequence[Advice] | None = None) -> str:
        """For people, the answer in a few sentences first; `advice`: instead of the attribute."""
        return described(self, self.advice if advice is None else advice)

    def _repr_html_(self) -> str:
        title = f"{self._program.name}: {self.latency_ps / 1000:,.3f} ns (simulated); the critical path"
        shares = [[name, ps / 1000, f"{100 * ps / self.latency_ps:.1f} %"] for name, ps in self.by_category.items()]
        longest = sorted(self.steps, key=lambda step: -step.ps)[:10]
        lines = [
            [
                step.ps / 1000,
                step.origin or "(no source)",
                f"{step.what} x {step.operations}",
                next(iter(step.by_category), ""),
            ]
            for step in longest
        ]
        return html.table(title, ("category", "ns", "share"), shares) + html.table(
            f"{len(longest)} of {len(self.steps)} lines of the algorithm, the longest first",
            ("ns", "line", "operation", "most of it"),
            lines,
        )

    def __str__(self) -> str:
        return self.text()


def _by_category(category: NDArray[np.uint8], ps: NDArray[np.int64]) -> dict[str, int]:
    # Sums of floats, as bincount makes them, are exact up to 2**53 ps: 2.5 hours.
    sums = np.bincount(category, ps, minlength=len(categories())).astype(np.int64)
    return _largest(dict(zip(categories(), sums.tolist(), strict=True)))


def _largest(times: dict[str, int]) -> dict[str, int]:
    return dict(sorted(((name, ps) for name, ps in times.items() if ps), key=lambda entry: -entry[1]))
