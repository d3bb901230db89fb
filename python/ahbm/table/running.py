"""The one loop over runs: each gives what it gives, or its error, and no error ends the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, TypeVar

from ahbm.choice.configured import likely
from ahbm.core.spec import machine_name
from ahbm.errors import AhbmError, InterruptedRun
from ahbm.table.cases import Case, Refused, Sweep

if TYPE_CHECKING:
    from ahbm.check.case import Case as Prepared
    from ahbm.core.emulator import Emulator
    from ahbm.runs.report import Report

_Found = TypeVar("_Found")


def outcome(run: Callable[[], _Found]) -> _Found | AhbmError:
    """What a run gives, or its error. Raises InterruptedRun, which ends all."""
    try:
        return run()
    except InterruptedRun:
        raise
    except AhbmError as error:
        return error


def measured(case: Prepared, run: Callable[[], _Found]) -> _Found | Refused:
    """What the run of a case gives."""
    found = outcome(run)
    if not isinstance(found, AhbmError):
        return found
    request, machine = case.request, case.emulator.machine
    chosen = case.algorithm or likely(case.emulator, request.collective, request.nbytes)
    name = chosen if isinstance(chosen, str) else chosen.name
    return Refused.of(request, name, request.nbytes, machine_name(machine), found, case.resized)


def attempt(
    sweeps: Sequence[Sweep],
    emulator: Emulator | None = None,
    tell: Callable[[str], object] = lambda text: None,
    jobs: int | None = None,
    *,
    choosing: bool = False,
) -> Iterator[Report | Refused]:
    """Runs the sweeps, machine by machine and algorithm by algorithm; a case that fails is given as `Refused`.

    emulator: the machine and configuration, where they are loaded already. tell: is told what runs next, for people.
    jobs: processes that share the work; the results are the same, in the same order. choosing: as of
    `Sweep.measured_on`.
    Raises, before anything runs, what loading machines, configurations and algorithms raises; and InterruptedRun.
    """
    cases = []
    for sweep in sweeps if emulator is not None else map(Sweep.with_plans, sweeps):
        machine = emulator or sweep.emulator()
        cases += [(case, machine) for case in sweep.measured_on(machine, choosing=choosing).cases(machine)]
    return ran(cases, tell, jobs)


def ran(
    cases: Sequence[tuple[Case, Emulator]], tell: Callable[[str], object] = lambda text: None, jobs: int | None = None
) -> Iterator[Report | Refused]:
    """Runs cases, each on the emulator beside it. As `attempt`."""
    elsewhere: Iterator[Report | AhbmError | None] = repeat(None)
    if min(jobs or 1, len(cases)) > 1:
        from ahbm.table.processes import reports

        elsewhere = reports([case for case, _ in cases], min(jobs or 1, len(cases)))
    for number, ((case, machine), known) in enumerate(zip(cases, elsewhere, strict=False), 1):
        name = _name(case, machine)
        if isinstance(name, str):
            tell(f"{case.nbytes:,} B by {name}, row {number} of {len(cases)}")
        yield _cell(case, machine, known)


def attempt_case(case: Case, load: Callable[[Sweep], Emulator]) -> Report | Refused:
    """Runs a case on the emulator that `load` gives of its sweep; as `attempt`."""
    emulator = outcome(lambda: load(case.sweep))
    if isinstance(emulator, AhbmError):
        sweep = case.sweep
        return Refused.of(sweep, case.algorithm or "-", case.nbytes, sweep.machine, emulator, case.resized)
    return _cell(case, emulator)


def _cell(case: Case, emulator: Emulator, known: Report | AhbmError | None = None) -> Report | Refused:
    found = outcome(lambda: case.run(emulator)) if known is None else known
    if not isinstance(found, AhbmError):
        return found
    name = _name(case, emulator)
    name, found = ("-", name) if isinstance(name, AhbmError) else (name, found)
    return Refused.of(case.sweep, name, case.nbytes, machine_name(emulator.machine), found, case.resized)


def _name(case: Case, emulator: Emulator) -> str | AhbmError:
    """The algorithm, or why none is likely."""
    return outcome(lambda: case.algorithm or likely(emulator, case.sweep.collective, case.nbytes))


def failure(cells: Sequence[Report | Refused]) -> AhbmError | None:
    """The error of the first cell that failed; None where every cell ran, or is left out of a plan that ran."""
    ran = {(cell.machine, cell.algorithm) for cell in cells if not isinstance(cell, Refused)}
    for cell in cells:
        if isinstance(cell, Refused) and not (cell.left_out and (cell.machine, cell.algorithm) in ran):
            return cell.error
    return None
