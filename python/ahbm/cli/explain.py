"""`ahbm explain`: why a run takes as long as it does."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ahbm.cli.app import app
from ahbm.cli.groups import grouped
from ahbm.cli.options import Asked, Json, is_plan
from ahbm.errors import ConfigError


@app.command()
@grouped
def explain(
    plan: Annotated[str | None, typer.Argument(help="A plan (.xml, .json, .et); without, --collective.")] = None,
    collective: Annotated[str | None, typer.Option("--collective", help="Explain this collective.")] = None,
    *,
    asked: Asked,
    full: Annotated[bool, typer.Option("--full", help="Every stretch of the critical path too.")] = False,
    as_json: Json = False,
) -> None:
    """Say what the latency of a collective or plan consists of: its critical path, by category and source line."""
    if (plan is None) == (collective is None) or (plan is not None and not is_plan(plan)):
        raise ConfigError(
            "AHBM-C143",
            "give either a plan or --collective",
            hint="ahbm explain --collective all_reduce --bytes 64K, or ahbm explain plan.xml --size 1M",
        )
    explanation = asked.run(collective or plan or "", data=False).explain()
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
