"""`ahbm report`: a sweep as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ahbm.cli.app import app
from ahbm.cli.groups import grouped
from ahbm.cli.options import CollectiveOrPlan, Device, Swept, output_option, parse_ranks
from ahbm.cli.output import fail_if_wrong
from ahbm.cli.targets import Targeted, arguments_of


@app.command(cls=Targeted)
@grouped
def report(
    context: typer.Context,
    target: CollectiveOrPlan,
    output: Annotated[Path, output_option("The page.")] = Path("report.html"),
    *,
    swept: Swept,
    ranks: Annotated[
        str | None, typer.Option("--ranks", help="Also which algorithm is fastest at these numbers of ranks: 2,4,8.")
    ] = None,
    numerics: Annotated[bool, typer.Option("--numerics", help="Also rounding errors and orders of addition.")] = False,
    device: Device = False,
    explain: Annotated[bool, typer.Option(help="Also where the time of the largest size went.")] = True,
    charts: Annotated[Path | None, typer.Option("--charts", help="Also every chart as a file in this folder.")] = None,
    kind: Annotated[str, typer.Option("--format", help="Of these files: svg or png.")] = "svg",
) -> None:
    """Write one HTML file with charts of a sweep: speed and bound, what limits it, where the time goes."""
    from ahbm.views.page import require_extra

    require_extra()
    from ahbm.views import overview

    contents = overview.gather(
        swept.sweep(target, arguments_of(context), device=device), parse_ranks(ranks), numerics, explain
    )
    page = overview.page(contents)
    page.write(output)
    typer.echo(f"wrote {output}")
    for path in page.write_charts(charts, kind) if charts is not None else ():
        typer.echo(f"wrote {path}")
    fail_if_wrong(list(contents.reports))
