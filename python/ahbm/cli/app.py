"""The command line's one application, which every command adds itself to."""

from __future__ import annotations

from typing import Any

import typer
import typer.core

from ahbm.cli.interrupts import heard, interrupted


class _Commands(typer.core.TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            with heard():
                return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            raise interrupted(stop) from stop


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
