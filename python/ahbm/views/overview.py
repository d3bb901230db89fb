"""`ahbm report`: a sweep of one collective as a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ahbm.base import codes
from ahbm.config.topology import read_for
from ahbm.runs import compare
from ahbm.runs.report import notes_of
from ahbm.table.cases import Refused
from ahbm.table.columns import PAGE
from ahbm.table.study import Contents
from ahbm.views import answer, certificates, comparisons, reasons
from ahbm.views.page import Page, Section
from ahbm.views.words import SUBTITLE

if TYPE_CHECKING:
    from ahbm.check.numerics import Numerics
    from ahbm.runs.report import Report


def page(contents: Contents) -> Page:
    """The page of what was gathered."""
    from altair.utils.schemapi import debug_mode

    # Else every row is checked against the schema of charts whenever a chart is touched.
    with debug_mode(False):
        return _page(contents)


def _page(contents: Contents) -> Page:
    from ahbm.views import charts as c

    sweep, reports = contents.sweep, contents.reports
    first = reports[0]
    what = f"{sweep.collective} on {first.topology}, {first.ranks} ranks, {sweep.dtype}"
    rows = c.series(reports, contents.peak_gbs)
    charts = c.speed(rows, f"{what} (simulated)")
    sections = [
        Section("speed", "Speed", _limits(reports), charts=list(charts)),
        Section("table", "Measurements", "", tuple(PAGE), [row(report) for report in reports]),
    ]
    if contents.refused:
        sections.append(left_out(contents.refused))
    if contents.worlds:
        charts["selection"] = c.selection(contents.worlds, f"fastest algorithm for {sweep.collective} (simulated)")
        text = "The fastest of the algorithms for every size and number of ranks, and its percentage of the bound."
        sections.append(Section("selection", "Which algorithm where", text, charts=["selection"]))
    certificate = certificates.section(contents.synthesized) if contents.synthesized else None
    if certificate is not None:
        sections.append(certificate)
    names = list(dict.fromkeys(report.algorithm for report in reports))
    if len(names) == 2:
        sides = [[report for report in reports if report.algorithm == name] for name in names]
        sections.append(comparisons.section(compare.versus(*sides), charts))
    if contents.explanations:
        size = max(report.bytes for report in reports)
        sections += reasons.sections(contents.explanations, contents.machine, charts, f" at {size:,} B")
    if contents.left_out:
        sections.append(Section("unexplained", "What is not explained", " ".join(contents.left_out)))
    if contents.numerics:
        sections.append(_numerics(contents.numerics))
    facts = [
        ("ahbm", first.version),
        ("machine", first.machine_hash),
        ("programs", ", ".join(dict.fromkeys(report.program_hash for report in reports if report.program_hash))),
        ("topology", read_for(sweep.topology)),
        *((f"set {key}", str(value)) for key, value in sweep.overrides.items()),
        *(("note", note) for note in notes_of(reports)),
    ]
    headline = answer.of_sweep(reports, contents.explanations.items())
    if certificate is not None:
        headline[0] += f" {certificates.sentence(certificate)}"
    return Page(what, SUBTITLE, sections, charts, facts, headline)


def left_out(refused: Sequence[Refused]) -> Section:
    """The cells that did not run, or whose result is wrong, and why."""
    wrong = any(codes.says_wrong(cell.error.code) for cell in refused)
    text = f"These sizes did not run{', or their results are wrong' if wrong else ''}; everything else did."
    columns = ("machine", "algorithm", "size (B)", "code", "why")
    cells = [[r.machine, r.algorithm, f"{r.bytes:,}", r.error.code, r.error.message] for r in refused]
    return Section("refused", "What did not run", text, columns, cells)


def row(report: Report) -> list[str]:
    """The cells of `PAGE`."""
    return [of(report) for of in PAGE.values()]


def _limits(reports: Iterable[Report]) -> str:
    """The limit of the largest size, in words."""
    report = max(reports, key=lambda report: report.bytes)
    if not report.bound_ns:
        return f"No bound is drawn: {report.limited_by}."
    return (
        "The bound holds for every algorithm on this machine, the peak is the bound of an endless array. "
        f"What limits {report.bytes:,} B: {report.limited_by}."
    )


def _numerics(found: Sequence[Numerics]) -> Section:
    def described(agree: bool | None) -> str:
        return "-" if agree is None else "identical" if agree else "different"

    rows = [
        [
            n.algorithm,
            f"{n.max_ulp:.2f}",
            f"{n.mean_ulp:.3f}",
            described(n.ranks_agree),
            described(n.runs_agree),
            described(n.sizes_agree),
            str(len({order.order for order in n.orders})),
            n.orders[0].order if n.orders else "",
        ]
        for n in found
    ]
    columns = ("algorithm", "max ulp", "mean ulp", "ranks", "runs", "sizes", "orders", "order of the first elements")
    text = "Distance from the exact result in units in the last place, and whether bits depend on rank, run or size."
    return Section("numerics", "Numerics", text, columns, rows)
