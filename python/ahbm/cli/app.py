"""The command line's one application, which every command adds itself to, and what all commands have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
import typer.core

from ahbm.cli.interrupts import heard, interrupted
from ahbm.errors import ConfigError


class Command(typer.core.TyperCommand):
    """A command in which an option that is given twice means both, or is refused."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Raises ConfigError (AHBM-C146) for an option that is given twice and takes one value."""
        parser: Any = self.make_parser(ctx)
        try:
            _, _, order = parser.parse_args(args=list(args))
        except Exception as error:
            # By habit of nccl-tests, -o is the operator.
            if getattr(error, "option_name", None) == "-o" and any("--op" in p.opts for p in self.params):
                vars(error)["possibilities"] = ["--op"]
            raise
        given: set[str] = set()
        for parameter in order:
            once = parameter.param_type_name == "option" and not (parameter.multiple or parameter.is_flag)
            if once and parameter.name in given:
                name = parameter.opts[-1]
                raise ConfigError(
                    "AHBM-C146",
                    f"{name} is given twice: ahbm {self.name} takes it once",
                    hint=f"give one {name}",
                )
            given.add(parameter.name)
        return super().parse_args(ctx, args)


class _Commands(typer.core.TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            with heard():
                return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            raise interrupted(stop) from stop


class _Application(typer.Typer):
    def command(self, name: str | None = None, **how: Any) -> Callable[[Any], Any]:
        return super().command(name, **{"cls": Command, **how})


app = _Application(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
