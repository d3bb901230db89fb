"""The `ahbm` command. `ahbm.cli.app` loads the module of the command that is asked for, and that command what it needs.

May import every package. Holds no decisions: each command is a call of the package that it names.
"""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from ahbm.base.foreign import advised
from ahbm.base.host import exhausted
from ahbm.base.load import forget_files_read
from ahbm.cli import progress
from ahbm.cli.app import app
from ahbm.cli.excerpts import Excerpts
from ahbm.cli.stdout import unfailing, written
from ahbm.errors import AhbmError, InterruptedRun

__all__ = ["app", "main"]

INTERRUPTED = InterruptedRun.exit_code
VERBOSE = ("-v", "-vv", "--verbose")


def main() -> None:
    """Runs the command line; an AhbmError becomes text (or JSON with --json) on stderr and its exit code.

    So do memory that runs out (AHBM-B301), and standard output that cannot be written (AHBM-C141); one that nobody
    reads any more ends it in silence.
    Standard error that cannot be written changes no exit code.
    """
    forget_files_read()
    progress.begin()
    with unfailing():
        try:
            with written():
                app(hoisted(sys.argv[1:]), prog_name="ahbm")
        except (AhbmError, MemoryError) as raised:
            progress.clear()
            error = _advised(raised) if isinstance(raised, AhbmError) else exhausted(raised)
            as_json = not {"--json", "--json-lines"}.isdisjoint(sys.argv[1:])
            text = json.dumps(error.to_json(), indent=2) if as_json else Excerpts().below(_text(error))
            print(text, file=sys.stderr, flush=True)
            sys.exit(error.exit_code)


def _advised(error: AhbmError) -> AhbmError:
    """The error, with what a file is and which command reads it where that is another one."""
    command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    found = advised(error.findings, sys.argv[2:], command)
    return error if found == error.findings else error.with_findings(found)


def hoisted(args: list[str]) -> list[str]:
    """`args` with -v, -vv and --verbose first, wherever they stand; those behind a script are the script's."""
    end = next((at for at, arg in enumerate(args) if arg.endswith(".py")), len(args))
    wanted = [arg for arg in args[:end] if arg in VERBOSE]
    return [*wanted, *(arg for arg in args[:end] if arg not in VERBOSE), *args[end:]]


def _verbose(count: int) -> None:
    if count:
        import logging

        level = logging.DEBUG if count > 1 else logging.INFO
        logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s", stream=sys.stderr)
        logging.getLogger("ahbm").setLevel(level)


def _text(error: AhbmError) -> str:
    if isinstance(error, InterruptedRun):
        return f"{error.code} {error.message}"
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
    verbose: Annotated[
        int,
        typer.Option(
            "-v",
            "--verbose",
            count=True,
            callback=_verbose,
            show_default=False,
            help="Say on standard error what is chosen and why; -vv: also what the core does. May stand anywhere.",
        ),
    ] = 0,
) -> None:
    """Collective algorithms on an emulated multi-chip accelerator: the right bytes, the time, and the reasons."""
