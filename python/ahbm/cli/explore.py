"""`ahbm explore`: one collective or plan at many other times."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from ahbm.base.codes import CHECKS
from ahbm.cli.app import app
from ahbm.cli.groups import grouped
from ahbm.cli.options import AskedSmall, CollectiveOrPlan, Json

if TYPE_CHECKING:
    from ahbm.check.case import Case


@app.command()
@grouped
def explore(
    target: CollectiveOrPlan,
    *,
    asked: AskedSmall,
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=2**32, help="Seeds 0, 1, ... to try.")] = 16,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, max=2**64 - 1, help="Try this seed alone: replays its failure.")
    ] = None,
    check: Annotated[
        str,
        typer.Option("--check", help="Checks of the program under every seed: all, or some as in `ahbm run`."),
    ] = ",".join(name for name in CHECKS if name != "divergence"),
    as_json: Json = False,
) -> None:
    """Vary start times, delays and orders; replay and shrink what fails."""
    from ahbm.check.checks import parse
    from ahbm.check.exploration import explore as tried
    from ahbm.errors import AhbmError, DataError

    case, checks = asked.open(target).case, parse(check)

    def shrunk(ranks: int, count: int) -> Case | None:
        nbytes = replace(case.request, ranks=range(ranks), count=count).nbytes
        settings = [*(asked.settings or ()), f"system.sips.count={ranks}"]
        try:
            return replace(asked, size=str(nbytes), settings=settings).open(target).case
        except AhbmError:
            return None

    failures = [f for _, f in tried(case, range(seeds) if seed is None else [seed], shrunk, checks) if f is not None]
    count = seeds if seed is None else 1
    if as_json:
        typer.echo(json.dumps({"seeds": count, "failures": [failure.to_json() for failure in failures]}, indent=2))
    else:
        for failure in failures:
            typer.echo(str(failure))
        typer.echo(f"{len(failures)} of {count} seeds fail")
    if failures:
        raise typer.Exit(DataError.exit_code)
