"""Which arguments of a command line are the command's, and which a script's.

What follows the name of a script is the script's. A script that lowers programs shares the line with the command: the
options that the command knows are the command's wherever they stand, but those of `THEIRS`; the rest is the script's,
and so is everything after `--`.
"""

from __future__ import annotations

from typing import Any

from ahbm.cli.app import Command
from ahbm.errors import ConfigError

THEIRS = ("--instances", "--protocol", "--name", "--ranks")
"""Options that programs of the languages have, and with which they lower."""
_KEY = "ahbm.script"


class Targeted(Command):
    """A command whose first positional argument may be a script; `arguments_of` gives the script's arguments."""

    executes = True
    """Whether a script that lowers no program is run, so that all that follows it is its own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        from ahbm.dsl.script import imports_language

        at = self._first_positional(args)
        if at is not None and self.executes:
            from ahbm.source.located import refuse_kernel

            refuse_kernel(args[at])
        lowers = at is not None and imports_language(args[at])
        if at is not None and (lowers or (self.executes and args[at].endswith(".py"))):
            rest = args[at + 1 :]
            own, theirs = self._shared(rest) if lowers else ([], rest)
            ctx.meta[_KEY] = theirs
            args = [*args[: at + 1], *own]
        return super().parse_args(ctx, args)

    def _takes_value(self) -> dict[str, bool]:
        """Every option of the command, and whether a value follows it."""
        return {
            name: not getattr(parameter, "is_flag", False)
            for parameter in self.params
            for name in (*parameter.opts, *parameter.secondary_opts)
            if name.startswith("-")
        }

    def _first_positional(self, args: list[str]) -> int | None:
        options, at = self._takes_value(), 0
        while at < len(args):
            name, equals, _ = args[at].partition("=")
            if not args[at].startswith("-") or args[at] == "-":
                return at
            if args[at] == "--":
                return at + 1 if at + 1 < len(args) else None
            at += 2 if options.get(name) and not equals else 1
        return None

    def _shared(self, rest: list[str]) -> tuple[list[str], list[str]]:
        options = {name: value for name, value in self._takes_value().items() if name not in THEIRS}
        own: list[str] = []
        theirs: list[str] = []
        at = 0
        while at < len(rest):
            if rest[at] == "--":
                return own, [*theirs, *rest[at + 1 :]]
            name, equals, _ = rest[at].partition("=")
            if name in options:
                size = 2 if options[name] and not equals else 1
                own += rest[at : at + size]
                at += size
            else:
                theirs.append(rest[at])
                at += 1
        return own, theirs


def arguments_of(context: Any) -> tuple[str, ...]:
    """The arguments of the script that the command line names."""
    return tuple(context.meta.get(_KEY, ()))


def refuse_arguments(context: Any, target: str) -> None:
    """Raises ConfigError (AHBM-C146) for arguments behind something that is no script."""
    if context.args:
        raise ConfigError("AHBM-C146", f"{' '.join(context.args)}: only scripts take arguments, {target} is none")
