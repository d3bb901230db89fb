"""`ahbm bench`: a collective over sizes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ahbm.cli.app import app
from ahbm.cli.options import Check, Dtype, Json, NoData, Op, Root, Settings, Topology, parse_overrides
from ahbm.cli.output import fail_if_wrong


@app.command()
def bench(
    collective: Annotated[str, typer.Argument(help="all_reduce, all_gather, ...; see `ahbm list collectives`.")],
    begin: Annotated[str, typer.Option("-b", "--minbytes", help="First size.")] = "256",
    end: Annotated[str, typer.Option("-e", "--maxbytes", help="Last size.")] = "1M",
    factor: Annotated[int, typer.Option("-f", "--stepfactor", help="Factor between sizes.")] = 2,
    step: Annotated[str, typer.Option("-i", "--stepbytes", help="Bytes between sizes, instead of a factor.")] = "0",
    dtype: Dtype = "f16",
    op: Op = "sum",
    root: Root = 0,
    algorithms: Annotated[
        list[str] | None, typer.Option("-a", "--algorithm", help="Name, or path of a module; repeatable.")
    ] = None,
    device: Annotated[
        bool, typer.Option("--device", help="Device tensors: one tile of each size on every cube (all_reduce).")
    ] = False,
    no_data: NoData = False,
    check: Check = None,
    topology: Topology = None,
    settings: Settings = None,
    baseline: Annotated[
        Path | None, typer.Option("--gate", help="Fail when anything is slower than in this file (--json of then).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Sweep a collective over sizes; nccl-tests' columns, simulated times."""
    from ahbm import bench as b
    from ahbm import compare as c

    expected = c.load(baseline) if baseline is not None else None

    sweep = b.Sweep(
        collective,
        b.parse_size(begin),
        b.parse_size(end),
        factor,
        b.parse_size(step),
        b.parse_dtype(dtype),
        op,
        root,
        tuple(algorithms or ()),
        topology,
        parse_overrides(settings),
        not no_data,
        device,
        check or False,
    )
    reports = []
    if as_json:
        reports = list(b.measure(sweep))
        typer.echo(json.dumps(b.to_json(sweep, reports, sys.argv[1:]), indent=2))
    else:
        typer.echo("\n".join(b.header(sweep)))
        for report in b.measure(sweep):
            if not reports or reports[-1].algorithm != report.algorithm:
                typer.echo("\n".join(b.columns(report)))
            typer.echo(b.row(report))
            reports.append(report)
        typer.echo("\n".join(b.footer(reports)))
    if expected is not None:
        c.gate(c.compare(expected, reports))
    fail_if_wrong(reports)
