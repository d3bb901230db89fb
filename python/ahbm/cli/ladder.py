"""`ahbm ladder`: the quickest algorithm for every size."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ahbm.cli.app import app
from ahbm.cli.groups import grouped
from ahbm.cli.options import Collective, Json, LongOp, Swept


@dataclass(frozen=True, kw_only=True)
class _Swept(Swept):
    op: LongOp = "sum"
    algorithms: Annotated[
        list[str] | None,
        typer.Option("-a", "--algorithm", help="Candidate: name, module or plan; repeatable. Else all configured."),
    ] = None


@app.command()
@grouped
def ladder(
    collective: Collective,
    *,
    swept: _Swept,
    synth: Annotated[
        list[str] | None, typer.Option("--synth", help="Candidate: schedules by this method; repeatable.")
    ] = None,
    chunks: Annotated[int, typer.Option("--chunks", help="Chunks of one share of synthesized schedules.")] = 1,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the search.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write a ccl.yaml; into a folder, also an MSCCL file per range."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Simulate all candidates over sizes and keep the quickest for each range of sizes."""
    from ahbm.runs.ladder import climb

    found = climb(swept.sweep(collective), tuple(synth or ()), chunks=chunks, seed=seed)
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
