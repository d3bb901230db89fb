"""The time of runs, taken apart: the critical path by category, over the PEs, and by line of the algorithm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import altair as alt

from ahbm._core import categories
from ahbm.views.charts import WIDTH, Chart, palette, tooltip

if TYPE_CHECKING:
    from ahbm.runs.explanation import Explanation

MOST_STRETCHES = 2000
"""Stretches of a path that are drawn; a longer path is shown by its beginning."""

COLORS = {
    "dispatch": "#8a8a8a",
    "DMA": "#d99a1c",
    "link serialisation": "#2f87c8",
    "link contention": "#e0692a",
    "wire latency": "#6fb7e0",
    "slot I/O": "#1aa37f",
    "credit": "#a39414",
    "math": "#cc79a7",
    "delay": "#b7b7b7",
    "waiting for peer": "#7d6bb3",
    "waiting for counter": "#9c8ec9",
    "waiting for barrier": "#bdb3dd",
}


def _color(names: Sequence[str]) -> alt.Color:
    """Categories in their fixed colours; anything else, such as kinds of operations, in order of appearance."""
    others = [name for name in dict.fromkeys(names) if name not in COLORS]
    shown = [name for name in COLORS if name in names] + others
    free = palette(len(others))
    colors = [COLORS[name] if name in COLORS else free[others.index(name)] for name in shown]
    legend = alt.Legend(orient="bottom", columns=4, labelLimit=160)
    return alt.Color("category:N", title=None, scale=alt.Scale(domain=shown, range=colors), legend=legend)


def breakdown(explanations: Mapping[str, Explanation], title: str) -> alt.Chart:
    """The critical path of each algorithm by category; a bar is as long as its latency."""
    rows: list[dict[str, Any]] = [
        {"algorithm": name, "category": category, "us": ps / 1e6}
        for name, explanation in explanations.items()
        for category, ps in explanation.by_category.items()
    ]
    bars = alt.Chart(alt.InlineData(values=rows)).mark_bar()
    chart: alt.Chart = bars.encode(
        x=alt.X("us:Q", title="time on the critical path (us)"),
        y=alt.Y("algorithm:N", title=None, axis=alt.Axis(labelLimit=170), sort=list(explanations)),
        color=_color([row["category"] for row in rows]),
        tooltip=tooltip("algorithm:N", "category:N", "us:Q"),
    )
    return chart.properties(width=WIDTH - 110, height=40 + 34 * len(explanations), title=title)


def path(explanation: Explanation, title: str) -> Chart:
    """The critical path as a Gantt chart: which PE did what when, from launch to end."""
    rows: list[dict[str, Any]] = []
    for stretch in explanation.stretches():
        if len(rows) == MOST_STRETCHES:
            break
        rows.append(
            {
                "place": stretch.place,
                "start": stretch.start_ps / 1e6,
                "end": stretch.end_ps / 1e6,
                "category": stretch.category,
                "what": stretch.what,
                "origin": stretch.origin,
                "link": stretch.link,
            }
        )
    return _gantt(rows, list(dict.fromkeys(row["place"] for row in rows)), title)


def _gantt(rows: list[dict[str, Any]], places: list[str], title: str) -> Chart:
    bars = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_bar()
        .encode(
            x=alt.X("start:Q", title="time (us)"),
            x2="end:Q",
            y=alt.Y("place:N", title=None, sort=places),
            color=_color([row["category"] for row in rows]),
            tooltip=tooltip("place:N", "category:N", "what:N", "origin:N", "link:N", "start:Q", "end:Q"),
        )
    )
    return alt.layer(bars).properties(width=WIDTH - 70, height=max(80, min(18 * len(places), 700)), title=title)


MOST_AGENTS = 32
"""PEs that get a row of their own; of more, evenly spread ones."""
MOST_OPERATIONS = 4000
"""Operations that are drawn; of more, each PE's first."""


def _some(count: int) -> list[int]:
    return [index * count // MOST_AGENTS for index in range(MOST_AGENTS)] if count > MOST_AGENTS else list(range(count))


def gantt(explanation: Explanation, title: str) -> Chart:
    """The operations of each PE over time: one bar per operation, by its kind."""
    places = explanation.places
    chosen = _some(len(places))
    rows: list[dict[str, Any]] = []
    for agent in chosen:
        for index, (start, end, what, origin) in enumerate(explanation.operations(agent)):
            if index * len(chosen) >= MOST_OPERATIONS:
                break
            kind = what.partition("(")[0].partition(" ")[0]
            row = {"place": places[agent], "start": start / 1e6, "end": end / 1e6, "category": kind}
            rows.append(row | {"what": what, "origin": origin, "link": ""})
    return _gantt(rows, [places[agent] for agent in chosen], title)


def agents(explanation: Explanation, title: str) -> alt.Chart:
    """The time of each PE by category, waits included; a bar is as long as the PE was at work."""
    places, names = explanation.places, categories()
    chosen = _some(len(places))
    times = explanation.time_of_agents
    rows: list[dict[str, Any]] = [
        {"place": places[agent], "category": name, "us": ps / 1e6}
        for agent in chosen
        for name, ps in zip(names, times[agent].tolist(), strict=True)
        if ps
    ]
    bars = alt.Chart(alt.InlineData(values=rows)).mark_bar()
    chart: alt.Chart = bars.encode(
        x=alt.X("us:Q", title="time from launch (us)"),
        y=alt.Y("place:N", title=None, sort=[places[agent] for agent in chosen]),
        color=_color([row["category"] for row in rows]),
        tooltip=tooltip("place:N", "category:N", "us:Q"),
    )
    return chart.properties(width=WIDTH - 70, height=max(80, 18 * len(chosen)), title=title)
