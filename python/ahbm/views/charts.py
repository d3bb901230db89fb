"""Charts of sweeps: bandwidth, latency, and which algorithm wins where. Every time in them is simulated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import altair as alt

from ahbm.runs.report import Report

WIDTH, HEIGHT = 440, 280

Row = dict[str, Any]
Chart: TypeAlias = alt.LayerChart | alt.FacetChart


def sizes(field: str = "bytes", title: str = "size of one rank's array (B)") -> alt.X:
    """The axis every sweep has: bytes, in powers of two."""
    label = "datum.value >= 1073741824 ? datum.value / 1073741824 + 'G' : datum.value >= 1048576 ? "
    label += "datum.value / 1048576 + 'M' : datum.value >= 1024 ? datum.value / 1024 + 'K' : datum.value"
    axis = alt.Axis(labelExpr=label, tickCount=8, grid=False)
    return alt.X(f"{field}:Q", title=title, scale=alt.Scale(type="log", base=2), axis=axis)


def tooltip(*fields: str) -> list[alt.Tooltip]:
    """The fields of the tooltip, in order. Plain strings in a list cost altair a table of all its schemas."""
    return [alt.Tooltip(field) for field in fields]


def series(reports: Iterable[Report], peak_gbs: float | None) -> list[Row]:
    """The rows of a sweep: one per algorithm and size, then those of the bound and of the peak."""
    rows: list[Row] = []
    limits: dict[int, Row] = {}
    for report in reports:
        us = report.latency_ns / 1000
        rows.append({"series": report.algorithm, "bytes": report.bytes, "busbw": report.busbw_gbs, "us": us})
        rows[-1]["percent"] = report.percent_of_bound
        if report.bound_ns:
            busbw = report.busbw_gbs * report.latency_ns / report.bound_ns
            limits[report.bytes] = {"series": "bound", "bytes": report.bytes, "busbw": busbw}
            limits[report.bytes]["us"] = report.bound_ns / 1000
    rows += limits.values()
    if peak_gbs is not None:
        rows += [{"series": "peak", "bytes": nbytes, "busbw": peak_gbs} for nbytes in limits]
    return rows


def _lines(rows: Sequence[Row], y: alt.Y, title: str) -> Chart:
    names = list(dict.fromkeys(row["series"] for row in rows))
    limits = [name for name in names if name in ("bound", "peak")]
    shown = [name for name in names if name not in limits]
    dash = {"bound": [6, 4], "peak": [2, 3]}
    legend = alt.Legend(orient="bottom", columns=2, labelLimit=260, symbolType="stroke")
    color = alt.Color(
        "series:N",
        title=None,
        scale=alt.Scale(domain=names, range=[*palette(len(shown)), *["#8a8a8a"] * len(limits)]),
        legend=legend,
    )
    # One legend for both: equal titles and fields are merged.
    strokes = alt.StrokeDash(
        "series:N",
        title=None,
        legend=legend,
        scale=alt.Scale(domain=names, range=[dash.get(name, [1, 0]) for name in names]),
    )
    base = alt.Chart(alt.InlineData(values=list(rows))).encode(x=sizes(), y=y, color=color)
    lines = base.mark_line().encode(strokeDash=strokes)
    points = base.transform_filter(alt.FieldOneOfPredicate("series", shown)).mark_point(filled=True, size=40)
    points = points.encode(tooltip=tooltip("series:N", "bytes:Q", "us:Q", "busbw:Q", "percent:Q"))
    return alt.layer(lines, points).properties(width=WIDTH, height=HEIGHT, title=title)


def palette(count: int) -> list[str]:
    """Colours that can be told apart, on white and on black, also by the colour-blind: after Okabe and Ito, lighter."""
    colors = ["#2f87c8", "#e0692a", "#1aa37f", "#cc79a7", "#d99a1c", "#6fb7e0", "#a39414"]
    return [colors[index % len(colors)] for index in range(count)]


def bandwidth(rows: Sequence[Row], title: str) -> Chart:
    """Bus bandwidth against size, one line per algorithm, with the bound and the peak."""
    # Room above the peak.
    most = 1.05 * max(row["busbw"] for row in rows)
    return _lines(rows, alt.Y("busbw:Q", title="busbw (GB/s)", scale=alt.Scale(domain=[0, most], nice=False)), title)


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
        if at not in best or report.latency_ns < best[at].latency_ns:
            best[at] = report
    rows = [
        {
            "ranks": ranks,
            "size": _short(nbytes),
            "bytes": nbytes,
            "algorithm": report.algorithm,
            "us": report.latency_ns / 1000,
            "percent": "" if report.percent_of_bound is None else f"{report.percent_of_bound:.0f} %",
        }
        for (ranks, nbytes), report in sorted(best.items())
    ]
    order = [_short(nbytes) for nbytes in sorted({nbytes for _, nbytes in best})]
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        x=alt.X("size:O", title="size of one rank's array (B)", sort=order, axis=alt.Axis(labelAngle=0)),
        y=alt.Y("ranks:O", title="ranks", sort="descending"),
    )
    color = alt.Color(
        "algorithm:N",
        title=None,
        scale=alt.Scale(domain=list(names), range=palette(len(names))),
        legend=alt.Legend(orient="bottom", columns=2, labelLimit=260),
    )
    cells = base.mark_rect(opacity=0.75).encode(color=color, tooltip=tooltip("algorithm:N", "us:Q", "percent:N"))
    labels = base.mark_text(fontSize=10, color="white", fontWeight="bold").encode(text="percent:N")
    return alt.layer(cells, labels).properties(width=WIDTH, height=max(60, 34 * len({r for r, _ in best})), title=title)


def _short(nbytes: int) -> str:
    for unit, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if nbytes >= unit and nbytes % unit == 0:
            return f"{nbytes // unit}{letter}"
    return str(nbytes)
