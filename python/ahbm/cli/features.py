"""`ahbm features`: what selectors learn from."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ahbm.cli import completion
from ahbm.cli.app import app
from ahbm.cli.groups import grouped
from ahbm.cli.options import Asked, Device, Json
from ahbm.cli.targets import Targeted, arguments_of
from ahbm.errors import ConfigError


class OfPrograms(Targeted):
    """What follows a script that lowers a program is the program's."""

    executes = False


@app.command(
    cls=OfPrograms,
    page="features",
    examples=(
        "ahbm features ring_allreduce tree_allreduce -t npu_ring_8 --size 1M",
        "ahbm features all_reduce --ranks 4,8 --csv",
        "ahbm features program.py 8 1",
    ),
)
@grouped
def features(
    context: typer.Context,
    targets: Annotated[
        list[str],
        typer.Argument(
            help="Algorithms; collectives, for all of their algorithms; plans; or the traces of jobs.",
            autocompletion=completion.algorithms,
            show_default=False,
        ),
    ],
    *,
    asked: Asked,
    device: Device = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated values.")] = False,
    as_json: Json = False,
) -> None:
    """Columns for a selector that learns: a row per algorithm, or per collective of a job. Nothing is simulated.

    Several -a, several -t, --ranks 2,4,8 or --set KEY=1,2 are looked at one after the other.
    """
    from ahbm.job.features import gathered

    if as_csv and as_json:
        raise ConfigError("AHBM-C146", "--csv and --json are two forms", hint="give one of them")
    args = arguments_of(context)
    found = gathered([(target, cell.options(device=device, args=args)) for cell in asked.cells() for target in targets])
    message = json.dumps(found.to_json(), indent=2) if as_json else found.csv().rstrip("\n") if as_csv else str(found)
    typer.echo(message)
    for message in (*map(str, found.warnings), *(f"note: {note}" for note in found.notes)) if as_csv else ():
        typer.echo(message, err=True)
