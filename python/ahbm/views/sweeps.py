"""Pages and charts of the rows of a sweep: of times, of what is best, of what no other row beats, of what matters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import altair as alt
import numpy as np

from ahbm.errors import ConfigError
from ahbm.sweeps import answers
from ahbm.table.rows import Rows
from ahbm.views import charts, colors
from ahbm.views.page import Page, Section
from ahbm.views.words import time

What: TypeAlias = Literal["", "best", "pareto", "sensitivity"]
"""What is asked of the rows; all of it where it is empty."""
MOST_POINTS = 2000
"""Rows beside the front that a chart shows: every so many-th of them."""
MOST_FRONTS = 12
"""Fronts of a chart, each of what was computed alike."""
MOST_PANELS, PANEL = 12, 290
"""Machines beside each other in a file, and the width of each in pixels."""
MOST_ROWS = 500
"""Of a table of a page."""
UNITS = {
    "latency_ns": "time (us)",
    "busbw_gbs": "busbw (GB/s)",
    "link_gbs": "bandwidth of a link (GB/s)",
    "bytes": "size of one rank's array (B)",
    "memory_bytes": "memory of a PE (B)",
    "links": "links",
    "percent_of_bound": "% of the bound",
    "ranks": "ranks",
}
"""Titles of axes; times are in us there."""


def page(rows: Rows, what: What, goals: Sequence[str], name: str) -> Page:
    """The page of what is asked. Raises ConfigError (AHBM-C187) for goals that are no columns of numbers, and for no
    rows that ran and are right.
    """
    quickest = rows.take(answers.best(rows))
    if not quickest:
        raise ConfigError("AHBM-C187", f"no case of {name} ran and was right: there is nothing to draw")
    headline = [_first(rows, quickest)]
    plots: dict[str, alt.TopLevelMixin] = {}
    sections: list[Section] = []
    if what == "pareto":
        plots["front"] = front(rows, goals)
        found = rows.take(answers.pareto(rows, goals))
        text = (
            "Of what was computed alike, the rows that no other beats in all of these; a line joins those of one size."
        )
        sections.append(Section("front", f"Pareto front: {', '.join(goals)}", text, charts=["front"]))
        shown = [*_keys(rows, found), *(answers.column(goal.removeprefix("-")) for goal in goals)]
        sections.append(_table("table", "On the front", shown, found))
        headline.append(f"{len(found):,} rows are on the front of {', '.join(goals)}.")
    if what in ("", "best"):
        plots |= {"curves": curves(rows)} if what == "" else {"best": fastest(quickest, answers.overrides(rows))}
    if what == "":
        text = "Every case of one machine; choose the machine below the chart."
        sections.append(Section("curves", "Time over size", text, charts=["curves"]))
    if what == "best":
        text = "Of everything computed the quickest row; a colour for each algorithm."
        sections.append(Section("fastest", "The quickest", text, charts=["best"]))
    effects_ = answers.sensitivity(rows) if what in ("", "sensitivity") else []
    if effects_:
        plots["effects"] = effects(effects_)
        text = "Mean time of each value over the mean of all; below 1 is quicker. The key that matters most is first."
        sections.append(Section("effects", "Sensitivity", text, charts=["effects"]))
        first = effects_[0]
        headline.append(f"{first.key} matters most: its slowest value takes {first.factor:.3g} times its quickest.")
        rows_ = [[e.key, f"{e.factor:.3f}", value, f"{share:.3f}"] for e in effects_ for value, share in e.values]
        sections.append(Section("values", "Values", "", ("key", "slowest / quickest", "value", "time / mean"), rows_))
    if what in ("", "best"):
        sections.append(_table("best", "The quickest of everything computed", _keys(rows, quickest), quickest))
    failed = sum(code is not None for code in rows.column("code"))
    headline.append(
        f"{len(rows):,} cases" + (f", {failed:,} of them did not run." if failed else ", all of which ran.")
    )
    if wrong := answers.wrong_by(rows):
        headline.append(f"Wrong results take no part: {', '.join(wrong)}.")
    return Page(name, "All times are simulated.", sections, plots, (), headline)


def _first(rows: Rows, quickest: Sequence[dict[str, Any]]) -> str:
    """Which algorithm is the quickest most often, and at the largest size."""
    wins: dict[str, int] = {}
    for row in quickest:
        wins[str(row["algorithm"])] = wins.get(str(row["algorithm"]), 0) + 1
    name = max(wins, key=lambda name: wins[name])
    last = max(quickest, key=lambda row: row["bytes"] or 0)
    where = f" on {last['machine']}" if last.get("machine") else ""
    message = f"{name} is the quickest in {wins[name]:,} of {len(quickest):,} things computed"
    if last["bytes"]:
        message += f"; at {last['bytes']:,} B {last['algorithm']} takes {time(1000 * last['latency_ns'])}{where}"
    return message + "."


def _keys(rows: Rows, some: Sequence[dict[str, Any]]) -> list[str]:
    """The columns in which the cases differ, and the algorithm; overrides are part of the machine's name."""
    varied = answers.overrides(rows) if "machine" not in rows.columns else ()
    names = [key for key in (*answers.ASKED, "algorithm", "machine", *varied) if key in rows.columns]
    varying = [key for key in names if key == "algorithm" or len(set(rows.column(key))) > 1]
    return [key for key in varying if any(row[key] is not None for row in some)]


