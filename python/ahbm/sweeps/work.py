"""The rows of cases, and the function that other processes are sent to make them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ahbm._core import Workload
from ahbm.errors import AhbmError, InterruptedRun
from ahbm.runs import bands
from ahbm.runs.report import Report
from ahbm.table.build import build
from ahbm.table.cases import Case, Refused
from ahbm.table.processes import Places, batch, places
from ahbm.table.running import of_case, outcome
from ahbm.table.store import INTERNAL, NAMES, Row, refusal, row_of


def work(token: str, cases: Sequence[Case]) -> tuple[list[Row], float]:
    """The rows of the first of `cases`, and the seconds that they took, as `batch`. `token` tells sweeps apart."""
    here = places(token)
    return batch(lambda case: row(case, here), cases)


def row(case: Case, places: Places) -> Row:
    """The row of a case; that of an error where it does not run. Raises InterruptedRun."""
    try:
        return _measured(case, places) if case.sweep.job is None else _replayed(case)
    except InterruptedRun:
        raise
    except Exception as error:
        # A defect: the other cases are none the worse for it.
        return refusal(case, INTERNAL, f"{type(error).__name__}: {error}")


def errors(machines: Iterable[str], rows: Iterable[Row]) -> list[str]:
    """What is told of the errors of rows on calibrated machines, by their machines in words."""
    places = [NAMES.index(name) for name in ("job", "bytes", "calibration")]
    return bands.of_rows((machine, *(row[at] for at in places)) for machine, row in zip(machines, rows, strict=True))


def cell_of(case: Case, places: Places) -> Report | Refused:
    """Runs a case; as `ahbm.table.running.attempt`, also of a machine that does not load."""
    sweep = case.sweep
    emulator = outcome(lambda: places.emulator(sweep))
    if isinstance(emulator, AhbmError):
        return Refused.of(sweep, case.algorithm or "-", case.nbytes, sweep.machine, emulator, case.resized)
    return of_case(case, emulator)


def _measured(case: Case, places: Places) -> Row:
    try:
        cell = cell_of(case, places)
    finally:
        # Cases of a sweep differ: none needs the program of another.
        places.forget_programs()
    return row_of(case, cell, lambda: places.emulator(case.sweep).machine)


def _replayed(case: Case) -> Row:
    found = outcome(lambda: _replay(case))
    return refusal(case, found.code, found.message) if isinstance(found, AhbmError) else found


def _replay(case: Case) -> Row:
    from ahbm.job.options import OfJob
    from ahbm.job.replay import replay
    from ahbm.job.transformer import read_manifest, transformer_of
    from ahbm.runs import plans

    sweep, job = case.sweep, str(case.sweep.job)
    by = None if case.algorithm is None else sweep.given.get(case.algorithm, case.algorithm)
    of = OfJob(topology=sweep.topology, ccl=sweep.ccl, overrides=sweep.overrides, algorithm=by)
    target: str | Workload = job
    if job.endswith((".yaml", ".yml")):
        target = transformer_of(read_manifest(job)).workload(plans.label(job))
    found = replay(target, plans.label(job), of.setup(), of.how)
    values = dict.fromkeys(NAMES) | {
        "algorithm": case.algorithm or "-",
        "machine": sweep.machine,
        "topology": found.topology,
        "ranks": len(found.ranks),
        "latency_ns": found.latency_ns,
        "timeline_hash": found.times_hash,
        "job": job,
        "calibration": "; ".join(found.calibration) or None,
        "version": build(),
    }
    return tuple(values.values())
