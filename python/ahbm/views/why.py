"""The time of runs, taken apart: the critical path by category, over the PEs, and by line of the algorithm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import altair as alt

from ahbm._core import categories
from ahbm.base.words import in_words
from ahbm.views import colors, spans
from ahbm.views.charts import WIDTH, tooltip, zoomed

if TYPE_CHECKING:
    from ahbm.runs.explanation import Explanation

MOST_PES = 24
"""PEs of the chart of all their times; the timeline shows more."""
MOST_BARS = 2000
"""Bars of a chart of times, about; `spans` says how more are merged."""


def _color(named: Mapping[str, str], used: Sequence[str]) -> alt.Color:
    """The colours that `named` gives, of those that are used."""
    named = {in_words(name): color for name, color in named.items()}
    shown = [name for name in named if name in used]
    legend = alt.Legend(orient="bottom", labelLimit=160)
    return alt.Color(
        "category:N", title=None, scale=alt.Scale(domain=shown, range=[named[n] for n in shown]), legend=legend
    )


def breakdown(explanations: Mapping[str, Explanation], title: str) -> alt.Chart:
    """The critical path of each algorithm by category; a bar is as long as its latency."""
    rows: list[dict[str, Any]] = [
        {"algorithm": name, "category": in_words(category), "us": ps / 1e6}
        for name, explanation in explanations.items()
        for category, ps in explanation.by_category.items()
    ]
    bars = alt.Chart(alt.InlineData(values=rows)).mark_bar()
    chart: alt.Chart = bars.encode(
        x=alt.X("us:Q", title="time on the critical path (us)"),
        y=alt.Y("algorithm:N", title=None, axis=alt.Axis(labelLimit=160), sort=list(explanations)),
        color=_color(colors.CATEGORIES, [row["category"] for row in rows]),
        tooltip=tooltip("algorithm:N", "category:N", "us:Q"),
    )
    return chart.properties(width=WIDTH, height=40 + 34 * len(explanations), title=title)


def path(explanation: Explanation, title: str) -> alt.Chart:
    """The critical path as a Gantt chart: which PE did what when, from launch to end."""
    return _gantt(explanation, spans.path(explanation, MOST_BARS), colors.CATEGORIES, title)


def gantt(explanation: Explanation, title: str) -> alt.Chart:
    """The operations of each PE over time: one bar per operation, by its kind."""
    return _gantt(explanation, spans.operations(explanation, MOST_BARS), colors.KINDS, title)


def _gantt(explanation: Explanation, picture: spans.Picture, named: Mapping[str, str], title: str) -> alt.Chart:
    rows: list[dict[str, Any]] = []
    for span in picture.spans:
        what, origin = explanation.operation(span.agent, span.op)
        many = f" and {span.count - 1} more" if span.count > 1 else ""
        rows.append(
            {
                "place": picture.lanes[span.lane],
                "start": span.start_ps / 1e6,
                "end": span.end_ps / 1e6,
                "category": in_words(span.category or colors.kind(what)),
                "what": in_words(what) + many,
                "origin": origin,
            }
        )
    bars = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_bar()
        .encode(
            x=alt.X("start:Q", title="time from launch (us)"),
            x2="end:Q",
            y=alt.Y("place:N", title=None, sort=list(picture.lanes)),
            color=_color(named, [row["category"] for row in rows]),
            tooltip=tooltip("place:N", "category:N", "what:N", "origin:N", "start:Q", "end:Q"),
        )
    )
    whole = f"{title}: {picture.note}" if picture.note else title
    height = max(80, min(18 * len(picture.lanes), 900))
    chart: alt.Chart = zoomed(bars, y=False).properties(width=WIDTH, height=height, title=whole)
    return chart


def agents(explanation: Explanation, title: str) -> alt.Chart:
    """The time of each PE by category, waits by what is waited for; every bar is as long as the run."""
    places, names = spans.names(explanation), categories()
    chosen = spans.evenly(len(places), MOST_PES)
    times = explanation.time_of_agents
    rows: list[dict[str, Any]] = [
        {"place": places[agent], "category": in_words(name), "us": ps / 1e6}
        for agent in chosen
        for name, ps in zip(names, times[agent].tolist(), strict=True)
        if ps
    ]
    bars = alt.Chart(alt.InlineData(values=rows)).mark_bar()
    chart: alt.Chart = bars.encode(
        x=alt.X("us:Q", title="time from launch (us)"),
        y=alt.Y("place:N", title=None, sort=[places[agent] for agent in chosen]),
        color=_color(colors.CATEGORIES, [row["category"] for row in rows]),
        tooltip=tooltip("place:N", "category:N", "us:Q"),
    )
    some = f": {len(chosen)} of {len(places)} PEs" if len(chosen) < len(places) else ""
    return chart.properties(width=WIDTH, height=max(80, min(18 * len(chosen), 900)), title=title + some)
