"""Charts of sweeps: bandwidth, latency, and which algorithm wins where. Every time in them is simulated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

import altair as alt

from ahbm.runs.report import Report
from ahbm.views import colors

WIDTH, HEIGHT = "container", 280
FILE_WIDTH = 640
"""Width of a chart in a file, where no page gives it one; in pixels."""

PEAK = "peak"
"""The series that has no times."""
MOST_TICKS = 9
"""Of an axis of sizes."""

Row = dict[str, Any]
Chart: TypeAlias = alt.LayerChart | alt.FacetChart


def sizes(found: Iterable[int]) -> alt.X:
    """The axis every sweep has: bytes, with ticks at powers of two, at the sizes themselves between two of them."""
    label = "datum.value"
    for unit, letter in ((1 << 10, "K"), (1 << 20, "M"), (1 << 30, "G")):
        label = f"datum.value >= {unit} ? format(datum.value / {unit}, '.4~g') + '{letter}' : {label}"
    axis = alt.Axis(labelExpr=label, values=_ticks(set(found)), grid=False, labelOverlap="greedy", labelSeparation=6)
    title = "size of one rank's array (B)"
    return alt.X("bytes:Q", title=title, scale=alt.Scale(type="log", base=2), axis=axis)


def _ticks(found: set[int]) -> list[int]:
    least, most = (min(found, default=0) - 1).bit_length(), max(found, default=0).bit_length()
    powers = [1 << exponent for exponent in range(least, most)]
    return powers[:: -(-len(powers) // MOST_TICKS)] if len(powers) > 1 else sorted(found)[:MOST_TICKS]


def tooltip(*fields: str) -> list[alt.Tooltip]:
    """The fields of the tooltip, in order. Plain strings in a list cost altair a table of all its schemas."""
    return [alt.Tooltip(field, format=".4g") if field.endswith(":Q") else alt.Tooltip(field) for field in fields]


def zoomed(chart: Any, y: bool = True) -> Any:
    """The chart with axes that the wheel zooms and a drag moves; `y` with the upright one."""
    # With a name: names that altair makes are others in every page.
    axes: list[Literal["x", "y"]] = ["x"] if not y else ["x", "y"]
    return chart.add_params(alt.selection_interval(name="zoom", bind="scales", encodings=axes))


def series(reports: Iterable[Report], peak_gbs: float | None, *, bounds: bool = True) -> list[Row]:
    """The rows of a sweep: one per algorithm and size, then those of the bound (with `bounds`) and of the peak."""
    rows: list[Row] = []
    limits: dict[int, Row] = {}
    for report in reports:
        us = report.latency_ns / 1000
        rows.append({"series": report.algorithm, "bytes": report.bytes, "busbw": report.busbw_gbs, "us": us})
        rows[-1]["percent"] = report.percent_of_bound
        if bounds and report.bound_ns:
            busbw = report.busbw_gbs * report.latency_ns / report.bound_ns
            limits[report.bytes] = {"series": "bound", "bytes": report.bytes, "busbw": busbw}
            limits[report.bytes]["us"] = report.bound_ns / 1000
    rows += limits.values()
    if peak_gbs is not None:
        rows += [{"series": PEAK, "bytes": nbytes, "busbw": peak_gbs} for nbytes in limits]
    return rows


def _lines(rows: Sequence[Row], y: alt.Y, title: str) -> Chart:
    names = list(dict.fromkeys(row["series"] for row in rows))
    limits = [name for name in names if name in ("bound", PEAK)]
    shown = [name for name in names if name not in limits]
    dash = {"bound": [6, 4], PEAK: [2, 3]}
    legend = alt.Legend(orient="bottom", labelLimit=260, symbolType="stroke")
    color = alt.Color(
        "series:N",
        title=None,
        scale=alt.Scale(domain=names, range=[*colors.series(len(shown)), *[colors.LIMIT] * len(limits)]),
        legend=legend,
    )
    # One legend for both: equal titles and fields are merged.
    strokes = alt.StrokeDash(
        "series:N",
        title=None,
        legend=legend,
        scale=alt.Scale(domain=names, range=[dash.get(name, [1, 0]) for name in names]),
    )
    picked = alt.selection_point(name="picked", fields=["series"], bind="legend")
    opacity = alt.condition(picked, alt.value(1), alt.value(0.12))
    base = alt.Chart(alt.InlineData(values=list(rows))).encode(
        x=sizes(row["bytes"] for row in rows), y=y, color=color, opacity=opacity
    )
    lines = base.mark_line(clip=True).encode(strokeDash=strokes).add_params(picked)
    # A line of one size is none.
    dotted = shown if len({row["bytes"] for row in rows}) > 1 else names
    points = base.transform_filter(alt.FieldOneOfPredicate("series", dotted)).mark_point(
        filled=True, size=40, clip=True
    )
    points = points.encode(tooltip=tooltip("series:N", "bytes:Q", "us:Q", "busbw:Q", "percent:Q"))
    chart: Chart = zoomed(alt.layer(lines, points)).properties(width=WIDTH, height=HEIGHT, title=title)
    return chart


def speed(rows: Sequence[Row], title: str) -> dict[str, alt.TopLevelMixin]:
    """`bandwidth` and `latency` by these names; none of rows that take no time, which logarithmic axes do not have."""
    timed = [row for row in rows if row.get("us") or row["series"] == PEAK]
    if all(row["series"] == PEAK for row in timed):
        return {}
    return {"bandwidth": bandwidth(timed, title), "latency": latency(timed, title)}


def bandwidth(rows: Sequence[Row], title: str) -> Chart:
    """Bus bandwidth against size, one line per algorithm, with the bound and the peak; a page can make the axis
    logarithmic, on which small sizes are told apart.
    """
    # Room above the peak.
    most = 1.05 * max(row["busbw"] for row in rows)
    least = min((row["busbw"] for row in rows if row["busbw"] > 0), default=most)
    scales: dict[str, dict[str, Any]] = {
        "linear": {"domain": [0, most], "nice": False},
        "log": {"type": "log", "domain": [0.8 * least, 1.3 * most], "nice": False},
    }
    chart = _lines(rows, alt.Y("busbw:Q", title="busbw (GB/s)", scale=alt.Scale(**scales["linear"])), title)
    return chart.properties(usermeta={"y": scales})


def latency(rows: Sequence[Row], title: str) -> Chart:
    """Time against size on logarithmic axes, with the bound."""
    timed = [row for row in rows if "us" in row]
    return _lines(timed, alt.Y("us:Q", title="time (us)", scale=alt.Scale(type="log")), title)


def selection(reports: Iterable[Report], title: str) -> Chart:
    """The fastest algorithm for every size and number of ranks, with its percentage of the bound; colours as in the
    other charts of the same algorithms.
    """
    best: dict[tuple[int, int], Report] = {}
    names: dict[str, None] = {}
    for report in reports:
        names[report.algorithm] = None
        at = (report.ranks, report.bytes)
        if not report.right:
            continue
        if at not in best or report.latency_ns < best[at].latency_ns:
            best[at] = report
    hues = dict(zip(names, colors.series(len(names)), strict=True))
    rows = [
        {
            "ranks": ranks,
            "size": _short(nbytes),
            "bytes": nbytes,
            "algorithm": report.algorithm,
            "ink": colors.ink_on(hues[report.algorithm]),
            "us": report.latency_ns / 1000,
            "percent": "" if report.percent_of_bound is None else f"{report.percent_of_bound:.0f} %",
        }
        for (ranks, nbytes), report in sorted(best.items())
    ]
    order = [_short(nbytes) for nbytes in sorted({nbytes for _, nbytes in best})]
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        x=alt.X("size:O", title="size of one rank's array (B)", sort=order, axis=alt.Axis(labelAngle=0)),
        y=alt.Y("ranks:O", title="ranks", sort="descending"),
        tooltip=tooltip("algorithm:N", "us:Q", "percent:N"),
    )
    color = alt.Color(
        "algorithm:N",
        title=None,
        scale=alt.Scale(domain=list(names), range=list(hues.values())),
        legend=alt.Legend(orient="bottom", labelLimit=260),
    )
    cells = base.mark_rect().encode(color=color)
    ink = alt.Color("ink:N", scale=None)
    labels = base.mark_text(fontSize=10, fontWeight="bold").encode(text="percent:N", color=ink)
    height = max(60, 34 * len({ranks for ranks, _ in best}))
    return alt.layer(cells, labels).properties(width=WIDTH, height=height, title=f"{title}; in cells % of the bound")


def _short(nbytes: int) -> str:
    for unit, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if nbytes >= unit and nbytes % unit == 0:
            return f"{nbytes // unit}{letter}"
    return str(nbytes)
