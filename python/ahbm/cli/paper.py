"""`ahbm paper`: the experiments behind the common representation, run again."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ahbm.cli.app import app
from ahbm.cli.options import Json


@app.command(page="paper", examples=("ahbm paper --small", "ahbm paper", "ahbm paper --json"))
def paper(
    *,
    small: Annotated[bool, typer.Option("--small", help="Fewer NPUs and sizes: some seconds.")] = False,
    as_json: Json = False,
) -> None:
    """Run the published experiments on Chakra traces of collective algorithms again, beside the published numbers."""
    from ahbm.job.paper import paper as run

    found = run(small=small)
    typer.echo(json.dumps(found.to_json(), indent=2) if as_json else str(found))
