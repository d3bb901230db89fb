"""A `topology.yaml` that says what differs from another machine: `base: dgx_h100`, and keys of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from math import isinf
from pathlib import Path
from typing import Any

from ahbm.base.yaml_source import parse, scalar
from ahbm.errors import Site, TopologyError

KEY = "base"
DEEPEST = 8
"""Machines that may stand on each other."""
_PLAIN = re.compile(r"[A-Za-z_][\w./-]*")
"""Texts that need no quotes."""
_STATED = re.compile(rf"^[\"']?{KEY}[\"']?\s*:", re.MULTILINE)


def base_of(text: str, path: Path) -> tuple[str, dict[str, str]] | None:
    """The machine that a file stands on, by a name or a path as `load_machine` takes it, and the file's own keys as
    overrides, by their dotted paths; None where the file stands on none.

    A path is one beside the file. Raises ConfigError (AHBM-C102) for what is no YAML, TopologyError (AHBM-T002) for a
    base that is no text.
    """
    if not _STATED.search(text):
        return None
    source = parse(text, str(path))
    named = source.values.pop(KEY, None)
    if named is None:
        return None
    if not isinstance(named, str):
        raise TopologyError(
            "AHBM-T002",
            f"{KEY}: expected the name or the path of a machine, found {named!r}",
            sites=(Site(KEY, source.place((KEY,))),),
        )
    beside = path.parent / named
    is_path = named.endswith((".yaml", ".yml")) or "/" in named
    return str(beside) if is_path else named, dict(_flat(source.values))


def based_on_nothing(text: str, path: Path) -> dict[str, str]:
    """The keys of a file as overrides. Raises as `base_of`."""
    return dict(_flat(parse(text, str(path)).values))


def text_of(base: str, overrides: Mapping[str, object]) -> str:
    """A file that stands on a machine and changes these keys."""
    tree: dict[str, Any] = {}
    for key, value in overrides.items():
        *folders, last = key.split(".")
        at = tree
        for folder in folders:
            at = at.setdefault(folder, {})
        at[last] = scalar(value) if isinstance(value, str) else value
    lines = [f"# What differs from {base}: `ahbm topology {base}` describes it.", f"{KEY}: {base}"]
    lines += [f"{key}: {_flow(value)}" for key, value in tree.items()]
    return "\n".join([*lines, ""])


def whole_text(values: Mapping[str, Any]) -> str:
    """A file of these keys alone."""
    return "\n".join([*(f"{key}: {_flow(value)}" for key, value in values.items()), ""])


def laid_over(values: dict[str, Any], overrides: Mapping[str, str]) -> dict[str, Any]:
    """Values of a file, of which those at dotted paths are changed, as `base_of` gives them."""
    for key, text in overrides.items():
        *folders, last = key.split(".")
        at: Any = values
        for folder in folders:
            place = int(folder) if isinstance(at, list) else folder
            if not isinstance(at, list) and not isinstance(at.get(folder), (dict, list)):
                at[folder] = {}
            at = at[place]
        at[int(last) if isinstance(at, list) else last] = parse(f"value: {text}", KEY).values["value"]
    return values


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", _flow(value)


def _flow(value: Any) -> str:
    """A value as one line of YAML."""
    match value:
        case dict():
            return f"{{{', '.join(f'{key}: {_flow(inner)}' for key, inner in value.items())}}}"
        case list():
            return f"[{', '.join(map(_flow, value))}]"
        case float() if isinf(value):
            return ".inf" if value > 0 else "-.inf"
        case float():
            # YAML 1.1 takes 1e-09 for a text.
            mantissa, _, power = f"{value!r}".partition("e")
            return f"{mantissa}{'' if '.' in mantissa else '.0'}e{power}" if power else mantissa
        case str() if _PLAIN.fullmatch(value) and scalar(value) == value:
            return value
    return json.dumps(value)
