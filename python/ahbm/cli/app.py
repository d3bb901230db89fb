"""The command line's one application, which every command adds itself to, and what all commands have in common."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from importlib import import_module
from typing import Any

import typer
import typer.core
import typer.main

from ahbm.base.documentation import page
from ahbm.cli.interrupts import interrupted, interruptible
from ahbm.errors import ConfigError

PANELS = {
    "Run": ("run", "bench", "sweep", "report", "astra"),
    "Check": ("check", "explore", "numerics"),
    "Understand": ("explain", "inspect", "view", "compare", "features", "paper"),
    "Build": ("init", "new", "synth", "ladder", "tune", "convert", "job", "plan"),
    "Machines, and what there is": ("list", "topology", "calibrate", "probe"),
}
"""The commands in the order of `ahbm --help`."""
MODULES = {"init": "scaffold", "new": "scaffold", "list": "listing", "topology": "listing", "probe": "listing"}
"""The modules of the commands that are not called as their module is."""


_TYPED = "ahbm.typed"


def spelled(context: Any, name: str) -> str:
    """An option by the name by which it is on the command line: a message says it as the user does."""
    (parameter,) = (parameter for parameter in context.command.params if parameter.name == name)
    names = [*parameter.opts, *parameter.secondary_opts]
    for word in context.meta.get(_TYPED, ()):
        for option in names:
            if word.partition("=")[0] == option or (len(option) == 2 and word.startswith(option)):
                return str(option)
    return str(parameter.opts[-1])


class Command(typer.core.TyperCommand):
    """A command in which an option that is given twice means both, or is refused."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """The examples, one line each, and the page of the documentation."""
        *examples, name = str(self.epilog).splitlines()
        with formatter.section("Examples"):
            formatter.write("".join(f"  {line}\n" for line in examples))
        formatter.write(f"\nMore: {page(name)}\n")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Raises ConfigError (AHBM-C146) for an option that is given twice and takes one value."""
        if ctx.resilient_parsing:  # a line that is still being written
            return super().parse_args(ctx, args)
        ctx.meta[_TYPED] = list(args)
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
                name = spelled(ctx, parameter.name)
                raise ConfigError(
                    "AHBM-C146",
                    f"{name} is given twice: ahbm {self.name} takes it once",
                    hint=f"give one {name}",
                )
            given.add(parameter.name)
        return super().parse_args(ctx, args)


class _Commands(typer.core.TyperGroup):
    """The commands, each of which is loaded when it is looked up: a user waits for one of them, not for all."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for names in PANELS.values() for name in names]

    def get_command(self, ctx: Any, name: str) -> Any:
        listed = self.list_commands(ctx)
        if name not in self.commands:
            # For a name that does not exist, the nearest one of all commands is suggested.
            for each in [name] if name in listed else listed:
                import_module(f"ahbm.cli.{MODULES.get(each, each)}")
            # Those that were made before are not made again: help asks for one after the other.
            fresh = copy(app)
            fresh.registered_commands = app.registered_commands[len(self.commands) :]
            self.commands.update(typer.main.get_group(fresh).commands)
        return super().get_command(ctx, name)

    def invoke(self, ctx: Any) -> Any:
        try:
            with interruptible():
                return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            raise interrupted(stop) from stop

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, self.list_commands(ctx)))
        for panel, names in PANELS.items():
            with formatter.section(panel):
                about = {name: self.get_command(ctx, name).help.partition("\n\n")[0] for name in names}
                formatter.write_dl([(name.ljust(width), " ".join(text.split())) for name, text in about.items()])


class _Application(typer.Typer):
    def command(
        self, name: str | None = None, *, page: str = "", examples: tuple[str, ...] = (), **how: Any
    ) -> Callable[[Any], Any]:
        """A command with examples, and with the page of `docs/` that has more."""
        return super().command(name, **{"cls": Command, **how}, epilog="\n".join([*examples, page]))


app = _Application(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