def _table(key: str, title: str, names: Sequence[str], found: Sequence[dict[str, Any]]) -> Section:
    """Rows with their times first, where a narrow window shows them."""
    names = [name for name in dict.fromkeys(names) if name != "latency_ns"]
    cells = [[f"{row['latency_ns'] / 1000:,.3f}", *(_cell(row[name]) for name in names)] for row in found[:MOST_ROWS]]
    text = f"The first {MOST_ROWS} of {len(found):,} rows." if len(found) > MOST_ROWS else ""
    return Section(key, title, text, ("time (us)", *(UNITS.get(name, name) for name in names)), cells)


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:,.4g}" if isinstance(value, float) else str(value)


def _axis(name: str, letter: str, values: Sequence[float]) -> Any:
    """The axis of a column: logarithmic where it spans much and nothing is 0."""
    apart = min(values, default=0) > 0 and max(values) >= 4 * min(values)
    scale = alt.Scale(type="log") if apart else alt.Scale(zero=False)
    of = alt.X if letter == "x" else alt.Y
    return of(f"{letter}:Q", title=UNITS.get(name, name), scale=scale, axis=alt.Axis(labelOverlap="greedy"))


def _value(row: dict[str, Any], name: str) -> float:
    return float(row[name]) / (1000 if name == "latency_ns" else 1)


