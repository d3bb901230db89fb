"""The sections of one run: why it took this long, its timeline, its links."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING

from ahbm.base.words import in_words
from ahbm.errors import BudgetError
from ahbm.runs.advice import best_of
from ahbm.runs.answer import gain
from ahbm.views.page import Section
from ahbm.views.words import time

if TYPE_CHECKING:
    import altair as alt

    from ahbm._core import Machine
    from ahbm.runs.explanation import Explanation

MOST_LINES = 30
"""Rows of the table of lines; the section says how many more there are."""
MOST_LINKS = 12
MOST_RUNS = 6
"""Runs that the timeline of a page can show; one after the other."""
LEAST_BARS = 4_000
"""Of each of them."""
HELP = ("change", "takes", "change of time", "shown by")


def sections(
    explanations: Mapping[str, Explanation],
    machine: Machine | None,
    charts: MutableMapping[str, alt.TopLevelMixin],
    where: str = "",
    shown: Section | None = None,
) -> list[Section]:
    """The time, taken apart: by category for every run, over lines, PEs and links for the quickest. Adds its charts to
    `charts`, those that the timeline shows better for files only. `where` is the size, for titles; `shown` the
    timeline, where it is not that of PEs. None of a run that takes no time.
    """
    from ahbm.views import why

    name = min(explanations, key=lambda name: explanations[name].latency_ps)
    best = explanations[name]
    if not best.latency_ps:
        return []
    charts["breakdown"] = why.breakdown(explanations, f"critical path{where} (simulated)")
    charts["path"] = why.path(best, f"critical path of {name} (simulated)")
    charts["agents"] = why.agents(best, f"time of PEs under {name} (simulated)")
    charts["gantt"] = why.gantt(best, f"operations of PEs under {name} (simulated)")
    found = [_why(name, best), *_help(best)]
    found.append(shown or timeline(explanations, machine))
    if best.links:
        found.append(_links(name, best, machine, charts))
    return found


def timeline(explanations: Mapping[str, Explanation], machine: Machine | None) -> Section:
    """The runs as lanes of their ranks over time, the quickest first."""
    from ahbm.views import workbench

    names = sorted(explanations, key=lambda name: explanations[name].latency_ps)
    text = (
        "Every rank has a lane of what its kernel does, and one of what it sends. The first lane is the critical path "
        "by what it was spent on; a red line marks it on the lanes that it runs on. The links below are shown for the "
        "time under the pointer."
    )
    if len(names) > MOST_RUNS:
        text += f" The quickest {MOST_RUNS} of {len(names)} runs."
        names = names[:MOST_RUNS]
    most = max(workbench.MOST_BARS // len(names), LEAST_BARS)
    pictures = []
    for name in names:
        try:
            shown = workbench.of_run(explanations[name], machine, f"timeline of {name} (simulated)", most)
        except BudgetError as error:
            text += f" That of {name} is left out: {error.message} ({error.code})."
        else:
            pictures.append((name, shown))
    return Section("timeline", "Timeline", text, pictures=pictures)


def _why(name: str, best: Explanation) -> Section:
    steps = sorted(best.steps, key=lambda step: -step.ps)
    rows = [
        [
            step.place,
            in_words(step.what),
            f"{step.operations:,}",
            f"{step.ps / 1000:,.2f}",
            f"{100 * step.ps / best.latency_ps:.1f}",
        ]
        for step in steps[:MOST_LINES]
    ]
    text = (
        f"The critical path adds up to the latency, to the picosecond. The lines of {name} on it, the longest first, "
        "and the time of all PEs, waits included."
    )
    if len(steps) > MOST_LINES:
        rest = sum(step.ps for step in steps[MOST_LINES:])
        text += f" {len(steps) - MOST_LINES:,} shorter lines have {100 * rest / best.latency_ps:.2g} % of the time."
    columns = ("line", "operation", "operations", "time (ns)", "%")
    return Section("why", "Why it took this long", text, columns, rows, ["breakdown", "agents"])


def _help(best: Explanation) -> list[Section]:
    """What was simulated and helps, and the command lines that show it."""
    rows = [
        [entry.what, time(entry.latency_ps or 0), gain(entry, best), entry.command or "-"]
        for entry in best_of(best.advice)
    ]
    text = "Each was simulated again; what saves most comes first."
    return [Section("help", "What would help", text, HELP, rows)] if rows else []


def _links(
    name: str, best: Explanation, machine: Machine | None, charts: MutableMapping[str, alt.TopLevelMixin]
) -> Section:
    from ahbm.views import links

    # Drawings for files: a page has the map of the viewer.
    if machine is not None:
        drawn = {"sip-links": links.sip_links(machine, best), "cube-links": links.cube_links(machine, best)}
        charts.update({key: chart for key, chart in drawn.items() if chart is not None})
    rows = [
        [
            link.name,
            f"{100 * link.busy_ps / best.latency_ps:.1f}",
            f"{link.crossed:,}",
            f"{link.waits:,}",
            f"{link.waited_ps / 1000:,.2f}",
            f"{link.path_ps / 1000:,.2f}",
        ]
        for link in sorted(best.links, key=lambda link: (-link.path_ps, -link.waited_ps, -link.busy_ps))[:MOST_LINKS]
    ]
    text = (
        f"Of {len(best.links):,} links that {name} uses, those that the critical path spends most time on, then those "
        "that messages waited for longest. The timeline shows all of them."
    )
    columns = ("link", "busy (%)", "messages", "of them waited", "waited (ns)", "on the critical path (ns)")
    return Section("links", "Links", text, columns, rows)
