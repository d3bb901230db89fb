"""`ahbm compare`: what changed between two runs, or what differs between two algorithms or machines."""

from __future__ import annotations

import json
from dataclasses import replace
from os.path import exists
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated

import typer

from ahbm.cli import completion, progress
from ahbm.cli.app import app
from ahbm.cli.groups import grouped
from ahbm.cli.options import Json, OfTable, Swept, refuse_given
from ahbm.cli.output import fail
from ahbm.errors import ConfigError

if TYPE_CHECKING:
    from ahbm.runs.compare import Row
    from ahbm.table.cases import Sweep


@app.command(
    page="compare",
    examples=(
        "ahbm compare yesterday.json today.json",
        "ahbm compare yesterday.json today.json --gate",
        "ahbm compare all_reduce.csv -t dgx_h100",
        "ahbm compare recorded.json.gz step.0.et -t dgx_h200",
        "ahbm compare all_reduce -a ring_allreduce -a tree_allreduce -t npu_ring_8",
        "ahbm compare all_reduce -t npu_ring_8 -t npu_switch_8 --sizes 4K,1M --no-data",
    ),
)
@grouped
def compare(
    context: typer.Context,
    before: Annotated[
        str,
        typer.Argument(
            help="What `ahbm bench`, `run` or `explain --json` printed then; a measured table; or a collective, to be "
            "measured twice.",
            autocompletion=completion.collectives,
        ),
    ],
    after: Annotated[Path | None, typer.Argument(help="The same now.")] = None,
    *,
    swept: Swept,
    collective: OfTable = None,
    as_gate: Annotated[bool, typer.Option("--gate", help="Fail when anything is slower, wrong or gone.")] = False,
    as_json: Json = False,
) -> None:
    """Compare two runs, two algorithms or two machines, picosecond by picosecond: simulated times have no noise.

    Two files that `--json` printed; two traces of what a device did, of PyTorch's profiler or as `ahbm.torch` records
    them, whose kernels take what the machine of -t says; or a collective with -a A -a B, -t A -t B, --ranks 2,4 or
    --set KEY=1,2, which is measured on both. A measured table (nccl-tests, OSU, CSV) is put beside another
    one, or beside the machine of -t. Every option but --gate and --json is of measurements.
    """
    from ahbm.calibrate.aligned import is_trace
    from ahbm.calibrate.beside import is_table
    from ahbm.runs import compare as c

    if is_table(before):
        _tables(context, before, after, swept, collective, as_json)
        return
    if collective is not None:
        refuse_given(context, "what is compared says its collective", ["collective"])
    if after is None:
        _measured(context, before, swept, as_gate, as_json)
        return
    if is_trace(before) or is_trace(after):
        _operations(context, before, after, swept, as_json)
        return
    if not any(exists(name) or PurePath(name).suffix for name in (before, after)):
        what = f"there is neither a file {before} nor one {after}"
        raise ConfigError("AHBM-C160", what, hint="two algorithms are named with -a: ahbm compare all_reduce -a A -a B")
    files = ("before", "after", "as_gate", "as_json")
    refuse_given(context, "files are compared as they are", [name for name in context.params if name not in files])
    before_why, after_why = c.explanation(before), c.explanation(after)
    if before_why is not None and after_why is not None:
        steps = c.compare_steps(before_why, after_why)
        if as_json:
            typer.echo(json.dumps([step.to_json() for step in steps], indent=2))
        else:
            typer.echo("\n".join([c.STEPS_HEADER, *map(str, steps)]))
        return
    _tell(c.compare(c.load(before), c.load(after)), as_gate, as_json)


def _tables(
    context: typer.Context, before: str, after: Path | None, swept: Swept, collective: str | None, as_json: bool
) -> None:
    """A measured table, beside another one or a machine."""
    from ahbm.calibrate import beside, tables

    given = ("before", "after", "topologies", "settings", "collective", "as_json", "ranks")
    refuse_given(context, "a measured table is compared as it is", [n for n in context.params if n not in given])
    if swept.ranks is not None and not swept.ranks.isdigit():
        raise ConfigError("AHBM-C146", "a table is of one number of ranks", hint="--ranks 8")
    ranks = int(swept.ranks) if swept.ranks else None
    table = tables.read(before, collective, ranks)
    if after is not None:
        refuse_given(context, "two tables are compared as they are", ["topologies", "settings"])
        found = beside.measured(table, tables.read(after, collective, ranks))
    else:
        found = beside.predicted(table, swept.topology, replace(swept, ranks=None).overrides)
    typer.echo(json.dumps(found.to_json(), indent=2) if as_json else found.text())


def _operations(context: typer.Context, before: str, after: Path, swept: Swept, as_json: bool) -> None:
    """Two traces of what a device did."""
    from ahbm.calibrate.aligned import difference
    from ahbm.config.topology import load_machine

    given = ("before", "after", "topologies", "settings", "as_json")
    refuse_given(context, "traces are compared as they are", [name for name in context.params if name not in given])
    found = difference((before, after), load_machine(swept.topology, swept.overrides))
    typer.echo(json.dumps(found.to_json(), indent=2) if as_json else found.text())


def _measured(context: typer.Context, target: str, swept: Swept, as_gate: bool, as_json: bool) -> None:
    from ahbm.runs import compare as c
    from ahbm.table.cases import Refused
    from ahbm.table.nccl import footer
    from ahbm.table.running import attempt

    swept.refuse_sizes_given_twice(context)
    sweeps = [sweep.with_plans() for sweep in swept.sweeps(target)]
    # Machines of one size for all: a plan has its ranks, and what it is compared with has them too.
    sides = [one for sweep in sweeps for one in _each(sweep)]
    if len(sides) != 2:
        raise ConfigError(
            "AHBM-C146",
            f"ahbm compare compares two, not {len(sides)}",
            hint="-a A -a B or -t A -t B with a collective, or two files",
        )
    cells = [list(attempt([side], **swept.runs)) for side in sides]
    progress.clear()
    reports = [[cell for cell in side if not isinstance(cell, Refused)] for side in cells]
    refused = [cell for side in cells for cell in side if isinstance(cell, Refused)]
    if not as_json and refused:
        typer.echo("\n".join(footer(refused)))
    _tell(c.versus(*reports), as_gate and not refused, as_json)
    fail([cell for side in cells for cell in side])


def _each(sweep: Sweep) -> list[Sweep]:
    return [replace(sweep, algorithms=(name,)) for name in sweep.algorithms] or [sweep]


def _tell(rows: list[Row], as_gate: bool, as_json: bool) -> None:
    from ahbm.runs import compare as c

    if as_json:
        typer.echo(json.dumps([row.to_json() for row in rows], indent=2))
    else:
        typer.echo("\n".join([c.HEADER, *map(str, rows), *(f"note: {note}" for note in c.notes(rows))]))
    if as_gate:
        c.gate(rows)
