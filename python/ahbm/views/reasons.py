"""The sections of one run: why it took this long, its timeline, its links."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING

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
HELP = ("change", "takes", "change of time", "shown by")


def sections(
    explanations: Mapping[str, Explanation],
    machine: Machine | None,
    charts: MutableMapping[str, alt.TopLevelMixin],
    where: str = "",
) -> list[Section]:
    """The time, taken apart: by category for every run, over lines, PEs and links for the quickest. Adds its charts to
    `charts`, those that the timeline shows better for files only. `where` is the size, for titles. None of a run that
    takes no time.
    """
    from ahbm.views import why
    from ahbm.views.timeline import timeline

    name = min(explanations, key=lambda name: explanations[name].latency_ps)
    best = explanations[name]
    if not best.latency_ps:
        return []
    charts["breakdown"] = why.breakdown(explanations, f"critical path{where} (simulated)")
    charts["path"] = why.path(best, f"critical path of {name} (simulated)")
    charts["agents"] = why.agents(best, f"time of PEs under {name} (simulated)")
    charts["gantt"] = why.gantt(best, f"operations of PEs under {name} (simulated)")
    found = [_why(name, best), *_help(best)]
    text = (
        f"What every PE did under {name}, from launch to end, and what it waited for. The first lane is the critical "
        "path by what it was spent on; a red line below an operation marks it as part of that path."
    )
    shown = timeline(best, f"timeline of {name} (simulated)")
    found.append(Section("timeline", "Timeline", text, timeline=shown))
    if best.links:
        found.append(_links(name, best, machine, charts))
    return found


def _why(name: str, best: Explanation) -> Section:
    steps = sorted(best.steps, key=lambda step: -step.ps)
    rows = [
        [
            step.place,
            step.what,
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

    drawn: dict[str, alt.TopLevelMixin | None] = {}
    if machine is not None:
        drawn["sip-links"] = links.sip_links(machine, best)
        drawn["cube-links"] = links.cube_links(machine, best)
    shown: dict[str, alt.TopLevelMixin] = {key: chart for key, chart in drawn.items() if chart is not None}
    charts.update(shown)
    rows = [
        [
            link.name,
            f"{100 * link.busy_ps / best.latency_ps:.1f}",
            f"{link.crossed:,}",
            f"{link.waits:,}",
            f"{link.waited_ps / 1000:,.2f}",
            f"{link.path_ps / 1000:,.2f}",
        ]
        for link in sorted(best.links, key=lambda link: (-link.waited_ps, -link.path_ps, -link.busy_ps))[:MOST_LINKS]
    ]
    text = f"Of {len(best.links):,} used links those that messages waited for longest."
    if shown:
        text += f" How busy all were under {name}: an arrow for each direction, a dotted line where nothing crossed it."
    columns = ("link", "busy (%)", "messages", "of them waited", "waited (ns)", "on the critical path (ns)")
    return Section("links", "Links", text, columns, rows, list(shown))
