"""`ahbm numerics`: rounding errors and orders of addition."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ahbm.cli.app import app
from ahbm.cli.options import Ccl, Dtype, Json, Op, Root, Settings, Topology, parse_overrides


@app.command()
def numerics(
    collective: Annotated[str, typer.Argument(help="all_reduce, reduce_scatter or reduce.")] = "all_reduce",
    algorithm: Annotated[str | None, typer.Option("-a", "--algorithm", help="Name, or path of a module.")] = None,
    size: Annotated[str, typer.Option("-b", "--bytes", "--size", help="Size of one rank's array.")] = "4K",
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Sets of random numbers.")] = 4,
    device: Annotated[
        bool, typer.Option("--device", help="Device tensors: one tile of the size on every cube.")
    ] = False,
    dtype: Dtype = "f16",
    op: Op = "sum",
    root: Root = 0,
    topology: Topology = None,
    ccl: Ccl = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Say how exact a reduction is, in which order it adds, and whether its bits depend on rank, run or size."""
    import ahbm
    from ahbm.bench import parse_dtype, parse_size
    from ahbm.numerics import numerics as measure

    found = measure(
        collective,
        algorithm,
        topology,
        bytes_per_rank=None if device else parse_size(size),
        bytes_per_pe=parse_size(size) if device else None,
        placement=ahbm.DPPolicy(cube="row_wise") if device else None,
        dtype=parse_dtype(dtype),
        op=op,
        root=root,
        seeds=seeds,
        overrides=parse_overrides(settings),
        ccl=ccl,
    )
    typer.echo(json.dumps(found.to_json(), indent=2) if as_json else str(found))
