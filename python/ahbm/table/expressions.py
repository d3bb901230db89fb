"""Columns that are computed of others: arithmetic as people write it, of the numbers of a row, here or in SQL."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ahbm.base.arguments import shown
from ahbm.errors import ConfigError

LONGEST = 1000
"""Characters of an expression."""
DEEPEST = 50
"""Operations within each other."""
_OPERATIONS: dict[type, tuple[str, Callable[[float, float], float]]] = {
    ast.Add: ("({} + {})", lambda a, b: a + b),
    ast.Sub: ("({} - {})", lambda a, b: a - b),
    ast.Mult: ("({} * {})", lambda a, b: a * b),
    ast.Div: ("({} / nullif({}, 0))", lambda a, b: a / b if b else math.nan),
    ast.Pow: ("pow({}, {})", lambda a, b: _power(a, b)),
}
_FUNCTIONS: dict[str, tuple[int | None, str, Callable[..., float]]] = {
    "min": (None, "least", min),
    "max": (None, "greatest", max),
    "abs": (1, "abs", abs),
    "ceil": (1, "ceil", math.ceil),
    "floor": (1, "floor", math.floor),
    "sqrt": (1, "sqrt", lambda a: math.sqrt(a) if a >= 0 else math.nan),
    "log2": (1, "log2", lambda a: math.log2(a) if a > 0 else math.nan),
}
KNOWN = "numbers, columns, + - * / **, parentheses, min, max, abs, ceil, floor, sqrt, log2"


def _power(base: float, exponent: float) -> float:
    try:
        found = float(base) ** float(exponent)
    except (OverflowError, ZeroDivisionError):
        return math.nan
    return math.nan if isinstance(found, complex) else found


@dataclass(frozen=True)
class Expression:
    """Arithmetic on columns. Nothing of Python is executed: the text is read, and what it says is computed."""

    text: str
    tree: ast.expr

    @staticmethod
    def of(name: str, text: object) -> Expression:
        """Raises ConfigError (AHBM-C185) for what is no such arithmetic."""
        written = str(text)
        try:
            tree = ast.parse(written.strip(), mode="eval").body if len(written) <= LONGEST else None
            for node in ast.walk(tree) if tree is not None else ():
                if isinstance(node, ast.Constant) and isinstance(node.value, int):
                    float(node.value)
        except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
            tree = None
        if isinstance(text, bool) or tree is None:
            raise ConfigError("AHBM-C185", f"{name}: {shown(text)} is no expression", hint=KNOWN)
        found = Expression(written, tree)
        found._walk(name, tree, 0)
        return found

    def _walk(self, name: str, node: ast.expr, deep: int) -> None:
        inner: list[ast.expr]
        match node:
            case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
                inner = []
            case ast.Name() | ast.Attribute() if path(node):
                inner = []
            case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
                inner = [node.operand]
            case ast.BinOp() if type(node.op) in _OPERATIONS:
                inner = [node.left, node.right]
            case ast.Call(func=ast.Name(id=function), keywords=[]) if function in _FUNCTIONS and node.args:
                wanted = _FUNCTIONS[function][0]
                inner = node.args if wanted in (None, len(node.args)) else [ast.Starred(node)]
            case _:
                raise ConfigError("AHBM-C185", f"{name}: {ast.unparse(node)[:80]} is no part of it", hint=KNOWN)
        if deep > DEEPEST:
            raise ConfigError("AHBM-C185", f"{name}: more than {DEEPEST} operations within each other")
        for one in inner:
            self._walk(name, one, deep + 1)

    @property
    def columns(self) -> list[str]:
        """The columns that it names, in order."""
        outer: dict[str, None] = {}

        def walk(node: ast.expr) -> None:
            found = path(node)
            if found:
                outer[found] = None
            for child in [] if found else ast.iter_child_nodes(node):
                if isinstance(child, ast.expr) and not (isinstance(node, ast.Call) and child is node.func):
                    walk(child)

        walk(self.tree)
        return list(outer)

    def value(self, row: Mapping[str, Any]) -> float | None:
        """Of a row; None where it lacks a number."""
        found = _value(self.tree, row)
        return None if found is None or not math.isfinite(found) else float(found)

    def sql(self, column: Callable[[str], str]) -> str:
        """As an expression of DuckDB, null where a row lacks a number."""
        # What is no finite number is none.
        text = f"try({_sql(self.tree, column)})"
        return f"(case when isfinite({text}) then {text} end)"


def path(node: ast.expr) -> str:
    """A dotted name; empty for what is none."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and path(node.value):
        return f"{path(node.value)}.{node.attr}"
    return ""


def _value(node: ast.expr, row: Mapping[str, Any]) -> float | None:
    if isinstance(node, ast.Constant):
        assert isinstance(node.value, int | float)
        return float(node.value)
    if name := path(node):
        found = row.get(name)
        return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None
    if isinstance(node, ast.UnaryOp):
        inner = _value(node.operand, row)
        return None if inner is None else -inner if isinstance(node.op, ast.USub) else inner
    if isinstance(node, ast.BinOp):
        sides = [_value(node.left, row), _value(node.right, row)]
        return None if None in sides else _OPERATIONS[type(node.op)][1](*sides)  # type: ignore[arg-type]
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    values = [_value(one, row) for one in node.args]
    if any(value is None or math.isnan(value) for value in values):
        return None
    return _FUNCTIONS[node.func.id][2](*values)


def _sql(node: ast.expr, column: Callable[[str], str]) -> str:
    if isinstance(node, ast.Constant):
        assert isinstance(node.value, int | float)
        return f"cast({float(node.value)!r} as double)"
    if name := path(node):
        return f"cast({column(name)} as double)"
    if isinstance(node, ast.UnaryOp):
        return f"({'-' if isinstance(node.op, ast.USub) else '+'}{_sql(node.operand, column)})"
    if isinstance(node, ast.BinOp):
        return _OPERATIONS[type(node.op)][0].format(_sql(node.left, column), _sql(node.right, column))
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    values = [_sql(one, column) for one in node.args]
    # What is no number is the greatest of all there, and none here.
    some_null = " or ".join(f"{value} is null or isnan({value})" for value in values)
    return f"(case when {some_null} then null else {_FUNCTIONS[node.func.id][1]}({', '.join(values)}) end)"
