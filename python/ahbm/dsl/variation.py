"""Scripts with other arguments: what is tried when a program is tuned over its own arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from ahbm.dsl.script import Script
from ahbm.errors import ConfigError

MOST = 4096
"""Variations of one script."""


def parse_ranges(given: Sequence[str]) -> dict[str, list[str]]:
    """`["instances=1,2,4"]` as values by name. Raises ConfigError (AHBM-C177)."""
    found: dict[str, list[str]] = {}
    for text in given:
        name, equals, values = text.partition("=")
        listed = [value.strip() for value in values.split(",")]
        if not re.fullmatch(r"\w[\w-]*", name) or not equals or not all(listed):
            raise ConfigError("AHBM-C177", f"--vary {text}: no NAME=VALUE,VALUE", hint="--vary instances=1,2,4,8")
        found[name] = list(dict.fromkeys([*found.get(name, []), *listed]))
    return found


def varied(script: Script, ranges: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, Script]]:
    """Every combination of the values, as a name and a script.

    A name in braces among the arguments (`{instances}`) is replaced; without one, `--name value` is set. Raises
    ConfigError (AHBM-C177) for more than `MOST` combinations.
    """
    count = 1
    for values in ranges.values():
        count *= len(values)
    if count > MOST:
        raise ConfigError("AHBM-C177", f"{count} variations of {script}: at most {MOST} are tried")
    for values in product(*ranges.values()):
        args = list(script.args)
        for name, value in zip(ranges, values, strict=True):
            args = _put(args, name, value)
        label = ",".join(f"{name}={value}" for name, value in zip(ranges, values, strict=True))
        yield label.replace(".", "_"), replace(script, args=tuple(args))


def _put(args: list[str], name: str, value: str) -> list[str]:
    mark, option = f"{{{name}}}", f"--{name}"
    if any(mark in arg for arg in args):
        return [arg.replace(mark, value) for arg in args]
    found: list[str] = []
    skip = False
    for arg in args:
        if skip:
            skip = False
        elif arg == option:
            skip = True
        elif not arg.startswith(f"{option}="):
            found.append(arg)
    return [*found, option, value]
