"""Pages of runs that are timed and not measured: recorded jobs, traces, and plans without a known result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np

from ahbm.base.collectives import COLLECTIVES
from ahbm.errors import AhbmError, BudgetError
from ahbm.job.replay import JobReport
from ahbm.ranks.calls import CallRecord, Row
from ahbm.runs.advice import BUDGET, best_of
from ahbm.views import answer, colors, job_lanes, reasons, spans
from ahbm.views.charts import WIDTH, tooltip, zoomed
from ahbm.views.page import Page, Section
from ahbm.views.words import time

if TYPE_CHECKING:
    from ahbm.runs.explanation import Explanation
    from ahbm.runs.timed import TimeReport

MOST_RANKS = 24
MOST_CALLS = 1500
UNEVEN = 1.05
"""Times the mean that a rank computes for, from which on a page says so."""
STRETCHES = 20
"""Of the critical path that a page lists."""
Charts = dict[str, alt.TopLevelMixin]


def page(report: JobReport | TimeReport) -> Page:
    """The page of a run that was timed."""
    if isinstance(report, JobReport):
        return _job(report)
    explanation, program = report.explain(), report.program()
    charts: Charts = {}
    sections = reasons.sections({report.plan: explanation}, program and program.machine, charts)
    facts = [
        ("topology", report.machine),
        ("steps", f"{report.steps:,}"),
        ("messages", f"{report.messages:,} of {report.bytes:,} B"),
        *(("note", note) for note in report.notes),
        *(("warning", str(warning)) for warning in report.warnings),
        ("ahbm", report.version),
        ("machine", report.machine_hash),
        ("program", report.program_hash),
        ("timeline", report.timeline_hash),
    ]
    first = f"{report.plan} takes {time(report.latency_ns * 1000)} on {report.ranks} ranks; only its time is known: "
    first += f"{report.reason}."
    headline = [first, answer.because(explanation), answer.advice(explanation)]
    title = f"{report.plan} on {report.topology}, {report.ranks} ranks"
    return Page(title, "All times are simulated.", sections, charts, facts, headline)


def _job(report: JobReport) -> Page:
    machine = report.emulator.machine
    table = report.rows()
    charts: Charts = {"ranks": _ranks(report), "calls": _calls(report.calls)}
    sections = [
        Section("ranks", "Ranks", "Time in which a rank computed, and time that is exposed.", charts=["ranks"]),
        Section(
            "exposed",
            "Exposed communication",
            "Time in which a rank does not compute and what it does next waits for a call, as a mean over all ranks; "
            "waiting is the part in which another rank had not arrived.",
            ("collective", "ranks", "exposed (us)", "waiting (us)", "% of the job"),
            [
                [
                    name,
                    f"{ranks}" if ranks else "-",
                    f"{exposed / 1000:,.2f}",
                    f"{waiting / 1000:,.2f}",
                    f"{100 * exposed / report.latency_ns:.1f}" if report.latency_ns else "-",
                ]
                for name, ranks, exposed, waiting in report.exposures()
            ],
        ),
        Section(
            "path",
            "Critical path",
            "The longest stretches of the chain of nodes and calls that sums to the job's time.",
            ("from (us)", "takes (us)", "% of the job", "rank", "what", "where"),
            _stretches(report),
        ),
        Section("calls", "Collectives", "All calls of one collective on groups of one size.", COLUMNS, _cells(table)),
        Section("when", "Calls over time", "A lane for each group; calls that overlap contend.", charts=["calls"]),
    ]
    explanation: Explanation | None = None
    try:
        explanation = report.explain()
    except AhbmError as error:
        text = f"The job is too large to explain as a whole: {error.code} {error.message}."
        sections.append(Section("why", "Why it took this long", text))
    shown = _timeline(report, explanation)
    if explanation is not None:
        sections += reasons.sections({report.job: explanation}, machine, charts, shown=shown)
    else:
        sections.append(shown)
    facts = [
        ("topology", report.machine),
        ("calls that overlap others", f"{report.together:,} of {len(report.calls):,}"),
        ("computations without a time", f"{report.untimed:,}"),
        *(("warning", str(warning)) for warning in report.warnings),
        *(("note", note) for note in report.notes),
        ("ahbm", report.version),
        ("machine", report.machine_hash),
        ("times", report.times_hash),
    ]
    subtitle = "All times are simulated; no data was moved. Exposed is time in which a rank did not compute."
    title = f"{report.job} on {report.topology}, {len(report.ranks)} ranks"
    return Page(title, subtitle, sections, charts, facts, _answer(report, table, explanation))


def _timeline(report: JobReport, explanation: Explanation | None) -> Section:
    """Every rank over time."""
    text = (
        "Every rank has a lane of what it computes and of the communication that is exposed. A click on its name shows "
        "its calls and messages; an arrow leads from the rank that came last to a call to the others."
    )
    try:
        shown = job_lanes.of_job(report, explanation, f"timeline of {report.job} (simulated)")
    except BudgetError as error:
        return Section("timeline", "Timeline", f"The job is too long to show: {error.code} {error.message}.")
    return Section("timeline", "Timeline", text, pictures=[(report.job, shown)])


def _stretches(report: JobReport) -> list[list[str]]:
    longest = sorted(report.path, key=lambda stretch: (stretch.start_ns - stretch.end_ns, stretch.start_ns))[:STRETCHES]
    return [
        [
            f"{stretch.start_ns / 1000:,.2f}",
            f"{(stretch.end_ns - stretch.start_ns) / 1000:,.2f}",
            f"{100 * (stretch.end_ns - stretch.start_ns) / report.latency_ns:.1f}",
            f"{stretch.rank}",
            stretch.node if stretch.call is None else report.calls[stretch.call].collective,
            stretch.origin,
        ]
        for stretch in sorted(longest, key=lambda stretch: stretch.start_ns)
    ]


def _answer(report: JobReport, table: Sequence[Row], explanation: Explanation | None) -> list[str]:
    last = max(report.ranks, key=lambda rank: rank.total_ns, default=None)
    sentences = [f"{report.job} takes {time(report.latency_ns * 1000)} on {len(report.ranks)} ranks."]
    if last is not None and last.total_ns:
        sentences[0] = (
            f"{report.job} takes {time(report.latency_ns * 1000)} on {len(report.ranks)} ranks; rank {last.rank}, the "
            f"last to end, does not compute for {time(last.exposed_ns * 1000)}, "
            f"{100 * last.exposed_ns / last.total_ns:.3g} % of it."
        )
    if table:
        most = max(table, key=lambda row: row.time_ps)
        bound = f", {most.time_ps / most.bound_ps:.3g} times their bound" if most.bound_ps else ""
        sentences.append(
            f"Most time is that of {most.collective} on {most.ranks} ranks: {most.calls} calls take "
            f"{time(most.time_ps)} together{bound}."
        )
    if explanation is not None:
        sentences[-1] += f" {answer.because(explanation)}"
    longest = max(report.ranks, key=lambda rank: rank.compute_ns, default=None)
    mean = sum(rank.compute_ns for rank in report.ranks) / max(len(report.ranks), 1)
    if longest is not None and longest.compute_ns > UNEVEN * mean:
        sentences.append(
            f"Computing is not balanced: rank {longest.rank} computes for {time(longest.compute_ns * 1000)}, the mean "
            f"of all ranks is {time(mean * 1000)}."
        )
    return [*sentences, _advice(report, explanation)]


def _advice(report: JobReport, explanation: Explanation | None) -> str:
    """What was simulated on the job and saves most."""
    latency_ps = round(1000 * report.latency_ns)
    alternatives = report.alternatives()
    found = alternatives.simulated(latency_ps, BUDGET) if explanation is None else explanation.advice
    best = next(iter(best_of(found)), None)
    if best is None:
        return f"Nothing that was simulated makes it shorter; `ahbm run {report.job} --best` tries every algorithm."
    saves = f"-{100 * best.gain_ps / latency_ps:.1f} %, {time(best.latency_ps or 0)}"
    return f"Try {best.what}: {saves} ({best.way})."


COLUMNS = ("collective", "ranks", "calls", "bytes", "time (us)", "busbw (GB/s)", "% of bound", "algorithm")


def _cells(table: Sequence[Row]) -> list[list[str]]:
    return [
        [
            row.collective,
            f"{row.ranks}",
            f"{row.calls:,}",
            f"{row.bytes:,}",
            f"{row.time_ps / 1e6:,.2f}",
            f"{row.busbw_gbs:.2f}",
            "-" if row.percent_of_bound is None else f"{row.percent_of_bound:.1f}",
            ", ".join(sorted(row.algorithms)),
        ]
        for row in table
    ]


def _ranks(report: JobReport) -> alt.Chart:
    chosen = spans.evenly(len(report.ranks), MOST_RANKS)
    values: list[dict[str, Any]] = []
    for rank in (report.ranks[at] for at in chosen):
        name = f"rank {rank.rank}"
        values.append({"rank": name, "part": "compute", "us": rank.compute_ns / 1000})
        values.append({"rank": name, "part": "exposed", "us": rank.exposed_ns / 1000})
    parts = alt.Scale(domain=["compute", "exposed"], range=[colors.SERIES[2], colors.SERIES[1]])
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(values=values))
        .mark_bar()
        .encode(
            x=alt.X("us:Q", title="time (us)"),
            y=alt.Y("rank:N", title=None, sort=[f"rank {report.ranks[at].rank}" for at in chosen]),
            color=alt.Color("part:N", title=None, scale=parts, legend=alt.Legend(orient="bottom")),
            tooltip=tooltip("rank:N", "part:N", "us:Q"),
        )
    )
    some = f": {len(chosen)} of {len(report.ranks)} ranks" if len(chosen) < len(report.ranks) else ""
    return chart.properties(width=WIDTH, height=max(80, 18 * len(chosen)), title=f"time of ranks (simulated){some}")


def _calls(calls: Sequence[CallRecord]) -> alt.Chart:
    """A bar for each call, on the lane of its group; many groups share lanes."""
    groups = list(dict.fromkeys(f"{call.group or 'all'} ({call.ranks} ranks)" for call in calls))
    a_lane = max(-(-len(groups) // spans.MOST_LANES), 1)
    lanes = [groups.index(f"{call.group or 'all'} ({call.ranks} ranks)") // a_lane for call in calls]
    starts = np.array([round(call.start_ns * 1000) for call in calls], np.int64)
    ends = starts + np.array([round(call.latency_ns * 1000) for call in calls], np.int64)
    bars, shortest = spans.fitted(starts, ends, np.array(lanes, np.int64), MOST_CALLS)
    values = [
        {
            "group": groups[lanes[at] * a_lane],
            "collective": calls[at].collective,
            "bytes": calls[at].bytes,
            "algorithm": calls[at].algorithm,
            "calls": count,
            "start": start / 1e6,
            "end": end / 1e6,
        }
        for start, end, at, count in bars
    ]
    used = [name for name in COLLECTIVES if any(call.collective == name for call in calls)]
    # By the position among all collectives: the same on every page.
    hues = [colors.SERIES[list(COLLECTIVES).index(name) % len(colors.SERIES)] for name in used]
    note = spans.joined(f"{a_lane} groups share a lane" if a_lane > 1 else "", spans.left_out("calls", shortest))
    chart = alt.Chart(alt.InlineData(values=values)).mark_bar()
    chart = chart.encode(
        x=alt.X("start:Q", title="time from launch (us)"),
        x2="end:Q",
        y=alt.Y("group:N", title=None, sort=groups, axis=alt.Axis(labelLimit=120)),
        color=alt.Color(
            "collective:N",
            title=None,
            scale=alt.Scale(domain=used, range=hues),
            legend=alt.Legend(orient="bottom"),
        ),
        tooltip=tooltip("group:N", "collective:N", "algorithm:N", "bytes:Q", "calls:Q", "start:Q", "end:Q"),
    )
    height = max(80, 24 * -(-len(groups) // a_lane))
    title = f"calls (simulated): {note}" if note else "calls (simulated)"
    found: alt.Chart = zoomed(chart, y=False).properties(width=WIDTH, height=height, title=title)
    return found
