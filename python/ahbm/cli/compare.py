"""`ahbm compare`: what changed between two runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ahbm.cli.app import app
from ahbm.cli.options import Json


@app.command(
    page="compare",
    examples=(
        "ahbm compare yesterday.json today.json",
        "ahbm compare yesterday.json today.json --gate",
    ),
)
def compare(
    before: Annotated[Path, typer.Argument(help="What `ahbm bench`, `run` or `explain --json` printed then.")],
    after: Annotated[Path, typer.Argument(help="The same now.")],
    as_gate: Annotated[bool, typer.Option("--gate", help="Fail when anything is slower, wrong or gone.")] = False,
    as_json: Json = False,
) -> None:
    """Compare two runs, picosecond by picosecond: simulated times have no noise."""
    from ahbm.runs import compare as c

    before_why, after_why = c.explanation(before), c.explanation(after)
    if before_why is not None and after_why is not None:
        steps = c.compare_steps(before_why, after_why)
        if as_json:
            typer.echo(json.dumps([step.to_json() for step in steps], indent=2))
        else:
            typer.echo("\n".join([c.STEPS_HEADER, *map(str, steps)]))
        return
    rows = c.compare(c.load(before), c.load(after))
    if as_json:
        typer.echo(json.dumps([row.to_json() for row in rows], indent=2))
    else:
        typer.echo("\n".join([c.HEADER, *map(str, rows)]))
    if as_gate:
        c.gate(rows)
