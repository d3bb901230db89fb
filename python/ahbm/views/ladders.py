"""Pages of ladders: which algorithm for which size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ahbm.table.study import peak
from ahbm.views import answer, charts, reasons
from ahbm.views.page import Page, Section
from ahbm.views.words import SUBTITLE, size

if TYPE_CHECKING:
    from ahbm.table.ladder import Ladder


def page(ladder: Ladder) -> Page:
    """The page of a ladder."""
    sweep = ladder.sweep
    reports = [rung.reports[name] for name in ladder.candidates for rung in ladder.rungs if name in rung.reports]
    what = f"{sweep.collective} on {ladder.emulator.machine.topology}, {ladder.emulator.machine.sips} SIPs"
    rows = charts.series(reports, peak(ladder.emulator, sweep, reports))
    shown = charts.speed(rows, f"{what} (simulated)")
    ranges = [
        [
            f"{entry.nbytes.least:,}",
            "unlimited" if entry.nbytes.most is None else f"{entry.nbytes.most:,}",
            entry.algorithm,
        ]
        for entry in ladder.ranges()
    ]
    text = "The quickest algorithm for each range of sizes. Between two sizes the border is near their geometric mean."
    columns = ("size (B)", *(f"{name} (us)" for name in ladder.candidates), "winner", "% of bound")
    times = []
    for rung in ladder.rungs:
        found = [rung.reports.get(name) for name in ladder.candidates]
        percent = rung.reports[rung.winner].percent_of_bound
        cells = ["-" if report is None else f"{report.latency_ns / 1000:,.3f}" for report in found]
        times.append([f"{rung.nbytes:,}", *cells, rung.winner, "-" if percent is None else f"{percent:.1f}"])
    sections = [
        Section("ranges", "Ranges of sizes", text, ("from (B)", "to (B)", "algorithm"), ranges),
        Section("speed", "Speed", charts=list(shown)),
        Section("table", "Measurements", "A line where a candidate did not run, or was wrong.", columns, times),
    ]
    refused = [
        [name, f"{rung.nbytes:,}", rung.refused[name]]
        for name in ladder.candidates
        for rung in ladder.rungs
        if name in rung.refused
    ]
    if refused:
        sections.append(Section("refused", "What did not run", "", ("algorithm", "size (B)", "why"), refused))
    last = ladder.rungs[-1]
    best = ladder.last()
    explanation = best.explain()
    sections += reasons.sections({last.winner: explanation}, ladder.emulator.machine, shown, f" at {last.nbytes:,} B")
    ends = [(entry.nbytes.most, entry.algorithm) for entry in ladder.ranges()]
    steps = [f"up to {size(most)} {name}" for most, name in ends if most is not None]
    steps.append(f"{'above' if steps else 'at every size'} {ladder.ranges()[-1].algorithm}")
    fastest = answer.fastest([report for report in reports if report.bytes == last.nbytes])
    quickest = f"The quickest of {len(ladder.candidates)}: {', '.join(steps)}. {fastest}"
    headline = answer.first_lines(quickest, best, explanation)
    facts = [("ahbm", best.version), ("machine", best.machine_hash), ("type", sweep.dtype)]
    facts += [("note", note) for note in ladder.notes]
    return Page(f"ladder of {what}, {sweep.dtype}", SUBTITLE, sections, shown, facts, headline)
