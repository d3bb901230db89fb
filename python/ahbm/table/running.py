"""The one loop over runs: each gives what it gives, or its error, and no error ends the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ahbm.choice.configured import likely
from ahbm.core.spec import machine_name
from ahbm.errors import AhbmError, InterruptedRun
from ahbm.table.cases import Case, Refused, Sweep

if TYPE_CHECKING:
    from ahbm.base.request import Request
    from ahbm.base.sizes import Resized
    from ahbm.core.emulator import Emulator
    from ahbm.runs.report import Report
    from ahbm.source.algorithm import Algorithm

_Found = TypeVar("_Found")


def outcome(run: Callable[[], _Found]) -> _Found | AhbmError:
    """What a run gives, or its error. Raises InterruptedRun, which ends all."""
    try:
        return run()
    except InterruptedRun:
        raise
    except AhbmError as error:
        return error


def measured(
    run: Callable[[], _Found],
    asked: Sweep | Request,
    algorithm: str | Algorithm | None,
    nbytes: int,
    emulator: Emulator,
    resized: Resized | None = None,
) -> _Found | Refused:
    """What a run gives of what was asked for, by the algorithm or else the configured one."""
    found = outcome(run)
    if not isinstance(found, AhbmError):
        return found
    by = _name(asked, algorithm, nbytes, emulator)
    name, found = ("-", by) if isinstance(by, AhbmError) else (by, found)
    return Refused.of(asked, name, nbytes, machine_name(emulator.machine), found, resized)


def _name(
    asked: Sweep | Request, algorithm: str | Algorithm | None, nbytes: int, emulator: Emulator
) -> str | AhbmError:
    """The algorithm, or why none is likely."""
    by = outcome(lambda: algorithm or likely(emulator, asked.collective, nbytes))
    return by if isinstance(by, str | AhbmError) else by.name


def attempt(
    sweeps: Sequence[Sweep],
    emulator: Emulator | None = None,
    tell: Callable[[str], object] = lambda text: None,
    jobs: int | None = None,
    *,
    choosing: bool = False,
    store: str | Path | None = None,
) -> Iterator[Report | Refused]:
    """Runs the sweeps, machine by machine and algorithm by algorithm; a case that fails is given as `Refused`.

    emulator: the machine and configuration, where they are loaded already. tell: is told what runs next, for people.
    jobs: processes that share the work; the results are the same, in the same order. choosing: as of
    `Sweep.measured_on`. store: a folder for the rows, as of `ahbm.sweep`. What is in it already is not run again, and
    its reports have no spec.
    Raises, before anything runs, what loading machines, configurations and algorithms raises, and ConfigError
    (AHBM-C186) where the store cannot be read; C141 where it cannot be written; and InterruptedRun.
    """
    cases = []
    for sweep in sweeps if emulator is not None else map(Sweep.with_plans, sweeps):
        machine = emulator or sweep.emulator()
        cases += [(case, machine) for case in sweep.measured_on(machine, choosing=choosing).cases(machine)]
    return ran(cases, tell, jobs, store)


def ran(
    cases: Sequence[tuple[Case, Emulator]],
    tell: Callable[[str], object] = lambda text: None,
    jobs: int | None = None,
    store: str | Path | None = None,
) -> Iterator[Report | Refused]:
    """Runs cases, each on the emulator beside it. As `attempt`."""
    kept = None
    known: Sequence[Report | AhbmError | None] = [None] * len(cases)
    if store is not None:
        from ahbm.table.kept import Kept

        kept = Kept(store, cases)
        known = [kept.cell(at) for at in range(len(cases))]
    new = [case for (case, _), cell in zip(cases, known, strict=True) if cell is None]
    elsewhere: Iterator[Report | AhbmError | None] = repeat(None)
    if min(jobs or 1, len(new)) > 1:
        from ahbm.table.processes import reports

        elsewhere = reports(new, min(jobs or 1, len(new)))
    try:
        for at, ((case, machine), cell) in enumerate(zip(cases, known, strict=True)):
            if cell is not None:
                yield of_case(case, machine, cell)
                continue
            name = _name(case.sweep, case.algorithm, case.nbytes, machine)
            if isinstance(name, str):
                tell(f"{case.nbytes:,} B by {name}, row {at + 1} of {len(cases)}")
            found = of_case(case, machine, next(elsewhere))
            if kept is not None:
                kept.add(at, found)
            yield found
    finally:
        if kept is not None:
            kept.write()


def of_case(case: Case, emulator: Emulator, known: Report | AhbmError | None = None) -> Report | Refused:
    """Runs a case, unless it is known what it gives. As `attempt`."""

    def run() -> Report:
        if isinstance(known, AhbmError):
            raise known
        return case.run(emulator) if known is None else known

    return measured(run, case.sweep, case.algorithm, case.nbytes, emulator, case.resized)


def live(report: Report, case: Case, emulator: Emulator) -> Report:
    """The report of a case, with its spec: it runs again where a store has it."""
    return case.run(emulator) if report.spec is None else report


def failure(cells: Sequence[Report | Refused]) -> AhbmError | None:
    """The error of the first cell that failed; None where every cell ran, or is left out of a plan that ran."""
    ran = {(cell.machine, cell.algorithm) for cell in cells if not isinstance(cell, Refused)}
    for cell in cells:
        if isinstance(cell, Refused) and not (cell.left_out and (cell.machine, cell.algorithm) in ran):
            return cell.error
    return None
