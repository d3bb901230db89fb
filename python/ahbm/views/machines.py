"""Pages of one sweep on several machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ahbm.config.topology import read_for
from ahbm.runs import bands, compare
from ahbm.runs.report import Report
from ahbm.table.cases import Refused, Sweep
from ahbm.table.columns import PAGE
from ahbm.views import answer, charts, comparisons, overview
from ahbm.views.page import Page, Section
from ahbm.views.words import SUBTITLE


def page(sides: Sequence[tuple[Sweep, Sequence[Report | Refused]]]) -> Page:
    """The page of the sweeps, one for each machine, and of their cells. Raises a cell's error where none ran."""
    named: list[tuple[str, Report | Refused]] = [
        (name, cell)
        for name, (_, cells) in zip(_names([sweep for sweep, _ in sides]), sides, strict=True)
        for cell in cells
    ]
    ran = [(name, cell) for name, cell in named if not isinstance(cell, Refused)]
    refused = [replace(cell, machine=name) for name, cell in named if isinstance(cell, Refused)]
    if not ran:
        raise refused[0].error
    reports = [report for _, report in ran]
    what, algorithms = sides[0][0].collective, list(dict.fromkeys(report.algorithm for report in reports))
    # A line for each algorithm on each machine. Their bounds differ: the table has them.
    lines = [
        replace(report, algorithm=name if len(algorithms) == 1 else f"{report.algorithm} on {name}")
        for name, report in ran
    ]
    title = f"{what} on {len(sides)} machines, {reports[0].dtype}"
    rows = charts.series(lines, None, bounds=False)
    shown = charts.speed(rows, f"{title} (simulated)")
    table = [[name, *overview.row(report)] for name, report in ran]
    text = "Each machine has a bound of its own."
    sections = [
        Section("speed", "Speed", charts=list(shown)),
        Section("table", "Measurements", text, ("machine", *PAGE), table),
    ]
    if refused:
        sections.append(overview.left_out(refused))
    if (len(sides), len(algorithms)) == (2, 1):
        pair = [[cell for cell in cells if isinstance(cell, Report)] for _, cells in sides]
        sections.append(comparisons.section(compare.versus(*pair), shown))
    headline = [answer.fastest(lines)]
    if refused:
        headline.append(f"{len(refused)} of {len(named)} measurements did not run.")
    facts = [("note", note) for note in bands.over(report.error for report in reports)]
    return Page(title, SUBTITLE, sections, shown, facts, headline)


def _names(sweeps: Sequence[Sweep]) -> list[str]:
    """The machine of each sweep: its topology, and the settings in which the sweeps differ."""
    keys = list(dict.fromkeys(key for sweep in sweeps for key in sweep.overrides))
    varied = [key for key in keys if len({str(sweep.overrides.get(key)) for sweep in sweeps}) > 1]
    return [
        ", ".join(
            [
                read_for(sweep.topology),
                *(f"{key}={sweep.overrides[key]}" for key in varied if key in sweep.overrides),
            ]
        )
        for sweep in sweeps
    ]
