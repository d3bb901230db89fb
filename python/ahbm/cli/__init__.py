"""The `ahbm` command. What only one command needs is imported inside it: `ahbm --help` stays quick."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

# Each adds its commands to the application.
from ahbm.cli import (  # noqa: F401
    bench,
    check,
    compare,
    convert,
    explain,
    explore,
    inspect,
    ladder,
    numerics,
    report,
    run,
    scaffold,
    synth,
)
from ahbm.cli.app import app
from ahbm.errors import AhbmError

__all__ = ["app", "main"]


def main() -> None:
    """Runs the command line; an AhbmError becomes text (or JSON with --json) on stderr and its exit code."""
    as_json = "--json" in sys.argv[1:]
    try:
        app(prog_name="ahbm")
    except AhbmError as error:
        print(json.dumps(error.to_json(), indent=2) if as_json else _told(error), file=sys.stderr)
        sys.exit(error.exit_code)


def _told(error: AhbmError) -> str:
    text = f"{type(error).__name__}: {error}"
    cause = error.__cause__
    if cause is not None and not isinstance(cause, KeyboardInterrupt):
        text += f"\n  caused by {type(cause).__name__}: {cause}"
    return text


def _version(wanted: bool) -> None:
    if wanted:
        import ahbm

        typer.echo(f"ahbm {ahbm.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Collective algorithms on an emulated multi-chip accelerator: the right bytes, the time, and the reasons."""
