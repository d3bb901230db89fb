"""The latency of a run, taken apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ahbm._core import categories
from ahbm.base import html
from ahbm.base.arguments import checked

if TYPE_CHECKING:
    from ahbm._core import Program, Timeline


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
    def __init__(self, program: Program, timeline: Timeline) -> None:
        """Of a program and a timeline of it with detail. Raises DataError (AHBM-V123) without."""
        self._program = program
        self._timeline = timeline
        self._agent, self._op, self._category, self._link, self._line, start, end = timeline.critical_path()
        self._start: NDArray[np.int64] = start.astype(np.int64)
        self._ps: NDArray[np.int64] = end.astype(np.int64) - self._start

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
        """Time of all agents together, each from launch to its end; here a wait is a category of its own."""
        return _largest(dict(zip(categories(), self.time_of_agents.sum(axis=0).tolist(), strict=True)))

    @cached_property
    def steps(self) -> list[Step]:
        """The lines of the algorithm in the order in which the critical path first comes to them."""
        _, first, of = np.unique(self._line, return_index=True, return_inverse=True)
        sorted_, bounds = np.argsort(of, kind="stable"), np.cumsum(np.bincount(of))
        steps = []
        for line in np.argsort(first):
            here = sorted_[bounds[line - 1] if line else 0 : bounds[line]]
            agent, op = int(self._agent[here[0]]), int(self._op[here[0]])
            what, _ = self._program.describe(agent, op)
            operations = len(np.unique(self._agent[here].astype(np.uint64) << np.uint64(32) | self._op[here]))
            by_category = _by_category(self._category[here], self._ps[here])
            steps.append(Step(self._program.line(agent, op), what, operations, int(self._ps[here].sum()), by_category))
        return steps

    @cached_property
    def links(self) -> list[Link]:
        """Every link that was used, the one most waited for first."""
        numbers, of = np.unique(self._link, return_inverse=True)
        path = dict(zip(numbers.tolist(), np.bincount(of, self._ps).astype(np.int64).tolist(), strict=True))
        use = self._timeline.link_use()
        return [
            Link(name, busy, crossed, waits, waited, path.get(number, 0))
            for number, name, busy, crossed, waits, waited in use
        ]

    def stretches(self) -> Iterator[Stretch]:
        """The critical path from launch to end; each stretch starts where the one before ended."""
        names, links = categories(), {number: name for number, name, *_ in self._timeline.link_use()}
        columns = (self._start, self._ps, self._category, self._agent, self._op, self._link)
        for start, ps, category, agent, op, link in zip(*(column.tolist() for column in columns), strict=True):
            what, origin = self._program.describe(agent, op)
            place = self._program.place(agent)
            name = links.get(link, "")
            yield Stretch(start, start + ps, names[category], agent, place, op, what, origin, name)

    def operations(self, agent: int) -> Iterator[tuple[int, int, str, str]]:
        """An agent's operations: start and end in ps, the operation in words, and the line that it was written in."""
        starts, ends = self._timeline.spans(agent)
        for op, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            yield start, end, *self._program.describe(agent, op)

    def spans(self, agent: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Start and end of each of an agent's operations, in ps and in order."""
        starts, ends = self._timeline.spans(agent)
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

    @property
    def places(self) -> list[str]:
        """The place of each agent, e.g. "sip0.cube3.pe0"."""
        return [self._program.place(agent) for agent in range(self._program.agents)]

    @property
    def time_of_agents(self) -> NDArray[np.int64]:
        """ps per agent (rows) and category (columns, as `categories()`): from launch to the agent's end."""
        return self._timeline.agent_time().reshape(-1, len(categories())).astype(np.int64)

    @checked
    def to_json(self, full: bool = False) -> dict[str, Any]:
        """As JSON-serialisable data; `full` with every stretch of the path."""
        data: dict[str, Any] = {
            "program": self._program.name,
            "latency_ps": self.latency_ps,
            "timeline_hash": self.timeline_hash,
            "critical_path_ps": self.by_category,
            "agents_ps": self.agents_by_category,
            "steps": [asdict(step) for step in self.steps],
            "links": [asdict(link) for link in self.links],
        }
        if full:
            data["path"] = [asdict(stretch) for stretch in self.stretches()]
        return data

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
        lines = [
            f"{self._program.name}: {self.latency_ps / 1000:,.3f} ns (simulated); the critical path, in ns",
            *_shares(self.by_category, self.latency_ps),
            "by line of the algorithm:",
        ]
        for step in self.steps:
            what = ", ".join(f"{name} {ps / 1000:,.3f}" for name, ps in step.by_category.items())
            where = step.origin or "(no source)"
            lines.append(f"  {step.ps / 1000:>14,.3f}  {where}  {step.what} x {step.operations}: {what}")
        waited = [link for link in self.links if link.waited_ps][:5]
        lines.append("links that messages queued for:" if waited else "no message had to wait for a link")
        for link in waited:
            lines.append(
                f"  {link.waited_ps / 1000:>14,.3f}  {link.name}: {link.waits} of {link.crossed} waited, busy "
                f"{100 * link.busy_ps / self.latency_ps:.1f} % of the run, {link.path_ps / 1000:,.3f} on the path"
            )
        total = sum(self.agents_by_category.values())
        lines += ["time of all agents, waits included:", *_shares(self.agents_by_category, total)]
        return "\n".join(lines)


def _by_category(category: NDArray[np.uint8], ps: NDArray[np.int64]) -> dict[str, int]:
    # Sums of floats, as bincount makes them, are exact up to 2**53 ps: 2.5 hours.
    sums = np.bincount(category, ps, minlength=len(categories())).astype(np.int64)
    return _largest(dict(zip(categories(), sums.tolist(), strict=True)))


def _largest(times: dict[str, int]) -> dict[str, int]:
    return dict(sorted(((name, ps) for name, ps in times.items() if ps), key=lambda entry: -entry[1]))


def _shares(times: dict[str, int], total: int) -> list[str]:
    return [f"  {ps / 1000:>14,.3f}  {100 * ps / total:5.1f} %  {name}" for name, ps in times.items()]
