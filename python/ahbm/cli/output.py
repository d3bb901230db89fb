"""The output of commands, and the exit code of wrong results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import typer

from ahbm.cli import progress

if TYPE_CHECKING:
    from ahbm.runs.report import Report
    from ahbm.table.cases import Refused


def print_rows(
    cells: Iterable[tuple[Report | Refused, Sequence[str]]], line: Callable[[Report | Refused], str] | None = None
) -> list[Report | Refused]:
    """Prints each cell when it is known: its row of nccl-tests' table, below the names of the columns where algorithm,
    machine or the settings beside the cell are others than before; with `line`, what that makes of it, if anything.
    Gives all."""
    from ahbm.table import nccl

    found: list[Report | Refused] = []
    above: tuple[str, str, Sequence[str]] | None = None
    for cell, settings in cells:
        progress.clear()
        if line is not None:
            if text := line(cell):
                typer.echo(text)
                sys.stdout.flush()
        else:
            if above != (above := (cell.algorithm, cell.machine, settings)):
                typer.echo("\n".join(nccl.columns(cell, settings)))
            typer.echo(nccl.row(cell))
        found.append(cell)
    return found


def fail(cells: Sequence[Report | Refused]) -> None:
    """Raises the error of the first cell that failed; exits as `fail_if_wrong`."""
    from ahbm.table.cases import Refused
    from ahbm.table.running import failure

    error = failure(cells)
    if error is not None:
        raise error
    fail_if_wrong([cell for cell in cells if not isinstance(cell, Refused)])


def fail_if_wrong(reports: list[Report]) -> None:
    """Exits as for wrong results, or as for what is not supported when a check could not decide."""
    from ahbm.base.codes import UNDECIDED
    from ahbm.errors import UnsupportedError

    fail_where(not all(report.right for report in reports))
    if any(finding.code in UNDECIDED for report in reports for finding in report.findings):
        raise typer.Exit(UnsupportedError.exit_code)


def fail_where(wrong: bool) -> None:
    """Exits as for wrong results, where a result is."""
    from ahbm.errors import DataError

    if wrong:
        raise typer.Exit(DataError.exit_code)


def table(*columns: str, title: str | None = None) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE, title_justify="left")
    for column in columns:
        table.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left", no_wrap=True)
    return table


def show(table: Any) -> None:
    from rich.console import Console

    # Names and paths are for copying: wider than the terminal rather than cut.
    Console(width=1000).print(table)
