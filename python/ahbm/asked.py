"""What the command line asks, as functions of the package: `report`, `plot`, `explain`, `compare`, `numerics`,
`algorithms`, `topologies`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ahbm.base import html
from ahbm.base.arguments import checked, refused, text
from ahbm.base.arguments import path as path_of
from ahbm.base.collectives import require_collective
from ahbm.base.sizes import parse_size
from ahbm.errors import ConfigError
from ahbm.job.open import open_
from ahbm.job.replay import JobReport
from ahbm.job.targets import Target
from ahbm.runs import compare as c
from ahbm.runs.report import Report
from ahbm.runs.timed import TimeReport
from ahbm.source.function import AnyAlgorithm, as_algorithm
from ahbm.table.cases import Sweep
from ahbm.table.rows import Rows

if TYPE_CHECKING:
    from ahbm.check.numerics import Numerics
    from ahbm.runs.explanation import Explanation
    from ahbm.views.drawing import Drawing
    from ahbm.views.page import Page

SIZES = ("1K", "16K", "256K")
"""Sizes of a page where none are given."""
Ran = Report | TimeReport | JobReport


def _opened(target: object, options: Mapping[str, Any]) -> Any:
    given = {name: value for name, value in options.items() if value is not None}
    return open_(str(path_of("target", target)), **given)


@checked
def explain(
    target: str | Path | Report = "all_reduce",
    algorithm: AnyAlgorithm = None,
    topology: str | Path | None = None,
    *,
    size: int | str | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Explanation:
    """Why a collective, a plan, a job or a report takes as long as it does, as `ahbm explain` says it.

    size: of one rank's array, bytes or a text such as "64K". Raises as `ahbm.open`, and as running it.
    """
    if isinstance(target, Report):
        return target.explain()
    options = {"algorithm": algorithm, "topology": topology, "size": size, "overrides": overrides}
    found: Explanation = _opened(target, options).explain()
    return found


@checked
def numerics(
    target: str | Path = "all_reduce",
    algorithm: AnyAlgorithm = None,
    topology: str | Path | None = None,
    *,
    size: int | str = "4K",
    dtype: str = "f16",
    seeds: int = 4,
    overrides: Mapping[str, object] | None = None,
) -> Numerics:
    """How exact a reduction is, in which order it adds, and what its bits depend on, as `ahbm numerics` says it.

    Raises as `ahbm.run`, and ConfigError (AHBM-C129) for fewer than one set of random numbers.
    """
    from ahbm.base.arguments import whole
    from ahbm.check.numerics import numerics as measure

    whole("seeds", seeds, 1, 2**32)
    options = {"algorithm": algorithm, "topology": topology, "size": size, "dtype": dtype, "overrides": overrides}
    return measure(_opened(target, options).case, seeds)


@dataclass(frozen=True)
class Comparison(Sequence[c.Row]):
    """Measurements that stand beside each other."""

    rows: tuple[c.Row, ...]

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[c.Row]:
        return iter(self.rows)

    def gate(self) -> None:
        """Raises RegressionError (AHBM-R101, R102, R103) where something is slower, wrong or gone."""
        c.gate(self.rows)

    def to_json(self) -> list[dict[str, Any]]:
        """The rows as JSON-serialisable data."""
        return [row.to_json() for row in self.rows]

    def page(self, title: str = "comparison") -> Page:
        """The page of `ahbm report BEFORE AFTER`."""
        from ahbm.views import comparisons

        return comparisons.page(title, self.rows)

    def __str__(self) -> str:
        return "\n".join([c.HEADER, *map(str, self.rows), *(f"note: {note}" for note in c.notes(self.rows))])

    def _repr_html_(self) -> str:
        rows = [list(row.to_json().values()) for row in self.rows]
        return html.table("Comparison", list(self.rows[0].to_json()) if self.rows else (), rows)


@checked
def compare(before: object, after: object) -> Comparison:
    """What changed between two runs: reports, lists of them, or files that `--json` printed. Reports of two algorithms
    or machines are compared size by size.

    Raises ConfigError (AHBM-C129) for anything else, C160 for files that are none.
    """
    sides = [_reports(name, side) for name, side in (("before", before), ("after", after))]
    same = {c.key(report) for report in sides[0]} & {c.key(report) for report in sides[1]}
    return Comparison(tuple(c.compare(*sides) if same else c.versus(*sides)))


def _reports(name: str, side: object) -> list[Report]:
    if isinstance(side, Report):
        return [side]
    if isinstance(side, str | Path):
        return c.load(side)
    found: list[Report] = []
    for report in side if isinstance(side, list | tuple) else [side]:
        if not isinstance(report, Report):
            raise refused(name, "a Report, several of them, or a file", report)
        found.append(report)
    return found


@checked
def algorithms(
    collective: str | None = None,
    topology: str | Path | None = None,
    overrides: Mapping[str, object] | None = None,
) -> list[str]:
    """Names of the configured algorithms: of one collective, else of all. Raises ConfigError (AHBM-C105)."""
    from ahbm.core.emulator import Emulator

    emulator = Emulator.load(topology, None, overrides)
    if collective is None:
        return sorted(emulator.ccl.algorithms)
    require_collective(text("collective", collective))
    return emulator.algorithms(collective)


def topologies() -> list[str]:
    """Names of the machines that come with the package: what `topology=` and `-t` take, besides paths."""
    from ahbm.config.topology import DEFAULT, NETWORKS, names

    return list(dict.fromkeys((DEFAULT, *names(), *NETWORKS)))


@checked
def report(
    target: object = "all_reduce",
    algorithms: AnyAlgorithm | Sequence[AnyAlgorithm] = (),
    topology: str | Path | None = None,
    *,
    size: int | str | None = None,
    sizes: Sequence[int | str] = SIZES,
    output: str | Path | None = None,
    data: bool = True,
    ranks: Sequence[int] = (),
    numerics: bool = False,
    explain: bool = True,
    overrides: Mapping[str, object] | None = None,
) -> Page:
    """The page of `ahbm report`: of a collective over sizes, of a plan or a job, or of a report that was made.

    size: one size instead of `sizes`. output: also written there. A notebook shows the page.

    Raises UnsupportedError (AHBM-U145) without the extra `report`, ConfigError, and as running it.
    """
    from ahbm.views.page import require_extra

    require_extra()
    if output is not None:
        output = path_of("output", output)
    if isinstance(target, Report | TimeReport | JobReport):
        page = of_run(target)
    else:
        name = str(path_of("target", target))
        found = open_(name, **({} if topology is None else {"topology": topology}))
        if isinstance(found, Target) and not found.measured:
            page = of_run(open_(name, **_given(topology, overrides)).run(data=False))
        else:
            page = _swept(name, _each(algorithms), topology, size, sizes, (data, ranks, numerics, explain), overrides)
    if output is not None:
        page.write(Path(output))
    return page


CHARTS: Mapping[str, Literal["", "best", "pareto", "sensitivity"]] = {
    "curves": "",
    "best": "best",
    "pareto": "pareto",
    "sensitivity": "sensitivity",
}


@checked
def plot(rows: Rows, what: str = "curves", *goals: str) -> Drawing:
    """A chart of the rows of a sweep, as `ahbm sweep show -o` draws it. All times are simulated.

    rows: a table, a part of one, or the rows of a store.
    what: "curves", time over size, a panel for each machine; "best", the quickest of everything computed; "pareto", the
    fronts of the first two of `goals`; "sensitivity", what each key does to the time.

    Raises UnsupportedError (AHBM-U145) without the extra `report`, ConfigError: AHBM-C129 for another chart and for
    goals of what has none, AHBM-C187 for goals that are no columns of numbers and for no rows that ran and are right.
    """
    from ahbm.views.page import require_extra

    require_extra()
    from ahbm.views.drawing import Drawing
    from ahbm.views.sweeps import chart

    if what not in CHARTS:
        raise refused("what", f"one of {', '.join(CHARTS)}", what)
    if goals and what != "pareto":
        raise ConfigError("AHBM-C129", f"the chart {what} has no goals, and takes no {', '.join(goals)}")
    return Drawing(chart(rows, CHARTS[what], goals))


def _given(topology: object, overrides: object) -> dict[str, Any]:
    return {n: v for n, v in (("topology", topology), ("overrides", overrides)) if v is not None}


def _each(given: Any) -> list[Any]:
    """One algorithm or several, by name or as functions. Raises ConfigError (AHBM-C129)."""
    if given is None:
        return []
    some = list(given) if isinstance(given, list | tuple) else [given]
    return [one if isinstance(one, str) else as_algorithm(one) for one in some]


def _swept(
    name: str,
    algorithms: Sequence[Any],
    topology: str | Path | None,
    size: int | str | None,
    sizes: Sequence[int | str],
    how: tuple[bool, Sequence[int], bool, bool],
    overrides: Mapping[str, object] | None,
) -> Page:
    from ahbm.table.study import gather
    from ahbm.views import overview

    wanted = [_bytes(one) for one in ([size] if size is not None else list(sizes))]
    data, ranks, numerics, explain = how
    sweep = Sweep(
        name,
        min(wanted, default=1024),
        max(wanted, default=1024),
        listed=tuple(wanted),
        algorithms=tuple(algorithms),
        topology=topology,
        overrides=dict(overrides or {}),
        data=data,
    )
    return overview.page(gather(sweep, tuple(ranks), numerics, explain))


def _bytes(value: int | str) -> int:
    return parse_size(value) if isinstance(value, str) else value


def of_run(ran: Ran) -> Page:
    """The page of one run that was made. Raises as `ahbm.explain`."""
    from ahbm.views import answer, jobs, reasons
    from ahbm.views.page import Page
    from ahbm.views.words import SUBTITLE

    if isinstance(ran, JobReport | TimeReport):
        return jobs.page(ran)
    name, why, charts = ran.algorithm, ran.explain(), dict[str, Any]()
    sections = reasons.sections({name: why}, why.machine, charts)
    headline = answer.first_lines(answer.fastest([ran]), ran, why)
    facts = [("ahbm", ran.version), ("machine", ran.machine_hash)]
    return Page(f"{ran.collective} on {ran.topology}, {ran.ranks} ranks", SUBTITLE, sections, charts, facts, headline)
