"""The output of commands, and the exit code of wrong results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from ahbm.runs.report import Report


def fail_if_wrong(reports: list[Report]) -> None:
    """Exits as for wrong results, or as for what is not supported when a check could not decide."""
    from ahbm.errors import UnsupportedError

    fail_where(not all(report.right for report in reports))
    if any(report.findings for report in reports):
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
