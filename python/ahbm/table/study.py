"""All that a page tells of a sweep: its rows, other numbers of ranks, rounding, and where the time of each went."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ahbm.base.collectives import COLLECTIVES
from ahbm.base.request import Request
from ahbm.config.topology import resized
from ahbm.errors import BudgetError, ConfigError
from ahbm.runs.report import bandwidths
from ahbm.source.synth import SynthAlgorithm
from ahbm.table.cases import Case, Refused, Sweep
from ahbm.table.running import attempt, live

if TYPE_CHECKING:
    from ahbm._core import Machine
    from ahbm.check.numerics import Numerics
    from ahbm.core.emulator import Emulator
    from ahbm.runs.explanation import Explanation
    from ahbm.runs.report import Report
    from ahbm.source.synthesis import Synthesis


@dataclass(frozen=True)
class Contents:
    """The parts of a page."""

    sweep: Sweep
    reports: Sequence[Report]
    peak_gbs: float | None
    """Bus bandwidth that an endless array could reach; None where no bound is known."""
    worlds: Sequence[Report] = ()
    """The same sweep for several numbers of ranks."""
    numerics: Sequence[Numerics] = ()
    machine: Machine | None = None
    explanations: Mapping[str, Explanation] = field(default_factory=dict)
    """By algorithm, why its run of the largest size took as long as it did."""
    synthesized: Mapping[str, Synthesis] = field(default_factory=dict)
    """By synthesized algorithm, the schedule of the largest size that ran."""
    refused: Sequence[Refused] = ()
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
    sweep: Sweep,
    ranks: Sequence[int] = (),
    numerics: bool = False,
    explain: bool = True,
    tell: Callable[[str], object] = lambda text: None,
    jobs: int | None = None,
    store: str | Path | None = None,
) -> Contents:
    """Runs what the page shows: the sweep, again for each number of `ranks`, numerics at its first size, reasons at its
    last. tell, jobs, store: as of `ahbm.table.running.attempt`.

    Raises what `ahbm.run` raises where nothing runs at all; a part of the sweep that does not run is on the page.
    """
    sweep = sweep.with_plans()
    emulator = sweep.emulator()
    sizes = [resized(emulator.machine.topology, count) for count in ranks]
    # Contributions to the result are followed where data would be compared; data move where that cannot decide.
    how: dict[str, Any] = {"data": None, "check": "result"} if sweep.data else {"data": False, "check": False}
    resizings = [replace(sweep, overrides={**sweep.overrides, **size}, **how) for size in sizes]
    for resizing in resizings:
        resizing.emulator()  # a machine that does not exist is told before anything is measured
    cells = list(attempt([sweep], emulator, tell, jobs, choosing=True, store=store))
    cells_of_worlds = list(attempt(resizings, tell=tell, jobs=jobs, store=store))
    refused = [cell for cell in [*cells, *cells_of_worlds] if isinstance(cell, Refused)]
    reports = [cell for cell in cells if not isinstance(cell, Refused)]
    worlds = [cell for cell in cells_of_worlds if not isinstance(cell, Refused)]
    if not reports:
        raise refused[0].error
    found: list[Numerics] = []
    if numerics and not COLLECTIVES[sweep.collective].reduces:
        raise ConfigError("AHBM-C146", f"{sweep.collective} reduces nothing: no --numerics")
    if numerics:
        from ahbm.check.numerics import numerics as measure

        first = {report.algorithm: report for report in reversed(reports)}
        found = [measure(Case(sweep, name, report.bytes).prepared(emulator)) for name, report in first.items()]
    last = {report.algorithm: report for report in [r for r in reports if r.right] or reports}
    explanations: dict[str, Explanation] = {}
    unexplained: dict[str, BudgetError] = {}
    run = sweep.measured_on(emulator, choosing=True)
    for name, report in last.items() if explain else ():
        tell(f"why {name} takes as long as it does at {report.bytes:,} B")
        case = Case(run, name if sweep.algorithms else None, report.bytes)
        try:
            explanations[name] = live(report, case, emulator).explain()
        except BudgetError as error:
            unexplained[name] = error
    synthesized = schedules_of(emulator, reports)
    limit = peak(emulator, sweep, reports)
    machine = emulator.machine
    return Contents(sweep, reports, limit, worlds, found, machine, explanations, synthesized, refused, unexplained)


def schedules_of(emulator: Emulator, reports: Sequence[Report]) -> dict[str, Synthesis]:
    """By synthesized algorithm among some reports, its schedule of the last size."""
    found = {}
    for name, report in {report.algorithm: report for report in reports}.items():
        algorithm = emulator.algorithm(name)
        if isinstance(algorithm, SynthAlgorithm):
            ranks = range(emulator.machine.sips)
            request = Request(report.collective, ranks, report.count, report.dtype, report.op, max(report.root, 0))
            found[name] = algorithm.synthesize(emulator.machine, request)
    return found


def peak(emulator: Emulator, sweep: Sweep, reports: Sequence[Report]) -> float | None:
    """busbw of an array so large that no latency counts."""
    request = Case(sweep, reports[0].algorithm, reports[0].bytes).prepared(emulator).request
    huge = replace(request, count=(1 << 40) // request.element.storage.itemsize)
    bound = emulator.bound(huge)
    if not bound.ps or sweep.collective == "barrier":
        return None
    return bandwidths(sweep.collective, reports[0].ranks, huge.nbytes, bound.ps)[1]