def front(rows: Rows, goals: Sequence[str]) -> charts.Chart:
    """The rows by the first two goals, and for each thing computed the line of those that nothing beats in all of them.

    Raises ConfigError (AHBM-C187) for fewer than two goals, and as `answers.pareto`.
    """
    if len(goals) < 2:
        raise ConfigError("AHBM-C187", "a chart needs two columns to compare by", hint="--pareto time,links")
    found = rows.take(answers.pareto(rows, goals))
    x, y = (answers.column(goal.removeprefix("-")) for goal in goals[:2])
    asked = [name for name in answers.ASKED if name in rows.columns and len(set(rows.column(name))) > 1]
    asked = [name for name in asked if name not in (x, y)]
    keys = [key for key in ("algorithm", "machine", "bytes", *answers.overrides(rows)) if key in rows.columns]

    def point(row: dict[str, Any]) -> dict[str, Any]:
        of = ", ".join(_named(name, row[name]) for name in asked) or "all"
        what = ", ".join(f"{row[key]}" for key in keys)
        return {"x": _value(row, x), "y": _value(row, y), "of": of, "what": what}

    best = [point(row) for row in found]
    names = list(dict.fromkeys(row["of"] for row in best))
    shown, left = names[:MOST_FRONTS], len(names) - MOST_FRONTS
    others = np.flatnonzero(answers.right(rows))
    others = others[:: max(len(others) // MOST_POINTS, 1)]
    cloud = [point(row) for row in rows.take(others) if row[x] is not None and row[y] is not None]
    cloud, best = ([row for row in side if row["of"] in shown] for side in (cloud, best))
    every = [*cloud, *best]
    # A colour repeats after seven: then the line is dashed.
    hues, dashes = colors.series(len(shown)), [[1, 0] if at < 7 else [5, 3] for at in range(len(shown))]
    legend = alt.Legend(orient="bottom", labelLimit=260)
    axes: dict[str, Any] = {
        "x": _axis(x, "x", [row["x"] for row in every]),
        "y": _axis(y, "y", [row["y"] for row in every]),
        "color": alt.Color("of:N", title=None, scale=alt.Scale(domain=shown, range=hues), legend=legend),
        "tooltip": charts.tooltip("what:N", "of:N", "x:Q", "y:Q"),
    }
    dash = alt.StrokeDash("of:N", title=None, scale=alt.Scale(domain=shown, range=dashes), legend=legend)
    pale = alt.Chart(alt.InlineData(values=cloud)).mark_point(size=14, opacity=0.35).encode(**axes)
    line = alt.Chart(alt.InlineData(values=best)).encode(**axes)
    # A front with more goals is no line in two of them.
    joined = [line.mark_line(interpolate="step-after").encode(strokeDash=dash)] if len(goals) == 2 else []
    more = f"; {left} more fronts are in the table" if left > 0 else ""
    title = f"{UNITS.get(y, y)} against {UNITS.get(x, x)}, {len(rows):,} cases (simulated){more}"
    layers: charts.Chart = alt.layer(pale, *joined, line.mark_point(filled=True, size=55))
    return charts.zoomed(layers.properties(width=charts.WIDTH, height=360, title=title))  # type: ignore[no-any-return]


def _named(name: str, value: Any) -> str:
    return (
        f"{value:,} B" if name == "bytes" and value is not None else f"{value}" if name != "ranks" else f"{value} ranks"
    )


def _timed(rows: Rows) -> list[dict[str, Any]]:
    found = rows.take(np.flatnonzero(answers.right(rows)))
    return [row for row in found if row["latency_ns"] and row["bytes"]]


def _machine(row: dict[str, Any], varied: Sequence[str]) -> str:
    changes = [f"{key.rpartition('.')[2]}={row[key]}" for key in varied if row.get(key) is not None]
    parts = [str(row.get("machine") or row.get("topology") or "machine")]
    return ", ".join([*parts, *(change for change in changes if change.partition("=")[0] not in parts[0])])


def chart(rows: Rows, what: What, goals: Sequence[str]) -> charts.Chart | alt.Chart:
    """The first chart of `page`, as a file shows it: curves have a panel for each machine. Raises as `page`."""
    quickest = rows.take(answers.best(rows))
    if not quickest:
        raise ConfigError("AHBM-C187", "no case ran and was right: there is nothing to draw")
    if what == "pareto":
        return front(rows, goals)
    if what == "best":
        return fastest(quickest, answers.overrides(rows))
    return curves(rows, panels=True) if what == "" else effects(answers.sensitivity(rows))


def curves(rows: Rows, *, panels: bool = False) -> charts.Chart:
    """Time over size, a line for each algorithm, on one machine at a time, or with `panels` of the first `MOST_PANELS`
    beside each other."""
    varied = answers.overrides(rows)
    more = [key for key in ("collective", "dtype", "ranks") if key in rows.columns and len(set(rows.column(key))) > 1]
    values = [
        {
            "machine": ", ".join([_machine(row, varied), *(_named(key, row[key]) for key in more)]),
            "algorithm": row["algorithm"],
            "bytes": row["bytes"],
            "us": row["latency_ns"] / 1000,
        }
        for row in _timed(rows)
    ]
    names = list(dict.fromkeys(row["algorithm"] for row in values))
    machines = list(dict.fromkeys(row["machine"] for row in values))
    picked = alt.selection_point(
        name="machine",
        fields=["machine"],
        bind=alt.binding_select(options=machines, name="machine "),
        value=[{"machine": machines[0] if machines else ""}],
    )
    scale = alt.Scale(domain=names, range=colors.series(len(names)))
    base = alt.Chart(alt.InlineData(values=values)).encode(
        x=charts.sizes(row["bytes"] for row in values),
        y=alt.Y("us:Q", title="time (us)", scale=alt.Scale(type="log")),
        color=alt.Color("algorithm:N", title=None, scale=scale, legend=alt.Legend(orient="bottom", labelLimit=260)),
        tooltip=charts.tooltip("algorithm:N", "machine:N", "bytes:Q", "us:Q"),
    )
    layers = alt.layer(base.mark_line(), base.mark_point(filled=True, size=45))
    if panels and len(machines) > 1:
        left = len(machines) - MOST_PANELS
        shown = machines[:MOST_PANELS]
        within = [row for row in values if row["machine"] in shown]
        facet = alt.Facet("machine:N", title=None, sort=shown)
        each = alt.layer(*layers.layer, data=alt.InlineData(values=within))
        title = "time over size (simulated)" + (f"; {left} more machines are not shown" if left > 0 else "")
        joined: charts.Chart = each.properties(width=PANEL, height=200).facet(facet, columns=2).properties(title=title)
        return joined
    of = f", {len(machines):,} machines: choose one below" if len(machines) > 1 else ""
    drawn: charts.Chart = layers.add_params(picked).transform_filter(picked)
    return drawn.properties(width=charts.WIDTH, height=340, title=f"time over size (simulated){of}")


def fastest(quickest: Sequence[dict[str, Any]], varied: Sequence[str]) -> alt.Chart:
    """The quickest row of everything computed, over size."""
    values = [
        {
            "algorithm": row["algorithm"],
            "machine": _machine(row, varied),
            "bytes": row["bytes"],
            "us": row["latency_ns"] / 1000,
            "ranks": row.get("ranks"),
        }
        for row in quickest
        if row["bytes"] and row["latency_ns"]
    ]
    names = list(dict.fromkeys(row["algorithm"] for row in values))
    scale = alt.Scale(domain=names, range=colors.series(len(names)))
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(values=values))
        .mark_point(filled=True, size=90)
        .encode(
            x=charts.sizes(row["bytes"] for row in values),
            y=alt.Y("us:Q", title="time (us)", scale=alt.Scale(type="log")),
            color=alt.Color("algorithm:N", title=None, scale=scale, legend=alt.Legend(orient="bottom", labelLimit=260)),
            tooltip=charts.tooltip("algorithm:N", "machine:N", "bytes:Q", "us:Q", "ranks:N"),
        )
        .properties(width=charts.WIDTH, height=320, title="the quickest of everything computed (simulated)")
    )
    return chart


