"""`ahbm report`: a sweep of one collective as a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ahbm.base import codes
from ahbm.base.collectives import COLLECTIVES
from ahbm.config.topology import read_for, resized
from ahbm.errors import BudgetError, ConfigError
from ahbm.runs import bands, bench, compare
from ahbm.runs.plans import with_plans
from ahbm.views import answer, certificates, comparisons, reasons
from ahbm.views.page import Page, Section, bundle

if TYPE_CHECKING:
    from ahbm._core import Machine
    from ahbm.check.numerics import Numerics
    from ahbm.core.emulator import Emulator
    from ahbm.runs.explanation import Explanation
    from ahbm.runs.report import Report


@dataclass(frozen=True)
class Contents:
    """The parts of a page."""

    sweep: bench.Sweep
    reports: Sequence[Report]
    peak_gbs: float | None
    """Bus bandwidth that an endless array could reach; None where no bound is known."""
    worlds: Sequence[Report] = ()
    """The same sweep for several numbers of ranks."""
    numerics: Sequence[Numerics] = ()
    machine: Machine | None = None
    explanations: Mapping[str, Explanation] = field(default_factory=dict)
    """By algorithm, why its run of the largest size took as long as it did."""
    certificate: Section | None = None
    """Of synthesized algorithms."""
    refused: Sequence[bench.Refused] = ()
    """What did not run, for every number of ranks."""
    unexplained: Mapping[str, BudgetError] = field(default_factory=dict)
    """By algorithm, what is missing among `explanations`, and why."""

    @property
    def left_out(self) -> list[str]:
        """What is missing of the page for want of room, in sentences."""
        return [
            f"Why {name} takes this long is left out: {error.message} ({error.code})."
            for name, error in self.unexplained.items()
        ]


def gather(
    sweep: bench.Sweep,
    ranks: Sequence[int] = (),
    numerics: bool = False,
    explain: bool = True,
    tell: Callable[[str], object] = lambda text: None,
    spread: bench.Spread | None = None,
) -> Contents:
    """Runs what the page shows: the sweep, again for each number of `ranks`, numerics at its first size, reasons at its
    last. `tell` is told what runs next, for people; `spread` runs the sweeps elsewhere.

    Raises what `ahbm.run` raises where nothing runs at all; a part of the sweep that does not run is on the page.
    """
    sweep = with_plans(sweep)
    emulator = sweep.emulator()
    bundle()
    sizes = [resized(emulator.machine.topology, count) for count in ranks]
    # Contributions to the result are followed where data would be compared; data move where that cannot decide.
    how: dict[str, Any] = {"data": None, "check": "result"} if sweep.data else {"data": False, "check": False}
    resizings = [replace(sweep, overrides={**sweep.overrides, **size}, **how) for size in sizes]
    for resizing in resizings:
        resizing.emulator()  # a machine that does not exist is told before anything is measured
    cells = list(bench.attempt([sweep.deciding(emulator)], emulator, tell, spread))
    cells_of_worlds = list(bench.attempt(resizings, tell=tell, spread=spread))
    refused = [cell for cell in [*cells, *cells_of_worlds] if isinstance(cell, bench.Refused)]
    reports = [cell for cell in cells if not isinstance(cell, bench.Refused)]
    worlds = [cell for cell in cells_of_worlds if not isinstance(cell, bench.Refused)]
    if not reports:
        raise refused[0].error
    found: list[Numerics] = []
    if numerics and not COLLECTIVES[sweep.collective].reduces:
        raise ConfigError("AHBM-C146", f"{sweep.collective} reduces nothing: no --numerics")
    if numerics:
        from ahbm.check.numerics import numerics as measure

        first = {report.algorithm: report for report in reversed(reports)}
        found = [measure(sweep.case(name, report.bytes, emulator)) for name, report in first.items()]
    last = {report.algorithm: report for report in [r for r in reports if r.right] or reports}
    explanations: dict[str, Explanation] = {}
    unexplained: dict[str, BudgetError] = {}
    for name, report in last.items() if explain else ():
        tell(f"why {name} takes as long as it does at {report.bytes:,} B")
        try:
            explanations[name] = report.explain()
        except BudgetError as error:
            unexplained[name] = error
    certificate = certificates.section(emulator, reports)
    limit = peak(emulator, sweep, reports)
    machine = emulator.machine
    return Contents(sweep, reports, limit, worlds, found, machine, explanations, certificate, refused, unexplained)


def peak(emulator: Emulator, sweep: bench.Sweep, reports: Sequence[Report]) -> float | None:
    """busbw of an array so large that no latency counts."""
    from ahbm.runs.report import bandwidths

    request = sweep.case(reports[0].algorithm, reports[0].bytes, emulator).request
    huge = replace(request, count=(1 << 40) // request.element.storage.itemsize)
    bound = emulator.bound(huge)
    if not bound.ps or sweep.collective == "barrier":
        return None
    return bandwidths(sweep.collective, reports[0].ranks, huge.nbytes, bound.ps)[1]


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
        Section("table", "Measurements", "", COLUMNS, [row(report) for report in reports]),
    ]
    if contents.refused:
        sections.append(left_out(contents.refused))
    if contents.worlds:
        charts["selection"] = c.selection(contents.worlds, f"fastest algorithm for {sweep.collective} (simulated)")
        text = "The fastest of the algorithms for every size and number of ranks, and its percentage of the bound."
        sections.append(Section("selection", "Which algorithm where", text, charts=["selection"]))
    if contents.certificate is not None:
        sections.append(contents.certificate)
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
        *(
            ("note", note)
            for note in dict.fromkeys(note for report in reports for note in (*report.overruled, *report.idle))
        ),
        *(("note", note) for note in bands.over(report.error for report in reports)),
    ]
    subtitle = "All times are simulated. GB/s is 1e9 bytes per second; busbw as nccl-tests counts it, one direction."
    headline = answer.of_sweep(reports, contents.explanations.items())
    if contents.certificate is not None:
        headline[0] += f" {certificates.sentence(contents.certificate)}"
    return Page(what, subtitle, sections, charts, facts, headline)


def left_out(refused: Sequence[bench.Refused]) -> Section:
    """The cells that did not run, or whose result is wrong, and why."""
    wrong = any(codes.says_wrong(cell.error.code) for cell in refused)
    text = f"These sizes did not run{', or their results are wrong' if wrong else ''}; everything else did."
    columns = ("machine", "algorithm", "size (B)", "code", "why")
    cells = [[r.machine, r.algorithm, f"{r.bytes:,}", r.error.code, r.error.message] for r in refused]
    return Section("refused", "What did not run", text, columns, cells)


COLUMNS = ("algorithm", "size (B)", "time (us)", "algbw (GB/s)", "busbw (GB/s)", "bound (us)", "% of bound", "wrong")


def row(report: Report) -> list[str]:
    """The cells of `COLUMNS`."""
    return [
        report.algorithm,
        f"{report.bytes:,}",
        f"{report.latency_ns / 1000:,.3f}",
        f"{report.algbw_gbs:.2f}",
        f"{report.busbw_gbs:.2f}",
        "not known" if report.bound_ns is None else f"{report.bound_ns / 1000:,.3f}",
        "" if report.percent_of_bound is None else f"{report.percent_of_bound:.1f}",
        "not checked" if report.wrong is None else str(report.wrong),
    ]


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
    def told(agree: bool | None) -> str:
        return "-" if agree is None else "identical" if agree else "different"

    rows = [
        [
            n.algorithm,
            f"{n.max_ulp:.2f}",
            f"{n.mean_ulp:.3f}",
            told(n.ranks_agree),
            told(n.runs_agree),
            told(n.sizes_agree),
            str(len({order.order for order in n.orders})),
            n.orders[0].order if n.orders else "",
        ]
        for n in found
    ]
    columns = ("algorithm", "max ulp", "mean ulp", "ranks", "runs", "sizes", "orders", "order of the first elements")
    text = "Distance from the exact result in units in the last place, and whether bits depend on rank, run or size."
    return Section("numerics", "Numerics", text, columns, rows)
