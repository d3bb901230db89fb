"""Tuning: every algorithm timed on every machine, and the quickest of each range of sizes for each number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

from ahbm._core import Machine
from ahbm.base.arguments import checked
from ahbm.base.knobs import Knobs
from ahbm.base.rules import Query, Rule, Rules, Span, merged, spans
from ahbm.choose.catalogue import Catalogue
from ahbm.choose.fitted import Fitted, Verdict, fitted_in
from ahbm.choose.measured import Measurements
from ahbm.choose.names import AHBM, NCCL, Library
from ahbm.choose.oracle import Oracle, OracleTable
from ahbm.choose.regret import Point, Regret
from ahbm.choose.sizes import whole_sizes
from ahbm.choose.turning import Turning, stated
from ahbm.core.choice import CONFIGURED, Choice
from ahbm.errors import ConfigError
from ahbm.source.located import refuse_kernel
from ahbm.sweeps.running import Progress

CHANNELS = 16
"""Written where a file must name them and nothing has chosen them."""
_LEAST_SIZES = 2
_FAR = 2


@dataclass(frozen=True)
class Given:
    """Knobs for files that must name them; what an algorithm's own entry says holds before."""

    channels: int | None = None
    """None: `CHANNELS`; on machines that were fitted to measurements, NCCL's own number."""
    protocol: str | None = None
    """A protocol of NCCL: ll, ll128 or simple. None: that of the machine's library which is quickest."""
    nodes: int | None = None
    """Computers among which the ranks of every machine are; None: its nodes."""


@dataclass(frozen=True)
class Tuned:
    """What was measured and chosen."""

    collective: str
    dtype: str
    table: OracleTable
    """Of the sizes that were tuned."""
    held: OracleTable | None
    """Of sizes between them, which took no part in the choice; None: there was no size between them."""
    rules: Rules
    """By the emulator's names."""
    given: Given = field(default_factory=Given)
    dropped: tuple[int, ...] = ()
    """Sizes that the budget left out."""
    resized: tuple[str, ...] = ()
    """What is to be said of sizes that were asked for and cannot be divided."""
    measured: Measurements = field(default_factory=Measurements)
    """Of libraries, by which the lines of their files are judged."""

    @property
    def runs(self) -> int:
        """Simulations."""
        return len(self.table) + (0 if self.held is None else len(self.held))

    @property
    def wrong(self) -> dict[str, str]:
        """The algorithms whose result is wrong at a size, and the first reason."""
        return {**({} if self.held is None else self.held.wrong), **self.table.wrong}

    @property
    def undecided(self) -> dict[str, str]:
        """The algorithms of which it is not known at a size whether the result is right, and the first reason."""
        return {**({} if self.held is None else self.held.undecided), **self.table.undecided}

    @property
    def regret(self) -> Regret:
        """At the sizes that were tuned."""
        return loses(self.table, self.rules)

    @property
    def held_sizes(self) -> Regret | None:
        """At sizes that took no part in the choice; None: there was none."""
        return None if self.held is None else loses(self.held, self.rules)

    def held_networks(self) -> dict[str, Regret | None]:
        """By machine, what the rules of the other machines lose on it; None where no other has as many ranks."""
        found: dict[str, Regret | None] = {}
        for name, machine in self.table.machines.items():
            others = self.table.only(lambda point: point.machine != name)  # noqa: B023
            if all(other.sips != machine.sips for other in others.machines.values()):
                found[name] = None
                continue
            own = self.table.only(lambda point: point.machine == name)  # noqa: B023
            found[name] = loses(own, rules_of(others, plain(others)))
        return found

    @cached_property
    def turning(self) -> Turning:
        """The times of the table under knobs."""
        return Turning(self.table)

    @cached_property
    def fitted(self) -> dict[str, Fitted]:
        """NCCL on the machines that were fitted to measurements, by their names in the table."""
        return fitted_in(self.table, self.measured)

    @property
    def lets_nccl_be(self) -> bool:
        """Whether all machines were fitted to measurements of NCCL, and no line helps on any."""
        return (
            self.collective in NCCL.collectives and set(self.fitted) == set(self.table.machines) and not self.of(NCCL)
        )

    def of(self, library: Library) -> Rules:
        """The rules by a library's names: of the algorithms that it has, the quickest of each range, with the knobs
        that its file must name and under which they were timed. Empty where it has none.

        NCCL's on machines that were fitted to measurements are lines that help beyond the band, and between them what
        NCCL takes by itself; none where nothing helps.
        """
        timed = partial(self.timed, library)
        if library is not NCCL:
            return rules_of(self.table, timed)
        known = {(point.ranks, self.nodes(point)) for point in self.table.points() if point.machine in self.fitted}
        others = self.table.only(lambda point: (point.ranks, self.nodes(point)) not in known)
        lines = [line for ranks, nodes in sorted(known) for line in self._lines(ranks, nodes)]
        return Rules((*rules_of(others, timed, self.nodes), *lines))

    def _lines(self, ranks: int, nodes: int) -> list[Rule]:
        """Lines that help on every fitted machine of so many ranks and nodes, and those between them."""
        points: dict[int, list[Point]] = {}
        for point in self.table.points():
            if point.machine in self.fitted and (point.ranks, self.nodes(point)) == (ranks, nodes):
                points.setdefault(point.nbytes, []).append(point)
        sizes = sorted(points)
        best = {size: self._helpful(points[size]) for size in sizes}
        if not any(best.values()):
            return []
        found: list[Rule] = []
        for size, span in zip(sizes, spans(sizes, ranks), strict=True):
            if (line := best[size]) is None:
                found += next(iter(self.fitted.values())).kept(self.collective, span, ranks, nodes)
            else:
                found.append(
                    Rule(self.collective, line.name, span, Span(ranks, ranks), Span(nodes, nodes), **line.knobs)
                )
        return list(merged(found))

    def _helpful(self, points: Sequence[Point]) -> Choice | None:
        """The line that helps on the machines of all points, most where it helps least; None for none."""
        gains: dict[Choice, list[float]] = {}
        for point in points:
            for name, knobs, verdict in self._judged(point):
                if verdict.helps:
                    gains.setdefault(_named(name, knobs), []).append(verdict.gain)
        everywhere = {line: min(found) for line, found in gains.items() if len(found) == len(points)}
        return max(everywhere, key=lambda line: everywhere[line], default=None)

    def _judged(self, point: Point) -> Iterator[tuple[str, Knobs, Verdict]]:
        """What NCCL could be made to run on a fitted machine, of the algorithms that are candidates."""
        names = [entry.name for entry in self.table.catalogue.of_collective(self.collective)]
        given = Knobs(protocol=self.given.protocol, channels=self.given.channels)
        for name, knobs, verdict in self.fitted[point.machine].candidates(point, self.nodes(point), given):
            if NCCL.ours(self.collective, name, names) is not None:
                yield name, knobs, verdict

    def nodes(self, point: Point) -> int:
        """Computers among which the ranks of a point are."""
        return self.given.nodes or self.table.nodes(point)

    def timed(self, library: Library, point: Point) -> dict[Choice, int]:
        """Ps of each algorithm that a library can run at a point, by the library's name and the knobs that its file
        names: what a line of the file says is what was timed."""
        nodes, times = self.nodes(point), self.table.times(point.machine, point.nbytes)
        if library is NCCL and point.machine in self.fitted:
            return {_named(name, knobs): round(verdict.us * 1e6) for name, knobs, verdict in self._judged(point)}
        found: dict[Choice, int] = {}
        for theirs, ours in candidates(library, self.collective, times).items():
            if library is not NCCL:
                found[_named(theirs)] = times[ours]
                continue
            for knobs in self._knobs(point, ours):
                if library.lacks(self.collective, theirs, knobs.protocol, nodes, point.ranks / nodes) is not None:
                    continue
                if self.turning.at(point, ours, knobs).refused:
                    continue
                found[_named(theirs, knobs)] = self.turning.ps(point, ours, knobs)
        return found

    def _knobs(self, point: Point, ours: str) -> Iterator[Knobs]:
        own = stated(self.table.catalogue.entry(ours))
        said = own.protocol or self.given.protocol
        for one in self.turning.protocols(point, ours) if said is None else [said]:
            yield replace(own, protocol=one, channels=own.channels or self.given.channels or CHANNELS)


