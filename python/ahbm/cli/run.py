"""`ahbm run`: one collective, a plan, or a script."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ahbm.base.load import load_bytes
from ahbm.cli import completion, progress
from ahbm.cli.app import app
from ahbm.cli.excerpts import Excerpts
from ahbm.cli.formats import FormatOption, Outcomes, outcomes, refuse_two
from ahbm.cli.groups import grouped
from ahbm.cli.interrupts import leave_to_script
from ahbm.cli.options import Algorithms, Asked, Check, Graphs, Json, NoData
from ahbm.cli.output import fail, fail_if_wrong, fail_where, print_rows
from ahbm.cli.targets import Targeted, arguments_of, refuse_arguments
from ahbm.errors import ConfigError

if TYPE_CHECKING:
    from ahbm.job.targets import PlanFile, Target
    from ahbm.ranks.setup import Setup
    from ahbm.runs.report import Report
    from ahbm.table.cases import Refused


@dataclass(frozen=True, kw_only=True)
class _Asked(Asked):
    algorithms: Algorithms = None
    graphs: Graphs = None
    selector: Annotated[
        str | None,
        typer.Option("--selector", metavar="NAME|FILE", help="What chooses: prior, nccl, shortlist, or a file."),
    ] = None

    def options(self, *, device: bool = False, args: Sequence[str] = ()) -> dict[str, Any]:
        """See `Asked`."""
        return super().options(device=device, args=args) | {
            "collective_algorithm": tuple(self.graphs or ()),
            "selector": self.selector,
        }


@app.command(
    cls=Targeted,
    context_settings={"allow_extra_args": True},
    page="quick-start",
    examples=(
        "ahbm run all_reduce -a ring_allreduce --size 64K",
        "ahbm run plan.xml --size 1M --trace plan.pftrace",
        "ahbm run all_reduce --size 64K -a ring_allreduce -a tree_allreduce -t npu_ring_8 -t npu_switch_8",
    ),
)
@grouped
def run(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            help="all_reduce, all_gather, ...; a plan (.xml, .json, .et); or a Python script, its arguments follow.",
            autocompletion=completion.collectives,
            show_default=False,
        ),
    ],
    *,
    asked: _Asked,
    et: Annotated[
        Path | None,
        typer.Option(
            "--et", metavar="PREFIX", help="Write the run as a Chakra trace, PREFIX.<rank>.et, with its times."
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace", metavar="FILE", help="Write the run as a timeline: .pftrace for Perfetto, .json for Chrome."
        ),
    ] = None,
    place: Annotated[
        str | None,
        typer.Option(
            "--place",
            metavar="HOW",
            help="Several jobs (ahbm run A B): which SIPs each has: packed (default), striped, random or random:SEED.",
        ),
    ] = None,
    no_data: NoData = False,
    check: Check = None,
    best: Annotated[
        bool, typer.Option("--best", help="Jobs: try every algorithm for every kind of call; say what each saves.")
    ] = False,
    as_json: Json = False,
    ci: FormatOption = None,
) -> None:
    """Run one collective, a plan or a script on the emulated machine; or jobs beside each other.

    Several -a, -t, --ranks 2,4,8 or --set KEY=1,2 run each algorithm on each machine: one row each, as in `ahbm bench`,
    or, with --json, one line of JSON as soon as it is there. A row that does not run says its code; the others run, and
    the exit code is the one of the first that did not.
    """
    from ahbm._core import check_timeline_name
    from ahbm.job.open import is_case
    from ahbm.job.options import Where, given, names_of, only, refuse
    from ahbm.job.targets import PlanFile
    from ahbm.runs.report import Report

    args = arguments_of(context)
    refuse_two(ci, [("--json", as_json), ("--best", best)])
    if not is_case(target):
        if (check, et, trace) != (None, None, None):
            raise ConfigError(
                "AHBM-C146",
                "--check, --et and --trace are for one collective or plan; a script runs as many as it likes",
                hint="ahbm.run(..., check=...) in a script",
            )
        what = "says itself what is called, of which type and size, and prints what it likes"
        only(target, what, given(asked.options()), names_of(Where) | {"algorithm"})
        more = {
            **{"no-data": no_data, "best": best, "json": as_json},
            **{"format": ci is not None, "place": place is not None},
        }
        refuse(target, what, [name for name, on in more.items() if on])
        _script(Path(target), args, asked)
        return
    others = [] if target.endswith(".py") else list(context.args)
    if place is not None or (others and all(map(is_case, others))):
        single = {"--et": et, "--check": check, "--best": best or None, "--format": ci, "--no-data": no_data or None}
        refused = [name for name, value in single.items() if value is not None]
        _together([target, *others], place, asked, refused, trace, as_json)
        return
    refuse_arguments(context, target)
    if target.endswith(".py"):
        script = asked.open(target, args=args)
        assert isinstance(script, PlanFile)
        if not _lowers(script, asked):
            return
    cells = asked.cells()
    if best and (len(cells) > 1 or check is not None):
        raise ConfigError("AHBM-C146", "--best is for one machine and what it runs by, without --check")
    if len(cells) > 1:
        if (et, trace) != (None, None):
            raise ConfigError("AHBM-C146", f"--et and --trace are for one run, not for {len(cells)}")
        if check is None and not best and cells[0].open(target, args=args).is_job:
            refuse(target, "is a job, which several machines run", ["format"] if ci is not None else [])
            _each_job(target, cells, as_json)
            return
        runs = [cell.open(target, args=args) for cell in cells]
        with outcomes("run", ci) as gathered:
            _each(target, runs, not no_data, check, as_json, gathered)
        return
    if best:
        found = asked.open(target, args=args).best()
        typer.echo(json.dumps(found.to_json(), indent=2) if as_json else str(found))
        fail_where(bool(found.wrong))
        return
    if trace is not None:
        check_timeline_name(trace)
    with outcomes("run", ci) as gathered:
        report = asked.open(target, args=args).run(data=not no_data, check=check)
        if et is not None:
            report.write_trace(et)
        if trace is not None:
            report.write_timeline(trace)
        if gathered is not None:
            gathered.cell(report)
        else:
            typer.echo(json.dumps(report.to_json(), indent=2) if as_json else Excerpts().below(str(report)))
        fail_if_wrong([report] if isinstance(report, Report) else [])


def _each(
    target: str, runs: Sequence[Target], data: bool, check: str | None, as_json: bool, gathered: Outcomes | None
) -> None:
    """Prints a row for each run, or a line of JSON: its report, or the error of one that did not run.

    What is timed has no row, and prints what it says of itself. Raises the error of the first that did not run, after
    all of them, and exits as for wrong results; before anything runs, what machines, algorithms and sizes that do not
    exist raise.
    """
    from ahbm.runs.report import Report
    from ahbm.table import nccl
    from ahbm.table.cases import Refused
    from ahbm.table.running import measured

    cases = [run.case if run.measured else None for run in runs]

    def found() -> Iterator[tuple[Report | Refused, list[str]]]:
        for number, (run, case) in enumerate(zip(runs, cases, strict=True), 1):
            progress.at(f"{target}, run {number} of {len(runs)}")
            if case is None:
                timed = run.run(data=data, check=check)
                progress.clear()
                if gathered is not None:
                    gathered.cell(timed)
                else:
                    typer.echo(json.dumps(timed.to_json()) if as_json else str(timed))
                continue
            settings = [f"# set {key}={value}" for key, value in (run.options.overrides or {}).items()]
            asked = case.request
            of = asked, case.algorithm, asked.nbytes, case.emulator, case.resized
            cell = measured(lambda: run.run(data=data, check=check), *of)  # noqa: B023
            assert isinstance(cell, Report | Refused)
            yield cell, settings

    def silent(cell: Report | Refused) -> str:
        return ""

    cells = print_rows(
        found(), (lambda cell: json.dumps(cell.to_json())) if as_json else silent if gathered is not None else None
    )
    if gathered is not None:
        for cell in cells:
            gathered.cell(cell)
    for line in nccl.footer(cells) if not as_json and gathered is None else ():
        typer.echo(line)
    fail(cells)


def _each_job(target: str, cells: Sequence[Asked], as_json: bool) -> None:
    """Prints a table of a job under the changes of each cell, or a line of JSON for each; the job is read once.

    Raises the error of the first that did not run, after all of them.
    """
    from ahbm.job.options import OfJob, given
    from ahbm.job.targets import Job
    from ahbm.job.what_if import Point, WhatIf, points

    texts = [cell.labels() for cell in cells]
    common = set.intersection(*map(set, texts))
    labels = [", ".join(text for text in one if text not in common) for one in texts]
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


def _together(
    targets: Sequence[str], place: str | None, asked: Asked, refused: Sequence[str], trace: Path | None, as_json: bool
) -> None:
    """Prints what jobs take beside each other. Raises ConfigError (AHBM-C146) for a single one, and for options that
    they do not have."""
    from ahbm.job.options import given
    from ahbm.job.together import together

    if len(targets) == 1:
        raise ConfigError(
            "AHBM-C146", "--place is for several jobs", hint=f"ahbm run {targets[0]} {targets[0]} --place striped"
        )
    cells = asked.cells()
    if refused or len(cells) > 1:
        what = ", ".join(refused) or "several machines or algorithms"
        raise ConfigError("AHBM-C146", f"{what}: not for jobs beside each other, which run once on one machine")
    found = together(*targets, place=place or "packed", **given(cells[0].options()))
    if trace is not None:
        found.report.write_timeline(trace)
    typer.echo(json.dumps(found.to_json(), indent=2) if as_json else str(found))


def _setup(asked: Asked) -> Setup:
    from ahbm.ranks.setup import Setup

    return Setup(asked.topology, asked.ccl, asked.overrides or None, asked.algorithm)


def _lowers(opened: PlanFile, asked: Asked) -> bool:
    """Whether a script that imports a language lowers a program; what one that does not has printed is printed."""
    from ahbm.dsl.script import Script
    from ahbm.ranks.setup import using

    script = opened.source
    assert isinstance(script, Script)
    with using(_setup(asked)):
        outcome = script.outcome(quirks=opened.options.reading.quirks)
    if not outcome.programs:
        typer.echo(outcome.printed, nl=False)
    return bool(outcome.programs)


def _script(script: Path, args: Sequence[str], asked: Asked) -> None:
    from ahbm.ranks.setup import using

    setup = replace(_setup(asked), performed=set())
    with using(setup), _as_main(script, args) as execute:
        leave_to_script()
        execute()
    if asked.algorithm is not None and not setup.performed:
        typer.echo(f"note: -a {asked.algorithm} performed no call of {script}", err=True)


def _is_python(script: Path) -> bool:
    """Whether it does something; comments and values alone are also those of logs and configurations."""
    try:
        body = ast.parse(load_bytes(script), str(script)).body
        values = ast.Expr | ast.Assign | ast.AnnAssign
        return any(not isinstance(node, values) or any(map(_calls, ast.walk(node))) for node in body)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _calls(node: ast.AST) -> bool:
    return isinstance(node, ast.Call)


@contextmanager
def _as_main(script: Path, args: Sequence[str]) -> Iterator[Callable[[], object]]:
    """Lets `script` run as `python script args` would."""
    import runpy

    from ahbm.base.collectives import meant
    from ahbm.dsl.script import as_main

    if not isfile(script):
        what = f"{script} is no collective, no plan, and there is no such script"
        raise ConfigError("AHBM-C144", what, hint=meant(str(script)))
    if script.suffix != ".py" and not _is_python(script):
        raise ConfigError(
            "AHBM-C144", f"{script} is no collective, no plan and no Python script", hint="a script's name ends in .py"
        )
    with as_main(str(script), args):
        yield lambda: runpy.run_path(str(script), run_name="__main__")
