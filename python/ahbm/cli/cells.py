"""Several runs of one target: each algorithm on each machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from ahbm.cli import progress
from ahbm.cli.output import fail_if_wrong

if TYPE_CHECKING:
    from ahbm.cli.options import Asked
    from ahbm.job.targets import Target


def each(target: str, runs: Sequence[Target], data: bool, check: str | None, as_json: bool) -> None:
    """Prints a row of `ahbm bench` for each run, or a line of JSON: its report, or the error of one that did not run.

    What is replayed or timed has no row, and prints what it says of itself. Raises the error of the first that did not
    run, after all of them, and exits as for wrong results; before anything runs, what machines, algorithms and sizes
    that do not exist raise.
    """
    from ahbm.choice.configured import likely
    from ahbm.core.spec import machine_name
    from ahbm.errors import AhbmError, InterruptedRun
    from ahbm.runs import bench
    from ahbm.runs.report import Report

    cases = [run.case if run.measured else None for run in runs]
    reports: list[Report] = []
    failed: list[bench.Refused] = []
    above: tuple[str, str, list[str]] | None = None
    for number, (run, case) in enumerate(zip(runs, cases, strict=True), 1):
        progress.at(f"{target}, run {number} of {len(runs)}")
        found: Any
        try:
            found = run.run(data=data, check=check)
        except InterruptedRun:
            raise
        except AhbmError as error:
            if case is None:
                raise
            request = case.request
            chosen = case.algorithm or likely(case.emulator, request.collective, request.nbytes)
            name = chosen if isinstance(chosen, str) else chosen.name
            found = bench.Refused(name, request.nbytes, machine_name(case.emulator.machine), error, case.resized)
            failed.append(found)
        progress.clear()
        if as_json:
            typer.echo(json.dumps(_refused(found) if isinstance(found, bench.Refused) else found.to_json()))
            sys.stdout.flush()
        elif isinstance(found, Report | bench.Refused):
            settings = [f"# set {key}={value}" for key, value in (run.options.overrides or {}).items()]
            if above != (above := (found.algorithm, found.machine, settings)):
                typer.echo("\n".join([*bench.columns(found)[:2], *settings, *bench.columns(found)[2:]]))
            assert case is not None
            typer.echo(bench.row(found) if isinstance(found, Report) else bench.refusal(found, case.request))
        else:
            typer.echo(str(found))
        if isinstance(found, Report):
            reports.append(found)
    for line in bench.footer(reports, failed) if not as_json else ():
        typer.echo(line)
    if failed:
        raise failed[0].error
    fail_if_wrong(reports)


def each_job(target: str, cells: Sequence[Asked], as_json: bool) -> None:
    """Prints a table of a job under the changes of each cell, or a line of JSON for each; the job is read once.

    Raises the error of the first that did not run, after all of them.
    """
    from ahbm.job.options import OfJob, given
    from ahbm.job.targets import Job
    from ahbm.job.what_if import Point, WhatIf, points

    told = [cell.told() for cell in cells]
    common = set.intersection(*map(set, told))
    labels = [", ".join(text for text in one if text not in common) for one in told]
    found: list[Point] = []
    jobs = (Job(target, OfJob.of(target, given(cell.options()))) for cell in cells)
    for point in points(zip(labels, jobs, strict=True)):
        found.append(point)
        progress.at(f"{target}, run {len(found)} of {len(cells)}")
        if as_json:
            typer.echo(json.dumps(point.to_json()))
            sys.stdout.flush()
    progress.clear()
    if not as_json:
        typer.echo(str(WhatIf(tuple(found))))
    for point in found:
        if point.error is not None:
            raise point.error


def _refused(cell: Any) -> dict[str, Any]:
    return {
        "algorithm": cell.algorithm,
        "machine": cell.machine,
        "bytes": cell.bytes,
        "error": cell.error.to_json(),
    }