def _named(algorithm: str, knobs: Knobs = Knobs()) -> Choice:  # noqa: B008
    """What a rule runs: an algorithm by some library's name, and its knobs."""
    return Choice(CONFIGURED, algorithm, **knobs.knobs)


def plain(table: OracleTable) -> Callable[[Point], dict[Choice, int]]:
    """The times of every algorithm under its own name."""
    return lambda point: {_named(name): ps for name, ps in table.times(point.machine, point.nbytes).items()}


def candidates(library: Library, collective: str, times: Mapping[str, int]) -> dict[str, str]:
    """The library's name of each algorithm that it has -> the one of `times` that stands for it."""
    if library.algorithms is None:
        return {name: name for name in times} if collective in library.collectives else {}
    known = [one for one in library.algorithms.get(collective, {}) if one not in library.newer.get(collective, ())]
    return {theirs: ours for theirs in known if (ours := library.ours(collective, theirs, times)) is not None}


Timed = Callable[[Point], Mapping[Choice, int]]
"""Ps at a point of what there is to choose from."""


def loses(table: OracleTable, rules: Rules) -> Regret:
    """What rules by the emulator's names lose at the points of a table that they are for."""

    def chosen(point: Point) -> str | None:
        rule = rules.choose(Query(point.collective, point.nbytes, point.ranks))
        return None if rule is None else rule.algorithm

    return table.regret(chosen)


def rules_of(table: OracleTable, timed: Timed, nodes: Callable[[Point], int] | None = None) -> Rules:
    """Per number of ranks, and of the nodes that `nodes` gives, the best of each size, from border to border; of what
    `timed` gives ps at a point.

    Over several machines of as many ranks and nodes the best is what runs on most of them and loses least on the
    average.
    """
    points: dict[tuple[int, int], dict[int, list[Point]]] = {}
    for point in table.points():
        who = point.ranks, nodes(point) if nodes else 0
        points.setdefault(who, {}).setdefault(point.nbytes, []).append(point)
    found: list[Rule] = []
    for ranks, among in sorted(points):
        rules = merged(_ranges(table, ranks, points[ranks, among], timed))
        found += (replace(rule, nodes=Span(among, among)) for rule in rules) if nodes else rules
    return Rules(tuple(found))


