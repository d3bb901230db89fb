"""`ahbm explore`: one collective at many other times."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from ahbm.cli.app import app
from ahbm.cli.options import Ccl, Dtype, Json, Op, Root, Settings, Topology, parse_overrides

if TYPE_CHECKING:
    from ahbm.verify import Case


@app.command()
def explore(
    collective: Annotated[str, typer.Argument(help="all_reduce, all_gather, ...; see `ahbm list collectives`.")],
    algorithm: Annotated[str | None, typer.Option("-a", "--algorithm", help="Name, or path of a module.")] = None,
    size: Annotated[str, typer.Option("-b", "--size", help="Size of one rank's array.")] = "4K",
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Seeds 0, 1, ... to try.")] = 16,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Try this seed alone: replays its failure.")] = None,
    dtype: Dtype = "f16",
    op: Op = "sum",
    root: Root = 0,
    topology: Topology = None,
    ccl: Ccl = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Vary start times, delays and orders; replay and shrink what fails."""
    from ahbm.bench import parse_dtype, parse_size
    from ahbm.collectives import COLLECTIVES
    from ahbm.errors import AhbmError, DataError
    from ahbm.exploration import explore as tried
    from ahbm.measure import prepare

    overrides = parse_overrides(settings)

    def make(nbytes: int, more: dict[str, object]) -> Case:
        return prepare(
            collective,
            algorithm,
            topology,
            bytes_per_rank=nbytes,
            dtype=parse_dtype(dtype),
            op=op,
            root=root,
            overrides={**overrides, **more},
            ccl=ccl,
        )

    case = make(parse_size(size), {})

    def shrunk(ranks: int, count: int) -> Case | None:
        chunks = COLLECTIVES[collective].chunks(ranks)
        try:
            return make(count * chunks * case.task.element.storage.itemsize, {"system.sips.count": ranks})
        except AhbmError:
            return None

    failures = [f for _, f in tried(case, range(seeds) if seed is None else [seed], shrunk) if f is not None]
    count = seeds if seed is None else 1
    if as_json:
        typer.echo(json.dumps({"seeds": count, "failures": [failure.to_json() for failure in failures]}, indent=2))
    else:
        for failure in failures:
            typer.echo(str(failure))
        typer.echo(f"{len(failures)} of {count} seeds fail")
    if failures:
        raise typer.Exit(DataError.exit_code)
