"""`ahbm ladder`: the quickest algorithm for every size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ahbm.cli.app import app
from ahbm.cli.options import Ccl, Dtype, Json, NoData, Root, Settings, Topology, parse_overrides


@app.command()
def ladder(
    collective: Annotated[str, typer.Argument(help="all_reduce, all_gather, ...; see `ahbm list collectives`.")],
    begin: Annotated[str, typer.Option("-b", "--minbytes", help="First size.")] = "1K",
    end: Annotated[str, typer.Option("-e", "--maxbytes", help="Last size.")] = "1M",
    factor: Annotated[int, typer.Option("-f", "--stepfactor", help="Factor between sizes.")] = 4,
    algorithms: Annotated[
        list[str] | None,
        typer.Option("-a", "--algorithm", help="Candidate: name, module or plan; repeatable. Else all configured."),
    ] = None,
    synth: Annotated[
        list[str] | None, typer.Option("--synth", help="Candidate: schedules by this method; repeatable.")
    ] = None,
    chunks: Annotated[int, typer.Option("--chunks", help="Chunks of one share of synthesized schedules.")] = 1,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the search.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write a ccl.yaml; into a folder, also an MSCCL file per range."),
    ] = None,
    dtype: Dtype = "f16",
    op: Annotated[str, typer.Option("--op", help="sum prod min max avg.")] = "sum",
    root: Root = 0,
    no_data: NoData = False,
    topology: Topology = None,
    ccl: Ccl = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Simulate all candidates over sizes and keep the quickest for each range of sizes."""
    from ahbm.bench import Sweep, parse_dtype, parse_size
    from ahbm.ladder import climb

    sweep = Sweep(
        collective,
        parse_size(begin),
        parse_size(end),
        factor,
        0,
        parse_dtype(dtype),
        op,
        root,
        tuple(algorithms or ()),
        topology,
        parse_overrides(settings),
        not no_data,
    )
    found = climb(sweep, tuple(synth or ()), chunks=chunks, seed=seed, ccl=ccl)
    written = found.save(output) if output is not None else []
    kernels = found.kernels if output is not None and output.is_dir() else ()
    if as_json:
        files = {"files": [str(path) for path in written], "kernels": list(kernels)} if written else {}
        typer.echo(json.dumps(found.to_json() | files, indent=2))
        return
    for line in found.table():
        typer.echo(line)
    for entry in found.ranges():
        most = f"{entry.max_bytes} B" if entry.max_bytes else "any size"
        typer.echo(f"# from {entry.min_bytes} B to {most}: {entry.algorithm}")
    for path in written:
        typer.echo(f"# written {path}")
    for name in kernels:
        typer.echo(f"# {name} is a kernel: it is in ccl.yaml and has no MSCCL file")
