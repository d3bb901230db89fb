"""`ahbm numerics`: rounding errors and orders of addition."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ahbm.cli import progress
from ahbm.cli.app import app
from ahbm.cli.groups import grouped
from ahbm.cli.options import AskedSmall, CollectiveOrPlan, Device, Json


@app.command(
    page="numerics",
    examples=(
        "ahbm numerics all_reduce -d bf16",
        "ahbm numerics reduce_scatter -a ring_reduce_scatter --seeds 8",
    ),
)
@grouped
def numerics(
    target: CollectiveOrPlan = "all_reduce",
    *,
    asked: AskedSmall,
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=2**32, help="Sets of random numbers.")] = 4,
    device: Device = False,
    as_json: Json = False,
) -> None:
    """Say how exact a reduction is, in which order it adds, and whether its bits depend on rank, run or size."""
    from ahbm.check.numerics import numerics as measure

    case = asked.open(target, device=device).case
    found = measure(case, seeds, progress.at)
    progress.clear()
    message = "\n".join([str(found), *(f"note: {note}" for note in case.overruled)])
    typer.echo(json.dumps(found.to_json(), indent=2) if as_json else message)