def _ranges(table: OracleTable, ranks: int, points: Mapping[int, Sequence[Point]], timed: Timed) -> Iterator[Rule]:
    winners = {size: _winner(table, points[size], timed) for size in sorted(points)}
    sizes = [size for size, winner in winners.items() if winner is not None]
    for size, span in zip(sizes, spans(sizes, ranks), strict=True):
        winner = winners[size]
        assert winner is not None
        yield Rule(table.collective, winner.name, span, Span(ranks, ranks), **winner.knobs)


def _winner(table: OracleTable, points: Sequence[Point], timed: Timed) -> Choice | None:
    refused: dict[Choice, int] = {}
    lost: dict[Choice, float] = {}
    for point in points:
        least = min(table.times(point.machine, point.nbytes).values())
        for name, ps in timed(point).items():
            refused[name] = refused.get(name, len(points)) - 1
            lost[name] = lost.get(name, 0.0) + (ps / least if least else 1.0)
    return min(refused, key=lambda name: (refused[name], lost[name]), default=None)


@checked
def tune(
    catalogue: Catalogue,
    machines: Sequence[Machine],
    sizes: Sequence[int],
    *,
    collective: str = "all_reduce",
    dtype: str = "f16",
    given: Given | None = None,
    measured: Measurements | None = None,
    budget: int | None = None,
    jobs: int | None = None,
    tell: Callable[[Progress], object] | None = None,
) -> Tuned:
    """Times a catalogue on machines at `sizes` (bytes of one rank's array) and between them, and makes rules.

    measured: of libraries, by which the lines of their files are judged. budget: the most simulations; sizes are left
    out evenly until they are no more. jobs: processes.
    tell: as of `ahbm.sweep`.

    Raises ConfigError (AHBM-C146) for a budget that two sizes exceed, as `ahbm.runs.candidates.none_left` where no
    algorithm runs and is right, and as `Oracle`.
    """
    if measured is not None:
        measured.check(machines, collective, None if given is None else given.nodes)
    wanted, unit, resized = whole_sizes(sizes, catalogue, machines, dtype)
    each = len(machines) * len(catalogue.of_collective(collective))
    kept, between = _within(wanted, each, unit, budget, collective)
    how: dict[str, Any] = {"collective": collective, "dtype": dtype, "jobs": jobs, "tell": tell}
    table = Oracle(catalogue, list(machines), kept, **how).table()
    if not table.points():
        raise table.none_left("on these machines")
    held = Oracle(_near(table), list(machines), between, **how).table() if between else None
    dropped = tuple(size for size in wanted if size not in kept)
    rules = rules_of(table, plain(table))
    found = Measurements() if measured is None else measured
    return Tuned(collective, dtype, table, held, rules, given or Given(), dropped, tuple(resized), found)


def _near(table: OracleTable) -> Catalogue:
    """The candidates that could be the quickest between the sizes of a table: at one of them no more than `_FAR` times
    as slow as the quickest there, or not known to be right."""
    near = {*table.wrong, *table.undecided}
    for point in table.points():
        times = table.times(point.machine, point.nbytes)
        least = min(times.values())
        near |= {name for name, ps in times.items() if ps <= _FAR * least}
    known = table.catalogue
    return Catalogue([entry for entry in known if entry.name in near], known.ccl, known.overrides)


def _within(
    sizes: Sequence[int], each: int, unit: int, budget: int | None, collective: str
) -> tuple[list[int], list[int]]:
    """The sizes to tune and those between them, of which the runs are within a budget."""
    step = 1
    while True:
        kept = [*sizes[:-1:step], sizes[-1]]
        between = _between(kept, unit)
        runs = (len(kept) + len(between)) * each
        if budget is None or runs <= budget:
            return kept, between
        if len(kept) <= _LEAST_SIZES:
            hint = f"--budget {runs}, or fewer algorithms or machines"
            raise ConfigError(
                "AHBM-C146", f"{budget} runs are too few: two sizes of {collective} take {runs}", hint=hint
            )
        step += 1


def _between(sizes: Sequence[int], unit: int) -> list[int]:
    """The geometric mean of each two neighbours, as a multiple of `unit`, where there is one."""
    found = []
    for below, above in pairwise(sizes):
        mean = int((below * above) ** 0.5) // unit * unit
        if below < mean < above:
            found.append(mean)
    return found


def check_collective(collective: str) -> None:
    """Raises ConfigError (AHBM-C105) for what is no collective that is tuned by sizes."""
    if collective not in AHBM.collectives:
        refuse_kernel(collective)
        hint = f"one of {', '.join(AHBM.collectives)}"
        raise ConfigError("AHBM-C105", f"{collective[:40]!r} is no collective that is tuned", hint=hint)
