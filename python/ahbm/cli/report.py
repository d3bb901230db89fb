"""`ahbm report`: a sweep as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ahbm.cli.app import app
from ahbm.cli.options import Dtype, NoData, Op, Root, Settings, Topology, parse_overrides
from ahbm.cli.output import fail_if_wrong
from ahbm.errors import ConfigError


@app.command()
def report(
    collective: Annotated[str, typer.Argument(help="all_reduce, all_gather, ...; see `ahbm list collectives`.")],
    output: Annotated[Path, typer.Option("-O", "--output", help="The page.")] = Path("report.html"),
    begin: Annotated[str, typer.Option("-b", "--minbytes", help="First size.")] = "1K",
    end: Annotated[str, typer.Option("-e", "--maxbytes", help="Last size.")] = "1M",
    factor: Annotated[int, typer.Option("-f", "--stepfactor", help="Factor between sizes.")] = 4,
    algorithms: Annotated[
        list[str] | None, typer.Option("-a", "--algorithm", help="Name, or path of a module; repeatable.")
    ] = None,
    ranks: Annotated[
        str | None, typer.Option("--ranks", help="Also which algorithm is fastest at these numbers of ranks: 2,4,8.")
    ] = None,
    numerics: Annotated[bool, typer.Option("--numerics", help="Also rounding errors and orders of addition.")] = False,
    device: Annotated[
        bool, typer.Option("--device", help="Device tensors: one tile of each size on every cube.")
    ] = False,
    explain: Annotated[bool, typer.Option(help="Also where the time of the largest size went.")] = True,
    charts: Annotated[Path | None, typer.Option("--charts", help="Also every chart as a file in this folder.")] = None,
    kind: Annotated[str, typer.Option("--format", help="Of these files: svg or png.")] = "svg",
    dtype: Dtype = "f16",
    op: Op = "sum",
    root: Root = 0,
    no_data: NoData = False,
    topology: Topology = None,
    settings: Settings = None,
) -> None:
    """Write one HTML file with charts of a sweep: speed and bound, what limits it, where the time goes."""
    from ahbm import bench as b
    from ahbm.views.page import require_extra

    require_extra()
    from ahbm.views import overview

    counts = [int(count) for count in ranks.split(",") if count.strip().isdigit()] if ranks else []
    if ranks and (len(counts) != len(ranks.split(",")) or min(counts) < 1):
        raise ConfigError("AHBM-C162", f"--ranks {ranks}: no list of numbers", hint="--ranks 2,4,8")
    sweep = b.Sweep(
        collective,
        b.parse_size(begin),
        b.parse_size(end),
        factor,
        0,
        b.parse_dtype(dtype),
        op,
        root,
        tuple(algorithms or ()),
        topology,
        parse_overrides(settings),
        not no_data,
        device,
    )
    contents = overview.gather(sweep, counts, numerics, explain)
    page = overview.page(contents)
    page.write(output)
    typer.echo(f"wrote {output}")
    for path in page.write_charts(charts, kind) if charts is not None else ():
        typer.echo(f"wrote {path}")
    fail_if_wrong(list(contents.reports))
