"""Writes docs/api.md from the docstrings of the installed `ahbm`; `--check` only compares, and exits with 1.

python scripts/api.py [--check]
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import fields as fields_of
from dataclasses import is_dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import ahbm
import ahbm.distributed
import ahbm.errors

PAGE = Path(__file__).resolve().parent.parent / "docs/api.md"
HEAD = """# The Python interface

`help(ahbm.run)` shows all of a name: its arguments, units and errors. [Quick start](quick-start.md) and the
[examples](../examples) show how these are used, [Errors](errors.md) what each code means.
"""
SHOWN = {
    "Emulator": ("load", "on", "world_size", "settings", "algorithms", "refusals", "plan", "bound"),
    "Machine": (
        *("from_yaml", "changed", "describe", "svg", "hash", "origin", "overrides", "parameters", "topology", "sips"),
        *("cubes", "pes", "cube_w", "cube_h", "sip_w", "sip_h", "sip_d", "links_between_sips", "sip_edges", "library"),
        *("protocols", "bands", "assumed", "switch_reduces", "kernel_ps"),
    ),
    "Explanation": (
        *("bound_ps", "latency_ps", "timeline_hash", "by_category", "agents_by_category", "steps", "kinds", "ranks"),
        *("links", "collisions", "advice", "advise", "what_if", "stretches", "operations", "path", "machine"),
        *("to_json", "text"),
    ),
    "Report": (
        *("explain", "inspect", "numerics", "program", "write_timeline", "write_trace", "right", "program_hash"),
        *("bound_ps", "bound_ns", "percent_of_bound", "limited_by", "bound_is_tightest", "to_json", "from_json"),
    ),
    "Space": ("of", "spaces", "machines", "count", "to_json"),
    "Table": (
        *("unit", "rows", "column", "numbers", "to_arrow", "to_pandas", "to_polars", "csv", "to_csv", "to_jsonl"),
        *("best", "pareto", "plot", "cells", "reports", "refused", "wrong", "failed"),
    ),
}
"""Of classes that serve the package too, what is for others; `help` has the rest."""

CALLS = """`group` is all ranks where it is None. With `async_op=True` a call returns a `Work` at once, else None
when it has ended.
"""
SHORT = (
    ("group: ProcessGroup | None = None", "group=None"),
    ("async_op: bool = False) -> Work | None", "async_op=False)"),
    ("op: object = <ReduceOp.SUM: 'sum'>", "op=ReduceOp.SUM"),
)
"""What the signatures of collectives have in common, and how the page spells it."""


def render() -> str:
    """The page as it should be."""
    values = {name: getattr(ahbm, name) for name in sorted(ahbm.__all__, key=str.lower)}
    parts = [HEAD, "## What you call\n"]
    parts += [entry(f"ahbm.{name}", value) for name, value in values.items() if not isinstance(value, type)]
    parts += ["## What you are given, or give\n"]
    kinds = {name: value for name, value in values.items() if isinstance(value, type)}
    parts += [entry(f"ahbm.{name}", value) for name, value in kinds.items() if not issubclass(value, Exception)]
    parts += ["## ahbm.distributed\n", f"{first(ahbm.distributed)} As `import ahbm.distributed as dist`.\n", CALLS]
    listed = public(ahbm.distributed)
    calls = "\n".join(member(name, value) for name, value in listed if not isinstance(value, type)) + "\n"
    for long, short in SHORT:
        calls = calls.replace(long, short)
    parts += [calls]
    parts += [entry(f"ahbm.distributed.{name}", value) for name, value in listed if isinstance(value, type)]
    parts += ["## ahbm.errors\n", f"{first(ahbm.errors)} [Errors](errors.md) has the families. Beside them:\n"]
    faults = [(name, value) for name, value in public(ahbm.errors) if is_fault(value)]
    families = {*ahbm.errors.FAMILIES.values()} - {ahbm.errors.AhbmError}
    parts += ["\n".join(fault(name, value) for name, value in faults if value not in families) + "\n"]
    parts += [entry(f"ahbm.errors.{name}", getattr(ahbm.errors, name)) for name in ("Finding", "Site")]
    return "\n".join(part for part in parts if part)


def is_fault(value: Any) -> bool:
    """Whether it is an exception of a family of its own: those that are also a built-in one are `ProgramError`s."""
    return isinstance(value, type) and issubclass(value, Exception) and ahbm.errors.ProgramError not in value.__bases__


def fault(name: str, kind: Any) -> str:
    """A line of the list of exceptions."""
    code = getattr(kind, "exit_code", None)
    return f"- `{name}`{f', exit code {code}' if isinstance(code, int) else ''}: {first(kind)}"


def public(module: ModuleType) -> list[tuple[str, Any]]:
    """Functions and classes of a module without an underscore that it defines itself or lists, by name."""
    names = getattr(module, "__all__", None) or [
        name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
    ]
    found = [(name, getattr(module, name)) for name in names if not name.startswith("_")]
    return sorted((pair for pair in found if callable(pair[1])), key=lambda pair: pair[0].lower())


def entry(name: str, value: Any, level: int = 3) -> str:
    """One name: its signature, the first paragraph of its docstring, and the members of a class."""
    if isinstance(value, str | ModuleType):
        return ""
    lines = [f"{'#' * level} {name}\n"]
    if not isinstance(value, type):
        lines.append(f"`{name}{signature(value)}`\n")
    lines.append(f"{first(value)}\n")
    if isinstance(value, type) and not issubclass(value, BaseException):
        rows = [f"- fields: {', '.join(fields)}"] if (fields := declared(value)) else []
        rows += [f"- {', '.join(f'`{each.name}`' for each in value)}"] if issubclass(value, Enum) else []
        rows += [member(key, each) for key, each in members(value)]
        lines += [*rows, ""] if rows else []
    return "\n".join(lines)


def members(kind: type) -> list[tuple[str, Any]]:
    """Public methods and properties of a class and of its bases in ahbm, in the order in which they are written."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("ahbm"):
            found |= {name: value for name, value in vars(base).items() if not name.startswith("_")}
    # Native types have no order of their own.
    names = sorted(found) if kind.__module__ == "ahbm._core" else list(found)
    if kind.__name__ in SHOWN:
        names = [name for name in SHOWN[kind.__name__] if name in found]
    known = [(name, inspect.getattr_static(kind, name)) for name in names]
    return [(name, value) for name, value in known if first(value) and not isinstance(value, Enum)]


