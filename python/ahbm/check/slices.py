"""What a line of a kernel depends on: the lines that compute its operands, and the loops and conditions around it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from ahbm.base.load import parse_python
from ahbm.errors import Site

MOST = 3
"""Lines that are named beside one."""
WRITES = ("store", "post_store")
"""Calls of `tl` that write memory."""
CONTEXT = ("tl", "shape", "dtype")
"""Names that every line has, and that decide nothing about who meets whom."""
Bound = dict[str, list[tuple[int, int]]]


def depends(path: Path, lines: Sequence[int]) -> list[Site]:
    """The lines that the statements at `lines` of a file depend on, the most telling and nearest first; none for a file
    that cannot be read."""
    try:
        tree = parse_python(path)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    whys: dict[int, str] = {}
    bound: dict[ast.AST, Bound] = {}
    for _, _, at, why in sorted(one for line in lines for one in _behind(tree, line, bound)):
        if at not in lines:
            whys.setdefault(at, why)
    return [Site(why, f"{path.name}:{at}") for at, why in whys.items()][:MOST]


def _behind(tree: ast.Module, line: int, bound: dict[ast.AST, Bound]) -> list[tuple[int, int, int, str]]:
    """What the statement at a line depends on: how telling it is, how far away, its line, and why. bound: `_bound` of
    functions that were looked at."""
    around = list(_around(tree, line))
    if not around:
        return []
    statement = around[-1]
    functions: list[ast.AST] = [node for node in reversed(around) if isinstance(node, ast.FunctionDef)]
    functions.append(tree)
    for function in functions:
        if function not in bound:
            bound[function] = _bound(function)
    heads = [node for node in reversed(around[:-1]) if isinstance(node, ast.For | ast.While | ast.If)]
    # Who meets whom comes first, then whether and how often, then all else.
    names = dict.fromkeys(_directions(statement), 0)
    for name in _names(statement):
        names.setdefault(name, 2)
    for head in heads:
        for name in _names(head):
            names.setdefault(name, 3)
    found: dict[int, tuple[int, str]] = {
        head.lineno: (1, "under this condition" if isinstance(head, ast.If) else "in this loop") for head in heads
    }
    for name, order in names.items():
        if name in CONTEXT:
            continue
        lines = (bound[function].get(name, ()) for function in functions)
        places = ([at for begins, at in of if begins < statement.lineno] for of in lines)
        at = next((max(before) for before in places if before), None)
        if at is not None and at != line and found.get(at, (9,))[0] > order:
            found[at] = order, f"`{name}` is computed here"
    return [(order, abs(line - at), at, why) for at, (order, why) in found.items()]


def written(path: Path, function: str) -> tuple[list[int], list[int]]:
    """The lines of a function at which it writes memory, and the conditions under which it returns early."""
    try:
        tree = parse_python(path)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return [], []
    named = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == function]
    inside = [node for found in named[-1:] for node in ast.walk(found)]
    calls = [node for node in inside if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    writes = [
        call.lineno
        for call in calls
        if (isinstance(call.func, ast.Attribute) and call.func.attr in WRITES)
        or any(keyword.arg == "dst" for keyword in call.keywords)
    ]
    returns = [
        node.lineno
        for node in inside
        if isinstance(node, ast.If) and any(isinstance(below, ast.Return) for below in node.body)
    ]
    return sorted(set(writes)), sorted(set(returns))


def _around(tree: ast.Module, line: int) -> Iterator[ast.stmt]:
    """The statements that a line lies in, from the outermost on."""
    body: list[ast.stmt] = tree.body
    while body:
        inside = next((node for node in body if node.lineno <= line <= (node.end_lineno or node.lineno)), None)
        if inside is None:
            return
        yield inside
        body = [node for field in ("body", "orelse", "finalbody") for node in getattr(inside, field, [])]


def _names(node: ast.stmt) -> list[str]:
    """Names that a statement reads; of a loop or condition, its head's."""
    heads: list[ast.AST] = [node]
    if isinstance(node, ast.For):
        heads = [node.iter]
    elif isinstance(node, ast.While | ast.If):
        heads = [node.test]
    elif isinstance(node, ast.FunctionDef):
        heads = []
    return [
        found.id
        for head in heads
        for found in ast.walk(head)
        if isinstance(found, ast.Name) and isinstance(found.ctx, ast.Load)
    ]


def _directions(statement: ast.stmt) -> list[str]:
    """Names in the directions of a statement's messages."""
    return [
        found.id
        for call in ast.walk(statement)
        if isinstance(call, ast.Call)
        for keyword in call.keywords
        if keyword.arg == "dir"
        for found in ast.walk(keyword.value)
        if isinstance(found, ast.Name)
    ]


def _bound(function: ast.AST) -> Bound:
    """Where each name is bound in a function: where the statement begins, and the line; of a function in it, the line
    where that returns."""
    found: Bound = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.setdefault(node.id, []).append((node.lineno, node.lineno))
        elif isinstance(node, ast.FunctionDef) and node is not function:
            found.setdefault(node.name, []).append((node.lineno, node.body[-1].lineno))
    return found
