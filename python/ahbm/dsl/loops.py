"""The loops around the lines of a program: their variables tell one execution of a statement from the others."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from functools import lru_cache

MOST = 4
"""Variables that are told; those of the innermost loops."""


def loops(path: str) -> dict[int, tuple[str, ...]]:
    """By line, the variables of the `for` loops around it in its function, outermost first; lines with none are absent.

    A variable whose name begins with an underscore is not meant to be looked at.
    Empty for a file that cannot be read, or is no Python.
    """
    linecache.checkcache(path)
    return _loops("".join(linecache.getlines(path)))


@lru_cache(maxsize=32)
def _loops(source: str) -> dict[int, tuple[str, ...]]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    found: dict[int, tuple[str, ...]] = {}
    # Outer statements come first, so that inner ones overwrite what they say.
    pending: list[tuple[ast.AST, tuple[str, ...]]] = [(tree, ())]
    while pending:
        node, around = pending.pop()
        if not isinstance(node, ast.For | ast.AsyncFor | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            pending += [(child, around) for child in ast.iter_child_nodes(node)]
            continue
        inner: tuple[str, ...] = ()
        if isinstance(node, ast.For | ast.AsyncFor):
            inner = (*around, *(name for name in _names(node.target) if name not in around))
        last = node.body[-1]
        found |= dict.fromkeys(range(node.body[0].lineno, (last.end_lineno or last.lineno) + 1), inner[-MOST:])
        inside = set(node.body)
        pending += [(child, inner if child in inside else around) for child in ast.iter_child_nodes(node)]
    return {line: names for line, names in found.items() if names}


def _names(target: ast.expr) -> Iterator[str]:
    names = (node.id for node in ast.walk(target) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return (name for name in names if not name.startswith("_"))