def declared(kind: type) -> list[str]:
    """The public fields of a dataclass, with their types."""
    if not is_dataclass(kind):
        return []
    return [f"`{field.name}: {field.type}`" for field in fields_of(kind) if not field.name.startswith("_")]


def member(name: str, value: Any) -> str:
    """A line of the list of members."""
    function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
    called = signature(function) if callable(function) else ""
    for own in ("self, /", "self", "cls", "/"):
        called = called.replace(f"({own}, ", "(").replace(f"({own})", "()")
    return f"- `{name}{called}`: {first(function)}"


class Spelled:
    """An annotation as it was written."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def signature(value: Any) -> str:
    """The parameters as they were written; `(...)` where nobody knows them."""
    try:
        found = inspect.signature(value)
    except (ValueError, TypeError):
        return "(...)"
    parameters = [p.replace(annotation=spelled(p.annotation)) for p in found.parameters.values()]
    returned = spelled(found.return_annotation)
    text = str(found.replace(parameters=parameters, return_annotation=returned))
    return text.replace("(/, ", "(").replace("(/)", "()")


def spelled(annotation: Any) -> Any:
    """An annotation for `Signature`, which quotes texts."""
    return Spelled(annotation) if isinstance(annotation, str) and annotation else annotation


def first(value: Any) -> str:
    """The first paragraph of a docstring, in one line; empty for what has none of its own."""
    doc = value.__doc__ if isinstance(value, type | ModuleType) else getattr(value, "__doc__", None)
    if not isinstance(doc, str) or isinstance(value, int | float | str | tuple | dict | list | set | frozenset):
        return ""
    return " ".join(inspect.cleandoc(doc).partition("\n\n")[0].split())


def main(*arguments: str) -> int:
    """Writes or compares the page; the exit code."""
    new = render()
    if "--check" in arguments:
        old = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        if old != new:
            print("docs/api.md is not what the docstrings say: run python scripts/api.py", file=sys.stderr)
        return int(old != new)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
