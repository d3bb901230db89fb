"""`ahbm explain`: why a run takes as long as it does."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ahbm.cli.app import app
from ahbm.cli.groups import grouped
from ahbm.cli.options import Asked, CollectiveOrPlan, Json
from ahbm.cli.targets import Targeted, arguments_of


@app.command(
    cls=Targeted,
    page="explain",
    examples=(
        "ahbm explain all_reduce -t npu_ring_8 --size 64K",
        "ahbm explain plan.xml --size 1M --json",
    ),
)
@grouped
def explain(
    context: typer.Context,
    target: CollectiveOrPlan,
    *,
    asked: Asked,
    full: Annotated[bool, typer.Option("--full", help="Every stretch of the critical path too.")] = False,
    as_json: Json = False,
) -> None:
    """Say what the latency of a collective or plan consists of: its critical path, by category and source line."""
    explanation = asked.open(target, args=arguments_of(context)).explain()
    if as_json:
        typer.echo(json.dumps(explanation.to_json(full), indent=2))
        return
    typer.echo(str(explanation))
    if full:
        typer.echo("the critical path from launch to end:")
        for s in explanation.stretches():
            on = f" on {s.link}" if s.link else ""
            typer.echo(
                f"  {s.start_ps / 1000:>14,.3f} .. {s.end_ps / 1000:<14,.3f} {s.category}{on}: "
                f"{s.place}, {s.what} {s.origin}".rstrip()
            )
