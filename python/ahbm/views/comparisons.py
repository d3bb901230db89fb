"""Pages of two runs beside each other, and the section of two algorithms of one sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import altair as alt

from ahbm.runs import compare as c
from ahbm.views.charts import WIDTH, tooltip
from ahbm.views.page import Page, Section
from ahbm.views.words import time

if TYPE_CHECKING:
    from pathlib import Path

MOST_ROWS = 40
"""Bars of a chart: those that changed most, and its title says so."""
BYTES = 4
"""Position of the size in the key of a measurement."""
VERDICTS = {
    "faster": "#1aa37f",
    "same": "#8a8a8a",
    "changed": "#d99a1c",
    "slower": "#e0692a",
    "wrong": "#d1322a",
    "new": "#2f87c8",
    "gone": "#7d6bb3",
}
COLUMNS = ("verdict", "before (us)", "after (us)", "change (%)", "what", "differs")


def of_files(before: str | Path, after: str | Path) -> Page:
    """The page of what `ahbm bench`, `run` or `explain --json` printed then and now. Raises ConfigError (AHBM-C160)."""
    old, new = c.explanation(before), c.explanation(after)
    title = f"{before} and {after}"
    if old is not None and new is not None:
        return _steps(title, old, new)
    rows = c.compare(c.load(before), c.load(after))
    return page(title, rows)


def page(title: str, rows: Sequence[c.Row]) -> Page:
    """The page of measurements that stand beside each other."""
    charts: dict[str, alt.TopLevelMixin] = {}
    facts = [("note", note) for note in c.notes(rows)]
    return Page(
        title, "All times are simulated, and have no noise.", [section(rows, charts)], charts, facts, answer(rows)
    )


def section(rows: Sequence[c.Row], charts: dict[str, alt.TopLevelMixin]) -> Section:
    """The rows as a table, and as a chart where something stands on both sides, which is added to `charts`."""
    drawn = ["comparison"] if any(row.factor is not None for row in rows) else []
    if drawn:
        charts["comparison"] = _changes(rows)
    text = "The first of the two is before, the second after. Differences are exact, to the picosecond."
    cells = [
        [
            row.verdict,
            "-" if row.before is None else f"{row.before.latency_ns / 1000:,.3f}",
            "-" if row.after is None else f"{row.after.latency_ns / 1000:,.3f}",
            "" if row.factor is None else f"{100 * (row.factor - 1):+.2f}",
            row.name,
            row.cause + (f"{', ' if row.cause else ''}wrong: {row.wrong}" if row.wrong else ""),
        ]
        for row in rows
    ]
    return Section("comparison", "Comparison", text, COLUMNS, cells, drawn)


def answer(rows: Sequence[c.Row]) -> list[str]:
    """How many got faster or slower, the greatest change, what differs, what to try."""
    counts = {verdict: sum(row.verdict == verdict for row in rows) for verdict in VERDICTS}
    sentences = [
        f"Of {len(rows)} measurements " + ", ".join(f"{n} are {name}" for name, n in counts.items() if n) + "."
    ]
    changed = [row for row in rows if row.factor is not None and row.factor != 1]
    if changed:
        most = max(changed, key=lambda row: max(row.factor or 0, 1 / (row.factor or 1)))
        sentences.append(f"The greatest change is {100 * ((most.factor or 1) - 1):+.3g} %: {most.name}.")
    causes = sorted({row.cause for row in rows if row.cause})
    sentences.append(
        f"What differs: {'; '.join(causes)}." if causes else "Machines, programs and versions are the same."
    )
    worse = [row for row in rows if row.verdict in ("slower", "wrong")]
    if worse:
        sentences.append(
            "Try `ahbm explain --json` of both and compare these: lines of the algorithm, and what changed there."
        )
    return sentences


def _changes(rows: Sequence[c.Row]) -> alt.Chart:
    known = [row for row in rows if row.factor is not None]
    shown = sorted(known, key=lambda row: -abs((row.factor or 1) - 1))[:MOST_ROWS]
    # What they have in common stands above the chart.
    differ = [at for at in range(len(shown[0].key)) if len({row.key[at] for row in shown}) > 1] if shown else []
    labels = [" ".join(f"{row.key[at]:,}" if at == BYTES else str(row.key[at]) for at in differ) for row in shown]
    values: list[dict[str, Any]] = [
        {
            "at": label,
            "what": row.name,
            "change": 100 * ((row.factor or 1) - 1),
            "verdict": row.verdict,
            "before": row.before.latency_ns / 1000 if row.before else None,
            "after": row.after.latency_ns / 1000 if row.after else None,
        }
        for row, label in zip(shown, labels, strict=True)
    ]
    used = [verdict for verdict in VERDICTS if any(row.verdict == verdict for row in shown)]
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(values=values))
        .mark_bar()
        .encode(
            x=alt.X("change:Q", title="change of time (%)"),
            y=alt.Y("at:N", title=None, sort=labels, axis=alt.Axis(labelLimit=160)),
            color=alt.Color(
                "verdict:N",
                title=None,
                scale=alt.Scale(domain=used, range=[VERDICTS[verdict] for verdict in used]),
                legend=alt.Legend(orient="bottom"),
            ),
            tooltip=tooltip("what:N", "verdict:N", "before:Q", "after:Q", "change:Q"),
        )
    )
    some = f": the {len(shown)} greatest of {len(known)}" if len(shown) < len(known) else ""
    return chart.properties(width=WIDTH, height=max(60, 22 * len(shown)), title=f"change of simulated time{some}")


def _steps(title: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Page:
    steps = c.compare_steps(old, new)
    cells = [
        [
            step.origin or "-",
            step.what,
            f"{step.before_ps / 1000:,.2f}",
            f"{step.after_ps / 1000:,.2f}",
            f"{(step.after_ps - step.before_ps) / 1000:+,.2f}",
            ", ".join(f"{name} {ps / 1000:+,.2f}" for name, ps in step.by_category.items()) or "same",
        ]
        for step in steps
    ]
    columns = ("line", "operation", "before (ns)", "after (ns)", "change (ns)", "of it by category (ns)")
    text = "The lines of both critical paths, the greatest change first; the changes add up to that of the whole."
    before, after = (sum(data["critical_path_ps"].values()) for data in (old, new))
    change = f", {100 * (after / before - 1):+.3g} %" if before else ""
    sentences = [f"The critical path changes from {time(before)} to {time(after)}{change}."]
    if steps and steps[0].before_ps != steps[0].after_ps:
        most = steps[0]
        ps = most.after_ps - most.before_ps
        sentences.append(
            f"Most of the change is at {most.origin or most.what}: {time(abs(ps))} {'more' if ps > 0 else 'less'}, "
            f"first of all {next(iter(most.by_category))}."
        )
    longest = max(steps, key=lambda step: step.after_ps, default=None)
    if longest is not None and after:
        sentences.append(
            f"Try to shorten {longest.origin or longest.what} next: it has "
            f"{100 * longest.after_ps / after:.3g} % of the time that is left."
        )
    section_ = Section("comparison", "Comparison", text, columns, cells)
    return Page(title, "All times are simulated, and have no noise.", [section_], {}, (), sentences)
