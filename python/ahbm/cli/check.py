"""`ahbm check`: algorithms read from files."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ahbm.cli.app import app
from ahbm.cli.options import Json, Lenient, parse_slots


@app.command()
def check(
    files: Annotated[
        list[str],
        typer.Argument(help="MSCCL-IR (.xml), MSCCL++ plans (.json), Chakra traces (PREFIX.et, or a folder)."),
    ],
    slots: Annotated[str, typer.Option("--slots", help="Messages a queue holds: a number, or inf.")] = "2",
    orders: Annotated[int, typer.Option("--orders", min=1, help="Orders of the thread blocks to try.")] = 4,
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=2**64 - 1, help="Chooses the random ones among the orders.")
    ] = 0,
    quirks: Annotated[bool, typer.Option("--quirks", help="Follow the known defects of a format's runtime.")] = False,
    lenient: Lenient = False,
    limits: Annotated[
        list[str] | None, typer.Option("--limit", metavar="NAME=N", help="Raise a limit of the reader; repeatable.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check algorithms read from files: correct, wrong, deadlock, race, ...; the exit code tells which."""
    from ahbm import check as c

    settings = c.Settings(parse_slots(slots), orders, quirks, c.parse_limits(limits or ()), seed, lenient)
    verdicts = set()
    for checked in c.check_files(files, settings):
        typer.echo(json.dumps(checked.to_json()) if as_json else str(checked))
        verdicts.add(checked.verdict)
    raise typer.Exit(c.exit_code(verdicts))
