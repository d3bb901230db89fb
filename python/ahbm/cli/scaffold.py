"""`ahbm new`: an algorithm to start from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ahbm.cli.app import app
from ahbm.cli.options import Json


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

    written = new_algorithm(name, Path())
    if as_json:
        typer.echo(json.dumps({"files": [str(path) for path in written]}))
        return
    for path in written:
        typer.echo(f"wrote {path}")
