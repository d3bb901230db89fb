"""Copies of functions that ask before they go through a set, compare identities, hash, or look at a type.

The interpreter shows nothing of these, so they are found in the text: it is compiled again with calls of a `Watch`
around them, line for line, and the code takes the place of the function's own.
"""

from __future__ import annotations

import ast
import linecache
import warnings
from collections.abc import Iterable, Iterator
from functools import lru_cache
from opcode import opmap
from types import CodeType, FunctionType

NAME = "__ahbm_watch__"
"""The global by which instrumented code finds its `Watch`."""
CONSUMERS = frozenset(
    {
        "list",
        "tuple",
        "iter",
        "enumerate",
        "zip",
        "map",
        "filter",
        "dict",
        "sum",
        "min",
        "max",
        "next",
        "deque",
        "chain",
        "product",
        "permutations",
        "combinations",
        "cycle",
        "islice",
        "accumulate",
        "reduce",
        "Counter",
        "OrderedDict",
        "array",
        "asarray",
        "join",
        "extend",
        "fromkeys",
        "from_iterable",
    }
)
"""Functions and methods that take elements in their order."""

ATTRIBUTES = frozenset({"argv", "executable", "orig_argv"})
"""What the module `sys` says of the process."""


def instrumented(functions: Iterable[FunctionType]) -> tuple[list[tuple[FunctionType, CodeType]], bool]:
    """The instrumented code of every function whose text is known, and whether some text is missing that looks at types
    or identities."""
    known: dict[str, dict[CodeType, CodeType]] = {}
    found: list[tuple[FunctionType, CodeType]] = []
    blind = False
    for function in functions:
        code = function.__code__
        if code.co_filename not in known:
            linecache.checkcache(code.co_filename)
            known[code.co_filename] = _compiled(code.co_filename, "".join(linecache.getlines(code.co_filename)))
        new = known[code.co_filename].get(code)
        if new is not None and new.co_freevars == code.co_freevars:
            found.append((function, new))
        else:
            blind |= _looks(code)
    return found, blind


@lru_cache(8)
def _compiled(path: str, text: str) -> dict[CodeType, CodeType]:
    """The codes of a file, and their instrumented ones."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text, path)
            plain = compile(tree, path, "exec", dont_inherit=True)
            tree = ast.fix_missing_locations(_Instrument().visit(ast.parse(text, path)))
            return dict(_pairs(plain, compile(tree, path, "exec", dont_inherit=True)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}


def _pairs(plain: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    yield plain, new
    inner = [[one for one in code.co_consts if isinstance(one, CodeType)] for code in (plain, new)]
    for pair in zip(*inner, strict=False):
        yield from _pairs(*pair)


def _looks(code: CodeType) -> bool:
    inner = (_looks(one) for one in code.co_consts if isinstance(one, CodeType))
    return opmap["IS_OP"] in code.co_code[::2] or "type" in code.co_names or any(inner)


class _Instrument(ast.NodeTransformer):
    def _call(self, at: ast.expr, name: str, *args: ast.expr) -> ast.expr:
        watch = ast.Attribute(ast.Name(NAME, ast.Load()), name, ast.Load())
        return ast.copy_location(ast.Call(watch, list(args), []), at)

    def _ordered(self, values: ast.expr) -> ast.expr:
        if isinstance(values, ast.Constant | ast.List | ast.Tuple | ast.ListComp | ast.Starred):
            return values
        return self._call(values, "ordered", values)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) != 1 or not isinstance(node.ops[0], ast.Is | ast.IsNot):
            return node
        left, right = node.left, node.comparators[0]
        if any(isinstance(side, ast.Constant) and type(side.value) is not int for side in (left, right)):
            return node
        same = self._call(node, "same", left, right)
        return same if isinstance(node.ops[0], ast.Is) else ast.copy_location(ast.UnaryOp(ast.Not(), same), node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        alone = len(node.args) == 1 and not node.keywords and not isinstance(node.args[0], ast.Starred)
        if name in CONSUMERS:
            node.args = [self._ordered(arg) for arg in node.args]
        elif isinstance(node.func, ast.Attribute) and name == "pop" and not node.args and not node.keywords:
            return self._call(node, "pop", node.func.value)
        elif name in ("is_", "is_not") and len(node.args) == 2 and not node.keywords:
            return self._call(node, "asked", node.func, *node.args)
        elif isinstance(node.func, ast.Name) and alone and name in ("hash", "type"):
            return self._call(node, {"hash": "hashed", "type": "typed"}[name], node.func, *node.args)
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        self.generic_visit(node)
        if node.arg == "file":
            node.value = self._call(node.value, "stream", node.value)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        if node.attr not in ATTRIBUTES or not isinstance(node.ctx, ast.Load):
            return node
        return self._call(node, "attribute", node.value, ast.copy_location(ast.Constant(node.attr), node))

    def visit_For(self, node: ast.For) -> ast.For:
        self.generic_visit(node)
        node.iter = self._ordered(node.iter)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        self.generic_visit(node)
        node.iter = self._ordered(node.iter)
        return node

    def visit_Starred(self, node: ast.Starred) -> ast.Starred:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load):
            node.value = self._ordered(node.value)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        self.generic_visit(node)
        if any(isinstance(target, ast.Tuple | ast.List) for target in node.targets):
            node.value = self._ordered(node.value)
        return node
