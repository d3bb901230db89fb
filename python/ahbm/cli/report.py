"""`ahbm report`: a sweep as a page."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ahbm.cli import progress
from ahbm.cli.app import app
from ahbm.cli.groups import grouped
from ahbm.cli.options import CollectiveOrPlan, Device, Json, Swept, output_option, parse_ranks
from ahbm.cli.output import fail_if_wrong
from ahbm.cli.targets import Targeted, arguments_of

if TYPE_CHECKING:
    from ahbm.runs.report import Report


@app.command(
    cls=Targeted,
    page="reports",
    examples=(
        "ahbm report all_reduce -e 64K -o report.html",
        "ahbm report all_reduce -t ring_1d --sizes 1K,64K --ranks 2,4,8 --no-explain",
    ),
)
@grouped
def report(
    context: typer.Context,
    target: CollectiveOrPlan,
    output: Annotated[Path, output_option("The page.")] = Path("report.html"),
    *,
    swept: Swept,
    numerics: Annotated[bool, typer.Option("--numerics", help="Also rounding errors and orders of addition.")] = False,
    device: Device = False,
    explain: Annotated[bool, typer.Option(help="Also where the time of the largest size went.")] = True,
    charts: Annotated[Path | None, typer.Option("--charts", help="Also every chart as a file in this folder.")] = None,
    kind: Annotated[str, typer.Option("--format", help="Of these files: svg or png.")] = "svg",
    as_json: Json = False,
) -> None:
    """Write one HTML file with charts of a sweep: speed and bound, what limits it, where the time goes.

    --ranks 8 gives the machine 8 ranks; --ranks 2,4,8 adds which algorithm is fastest at these numbers.
    """
    from ahbm.views.page import require_extra

    require_extra()
    from ahbm.runs import bench
    from ahbm.views import overview

    swept.refuse_sizes_given_twice(context)
    counts = parse_ranks(swept.ranks)
    if len(counts) > 1:
        swept = replace(swept, ranks=None)
    sweep = swept.sweep(target, arguments_of(context), device=device)
    contents = overview.gather(sweep, counts[1:] and counts, numerics, explain, progress.at)
    progress.at("drawing the page")
    page = overview.page(contents)
    page.write(output)
    progress.clear()
    written = [output, *(page.write_charts(charts, kind) if charts is not None else ())]
    if as_json:
        cells: list[Report | bench.Refused] = [*contents.reports, *contents.refused]
        facts = {"files": [str(path) for path in written]} | bench.to_json([sweep], cells, sys.argv[1:])
        typer.echo(json.dumps(facts, indent=2))
    else:
        typer.echo("\n".join(f"wrote {path}" for path in written))
    failure = bench.failure([*contents.reports, *contents.refused])
    if failure is not None:
        raise failure
    fail_if_wrong(list(contents.reports))
