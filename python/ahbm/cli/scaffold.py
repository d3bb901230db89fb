"""`ahbm new`: an algorithm to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ahbm.cli.app import app


@app.command()
def new(name: Annotated[str, typer.Argument(help="Name of the algorithm, a Python identifier.")]) -> None:
    """Write algorithms/NAME.py, its entry in ccl.yaml, and tests/test_NAME.py."""
    from ahbm.config.scaffold import new_algorithm

    for path in new_algorithm(name, Path()):
        typer.echo(f"wrote {path}")