def effects(found: Sequence[answers.Effect]) -> charts.Chart:
    """The mean time of each value of each key as a factor of the mean of all, each with its value."""
    values: list[dict[str, Any]] = [
        {"key": effect.key, "value": value, "share": share, "is": "quicker" if share < 1 else "slower"}
        for effect in found
        for value, share in effect.values
    ]
    shares = [row["share"] for row in values] or [1.0]
    domain = [min(shares) / 1.15, max(shares) * 1.15]
    # A row for each value, so that no label stands on another.
    height = max(22 * len(values), 80)
    order = [f"{row['key']} = {row['value']}" for row in values]
    for row, label in zip(values, order, strict=True):
        row["label"] = label
    base = alt.Chart(alt.InlineData(values=values)).encode(
        x=alt.X("share:Q", title="time / mean time", scale=alt.Scale(type="log", domain=domain, nice=False)),
        y=alt.Y("label:N", title=None, sort=order, axis=alt.Axis(labelLimit=240)),
        color=alt.Color(
            "is:N",
            title=None,
            scale=alt.Scale(domain=["quicker", "slower"], range=[colors.SERIES[2], colors.SERIES[1]]),
            legend=alt.Legend(orient="bottom"),
        ),
        tooltip=charts.tooltip("key:N", "value:N", "share:Q"),
    )
    one = alt.Chart(alt.InlineData(values=[{"x": 1}])).mark_rule(color=colors.LIMIT, strokeDash=[4, 3]).encode(x="x:Q")
    dots = base.mark_circle(size=80)
    # Without a colour of its own: the page gives texts that of its theme.
    texts = alt.Chart(alt.InlineData(values=values)).mark_text(align="left", dx=8, fontSize=11)
    texts = texts.encode(x=base.encoding.x, y=base.encoding.y, text=alt.Text("share:Q", format=".3~r"))
    layers: charts.Chart = alt.layer(one, dots, texts)
    return layers.properties(width=charts.WIDTH, height=height, title="sensitivity (simulated)")


def draw(rows: Rows, what: What, goals: Sequence[str], output: Path, name: str) -> None:
    """Writes what is asked: its chart as an .svg or .png, or an .html page with its table.

    Raises ConfigError (AHBM-C161) for another ending or a file that cannot be written, and as `page`.
    """
    from ahbm.views.page import write

    kind = output.suffix.lower()
    if kind not in (".svg", ".png", ".html"):
        raise ConfigError("AHBM-C161", f"{output}: no chart of this kind", hint=".svg, .png or .html")
    found = page(rows, what, goals, name)
    if kind == ".html":
        found.write(output)
        return
    drawing = next(iter(found.charts.values()))
    write(output, drawing.svg().encode() if kind == ".svg" else drawing.png())
