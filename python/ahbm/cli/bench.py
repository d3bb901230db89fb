"""`ahbm bench`: a collective over sizes."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ahbm.cli import progress
from ahbm.cli.app import app
from ahbm.cli.formats import FormatOption, outcomes, refuse_two
from ahbm.cli.groups import grouped
from ahbm.cli.ladder import climbed
from ahbm.cli.options import Check, CollectiveOrPlan, Device, Json, Swept
from ahbm.cli.output import fail, print_rows
from ahbm.cli.targets import Targeted, arguments_of
from ahbm.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class _Swept(Swept):
    begin: Annotated[str, typer.Option("-b", "--minbytes", help="First size.")] = "256"
    factor: Annotated[int, typer.Option("-f", "--stepfactor", help="Factor between sizes.")] = 2


@app.command(
    cls=Targeted,
    page="machine-model",
    examples=(
        "ahbm bench all_reduce -b 1K -e 1M -f 4 -a ring_allreduce -a tree_allreduce",
        "ahbm bench all_gather --sizes 64K,1M -t npu_ring_8 -t npu_switch_8 --no-data",
    ),
)
@grouped
def bench(
    context: typer.Context,
    target: CollectiveOrPlan = "",
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
    as_lines: Annotated[
        bool, typer.Option("--json-lines", help="Print each row as a line of JSON, as soon as it is there.")
    ] = False,
    ci: FormatOption = None,
) -> None:
    """Sweep a collective, a plan or a script over sizes; nccl-tests' columns, simulated times.

    Several -t, --ranks 2,4,8 or --set KEY=1,2 measure on several machines. A row that does not run says its code; the
    others run, and the exit code is the one of the first that did not.
    A calibrated machine is asked for times alone, by
    default of the collective that it was measured with; its rows have error bands.
    With --vary, the variations of a script are compared: one line per size, and the quickest.
    """
    from ahbm.runs import compare as c
    from ahbm.runs.report import Report
    from ahbm.table import nccl
    from ahbm.table.running import attempt

    refuse_two(ci, [("--json", as_json), ("--json-lines", as_lines), ("--vary", swept.vary)])
    expected = c.load(baseline) if baseline is not None else None
    swept.refuse_sizes_given_twice(context)
    target = target or swept.calibrated_for()
    how: dict[str, Any] = {"step": step, "device": device, "check": check}
    if swept.vary:
        climbed(swept.sweep(target, arguments_of(context), **how), ladder, as_json, **swept.runs)
        return
    if ladder is not None:
        raise ConfigError("AHBM-C146", "--ladder is for variations", hint="--vary instances=1,2,4")
    sweeps = swept.sweeps(target, arguments_of(context), **how)
    if not as_json and not as_lines and ci is None:
        typer.echo("\n".join(dict.fromkeys(line for sweep in sweeps for line in nccl.header(sweep))))
    rows = attempt(sweeps, **swept.runs)
    if ci is not None:
        with outcomes("bench", ci) as gathered:
            assert gathered is not None
            cells = []
            for cell in rows:
                cells.append(cell)
                gathered.cell(cell)
            progress.clear()
            if expected is not None:
                c.gate(c.compare(expected, [cell for cell in cells if isinstance(cell, Report)]))
            fail(cells)
        return
    if as_json:
        cells = list(rows)
        progress.clear()
        typer.echo(json.dumps(nccl.to_json(sweeps, cells, sys.argv[1:]), indent=2))
    else:
        line = (lambda cell: json.dumps(nccl.result(cell))) if as_lines else None
        cells = print_rows(((cell, ()) for cell in rows), line)
        if not as_lines:
            typer.echo("\n".join(nccl.footer(cells)))
    if expected is not None:
        c.gate(c.compare(expected, [cell for cell in cells if isinstance(cell, Report)]))
    fail(cells)
