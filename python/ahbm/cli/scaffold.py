"""`ahbm init`, `ahbm new`: files to start from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ahbm.cli.app import app
from ahbm.cli.options import Json


@app.command(
    page="quick-start",
    examples=(
        "ahbm init mine",
        "ahbm init --json",
    ),
)
def init(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of the project; made where it is missing.")
    ] = Path(),
    as_json: Json = False,
) -> None:
    """Write a working project: ccl.yaml, topology.yaml, an algorithm and its test."""
    from ahbm.config.scaffold import new_project

    _echo(new_project(folder), as_json)


@app.command(
    page="writing-an-algorithm",
    examples=(
        "ahbm new my_allreduce",
        "ahbm new my_gather --json",
    ),
)
def new(
    name: Annotated[str, typer.Argument(help="Name of the algorithm, a Python identifier.")],
    as_json: Json = False,
) -> None:
    """Write algorithms/NAME.py, its entry in ccl.yaml, and tests/test_NAME.py."""
    from ahbm.config.scaffold import new_algorithm

    _echo(new_algorithm(name, Path()), as_json)


def _echo(written: list[Path], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"files": [str(path) for path in written]}))
        return
    for path in written:
        typer.echo(f"wrote {path}")
