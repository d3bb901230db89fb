"""Pages and charts of the rows of a sweep: what is best, what nothing beats, what matters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from ahbm.errors import ConfigError
from ahbm.sweeps import answers
from ahbm.table.rows import Rows
from ahbm.views import charts, colors
from ahbm.views.page import Page, Section

MOST_POINTS = 2000
"""Rows beside the front that a chart shows: every so many-th of them."""


def page(rows: Rows, goals: Sequence[str], name: str) -> Page:
    """The page of a sweep. Raises ConfigError (AHBM-C187) for goals that are no columns of numbers, and for no rows
    that ran and are right."""
    plots: dict[str, alt.TopLevelMixin] = {"effects": effects(answers.sensitivity(rows))}
    if goals:
        plots = {"front": front(rows, goals), **plots}
    quickest = rows.take(answers.best(rows))
    if not quickest:
        raise ConfigError("AHBM-C187", f"no case of {name} ran and was right: there is nothing to draw")
    shown = [key for key in (*answers.ASKED, *answers.CHOSEN, *answers.overrides(rows)) if key in rows.columns]
    shown = [key for key in shown if any(row[key] is not None for row in quickest)]
    table = [[*(str(row[key]) for key in shown), f"{row['latency_ns']:,.2f}"] for row in quickest]
    sections = [
        *([Section("front", "What nothing beats", "", charts=["front"])] if goals else []),
        Section(
            "effects",
            "What matters",
            "Mean time of each value, as a share of all; less is quicker.",
            charts=["effects"],
        ),
        Section("best", "The quickest", "", (*shown, "time (ns)"), table),
    ]
    headline = [f"{len(rows):,} rows, {sum(code is not None for code in rows.column('code')):,} of them did not run."]
    if wrong := answers.wrong_by(rows):
        headline.append(f"Wrong results take no part: {', '.join(wrong)}.")
    return Page(name, "All times are simulated.", sections, plots, (), headline)


def front(rows: Rows, goals: Sequence[str]) -> charts.Chart:
    """The rows by the first two goals, and the line of those that nothing beats in all of them.

    Raises ConfigError (AHBM-C187) for fewer than two goals, and as `answers.pareto`.
    """
    if len(goals) < 2:
        raise ConfigError("AHBM-C187", "a chart needs two columns to compare by", hint="--pareto time,links")
    found = answers.pareto(rows, goals)
    x, y = (answers.column(goal.removeprefix("-")) for goal in goals[:2])
    others = np.flatnonzero(answers.right(rows))
    others = others[:: max(len(others) // MOST_POINTS, 1)]
    kept = rows.take(found), [row for row in rows.take(others) if row[x] is not None and row[y] is not None]
    keys = [key for key in ("algorithm", "machine", "bytes", *answers.overrides(rows)) if key in rows.columns]
    values = [
        [{"x": row[x], "y": row[y], "what": ", ".join(f"{row[key]}" for key in keys)} for row in side] for side in kept
    ]
    axes: dict[str, Any] = {
        "x": alt.X("x:Q", title=x, scale=alt.Scale(zero=False)),
        "y": alt.Y("y:Q", title=y, scale=alt.Scale(zero=False)),
        "tooltip": charts.tooltip("what:N", "x:Q", "y:Q"),
    }
    cloud = alt.Chart(alt.InlineData(values=values[1])).mark_point(color=colors.LIMIT, size=14).encode(**axes)
    line = alt.Chart(alt.InlineData(values=values[0])).encode(**axes)
    drawn = line.mark_line(color=colors.SERIES[0], interpolate="step-after")
    points = line.mark_point(filled=True, size=50, color=colors.SERIES[0])
    title = f"{y} against {x}, {len(rows):,} rows (simulated)"
    layers: charts.Chart = alt.layer(cloud, drawn, points)
    return layers.properties(width=charts.WIDTH, height=charts.HEIGHT, title=title)


def effects(found: Sequence[answers.Effect]) -> alt.Chart:
    """The mean time of each value of each key, as a share of all."""
    values = [{"key": effect.key, "value": value, "share": share} for effect in found for value, share in effect.values]
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(values=values))
        .mark_circle(size=60, color=colors.SERIES[0])
        .encode(
            x=alt.X("share:Q", title="time, as a share of the mean", scale=alt.Scale(type="log")),
            y=alt.Y("key:N", title=None, sort=[effect.key for effect in found]),
            tooltip=charts.tooltip("key:N", "value:N", "share:Q"),
        )
        .properties(width=charts.WIDTH, height=charts.HEIGHT, title="What matters (simulated)")
    )
    return chart


def draw(rows: Rows, goals: Sequence[str], output: Path, name: str) -> None:
    """Writes an .svg or .png of the front (of the effects without `goals`), or an .html page with both.

    Raises ConfigError (AHBM-C161) for another ending or a file that cannot be written, and as `page`.
    """
    from ahbm.views.page import write

    kind = output.suffix.lower()
    if kind not in (".svg", ".png", ".html"):
        raise ConfigError("AHBM-C161", f"{output}: no chart of this kind", hint=".svg, .png or .html")
    found = page(rows, goals, name)
    if kind == ".html":
        found.write(output)
        return
    drawing = next(iter(found.charts.values()))
    write(output, drawing.svg().encode() if kind == ".svg" else drawing.png())
