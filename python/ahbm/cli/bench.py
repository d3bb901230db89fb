"""`ahbm bench`: a collective over sizes."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ahbm.cli.app import app
from ahbm.cli.groups import grouped
from ahbm.cli.ladder import climbed
from ahbm.cli.options import Check, CollectiveOrPlan, Device, Json, Swept
from ahbm.cli.output import fail_if_wrong
from ahbm.cli.targets import Targeted, arguments_of
from ahbm.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class _Swept(Swept):
    begin: Annotated[str, typer.Option("-b", "--minbytes", help="First size.")] = "256"
    factor: Annotated[int, typer.Option("-f", "--stepfactor", help="Factor between sizes.")] = 2


@app.command(cls=Targeted)
@grouped
def bench(
    context: typer.Context,
    target: CollectiveOrPlan,
    *,
    swept: _Swept,
    step: Annotated[str, typer.Option("-i", "--stepbytes", help="Bytes between sizes, instead of a factor.")] = "0",
    device: Device = False,
    check: Check = None,
    baseline: Annotated[
        Path | None, typer.Option("--gate", help="Fail when anything is slower than in this file (--json of then).")
    ] = None,
    ladder: Annotated[
        Path | None,
        typer.Option("--ladder", metavar="FILE", help="With --vary: write the quickest for each range as a ccl.yaml."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Sweep a collective, a plan or a script over sizes; nccl-tests' columns, simulated times.

    With --vary, the variations of a script are compared: one line per size, and the quickest.
    """
    from ahbm.runs import bench as b
    from ahbm.runs import compare as c

    expected = c.load(baseline) if baseline is not None else None
    sweep = swept.sweep(target, arguments_of(context), step=step, device=device, check=check)
    if swept.vary:
        climbed(sweep, ladder, as_json)
        return
    if ladder is not None:
        raise ConfigError("AHBM-C146", "--ladder is for variations", hint="--vary instances=1,2,4")
    reports = []
    if as_json:
        reports = list(b.measure(sweep))
        typer.echo(json.dumps(b.to_json(sweep, reports, sys.argv[1:]), indent=2))
    else:
        typer.echo("\n".join(b.header(sweep)))
        for report in b.attempt(sweep):
            if isinstance(report, b.Skipped):
                typer.echo(f"# {report.bytes} B by {report.algorithm} is left out: {report.why}")
                continue
            if not reports or reports[-1].algorithm != report.algorithm:
                typer.echo("\n".join(b.columns(report)))
            typer.echo(b.row(report))
            reports.append(report)
        typer.echo("\n".join(b.footer(reports)))
    if expected is not None:
        c.gate(c.compare(expected, reports))
    fail_if_wrong(reports)
