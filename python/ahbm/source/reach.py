"""What the code of a kernel can reach: whether it can meet anything but its arguments, found without calling it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial
from opcode import opmap
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

PURE = frozenset(
    {
        "__future__",
        "_bisect",
        "_collections",
        "_collections_abc",
        "_functools",
        "_heapq",
        "_operator",
        "_struct",
        "abc",
        "bisect",
        "builtins",
        "cmath",
        "collections",
        "collections.abc",
        "dataclasses",
        "enum",
        "functools",
        "heapq",
        "itertools",
        "math",
        "numbers",
        "operator",
        "struct",
        "typing",
    }
)
"""Modules whose functions depend on their arguments alone."""
IMPURE = frozenset(
    {
        "__import__",
        "breakpoint",
        "compile",
        "eval",
        "exec",
        "frozenset",
        "globals",
        "hash",
        "id",
        "input",
        "is_",
        "is_not",
        "locals",
        "open",
        "set",
        "type",
        "vars",
    }
)
"""Functions whose results may depend on more, or on whether an integer is symbolic."""
LOUD = bytes(
    opmap[name]
    for name in (
        "BUILD_SET",
        "SET_ADD",
        "SET_UPDATE",
        "IS_OP",
        "IMPORT_NAME",
        "STORE_GLOBAL",
        "DELETE_GLOBAL",
        "STORE_ATTR",
    )
)
"""Instructions that make a set, compare identities, import, or change what outlives a call."""
PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None), type(...), range, slice})
SILENT = frozenset({"_collections", "collections", "dataclasses", "enum", "types", "typing"})
"""Modules whose objects stand for declarations."""
STORE_DEREF = opmap["STORE_DEREF"]


class Reach:
    """The functions that some functions can call, as far as their code shows, and what they can meet besides."""

    __slots__ = ("_seen", "functions", "kept", "quiet")

    def __init__(self, *roots: object) -> None:
        self.functions: list[FunctionType] = []
        """The functions that are not a library's."""
        self.kept: list[object] = []
        """The values that outlive a call and can change."""
        self.quiet = True
        """Whether they meet nothing but arguments, constants, `kept` and pure functions."""
        self._seen: set[int] = set()
        try:
            for root in roots:
                self._meet(root)
        except RecursionError:
            self.quiet = False

    def _follow(self, function: FunctionType) -> None:
        if id(function) in self._seen:
            return
        self._seen.add(id(function))
        if is_library(function.__module__):
            self.quiet = False
            return
        self.functions.append(function)
        code = function.__code__
        self._read(code, function.__globals__)
        for value in function.__defaults__ or ():
            self._meet(value)
        for value in (function.__kwdefaults__ or {}).values():
            self._meet(value)
        for cell in function.__closure__ or ():
            try:
                self._meet(cell.cell_contents)
            except ValueError:
                self.quiet = False
        if function.__closure__ and STORE_DEREF in code.co_code[::2]:
            self.quiet = False

    def _read(self, code: CodeType, names: dict[str, Any]) -> None:
        steps = code.co_code[::2]
        if len(steps.translate(None, LOUD)) < len(steps):
            self.quiet = False
        for name in code.co_names:
            if name in names:
                value = names[name]
                self._meet(value)
                if type(value) is ModuleType and not is_library(value.__name__):
                    for member in code.co_names:
                        if member in vars(value):
                            self._meet(vars(value)[member])
            elif name in IMPURE:
                self.quiet = False
        for constant in code.co_consts:
            if type(constant) is CodeType:
                self._read(constant, names)
            elif type(constant) is frozenset and not in_order(constant):
                self.quiet = False

    def _meet(self, value: Any) -> None:
        kind = type(value)
        if kind in PLAIN:
            return
        if kind is FunctionType:
            self._follow(value)
        elif kind is tuple:
            self._meet_all(value)
        elif kind is BuiltinFunctionType:
            if value.__module__ not in PURE or value.__name__ in IMPURE:
                self.quiet = False
        elif kind is ModuleType:
            if value.__name__ not in PURE:
                self.quiet = False
        elif kind is type and value.__module__ in PURE:
            if value.__name__ in IMPURE:
                self.quiet = False
        elif id(value) not in self._seen:
            self._seen.add(id(value))
            self._look_into(value)

    def _meet_all(self, values: Iterable[object]) -> None:
        if not PLAIN.issuperset(map(type, values)):
            for value in values:
                self._meet(value)

    def _look_into(self, value: Any) -> None:
        """Follows what a value holds that is neither plain nor a function."""
        kind = type(value)
        if kind.__module__ in SILENT:
            return None
        if kind.__module__ == "logging":
            self.quiet = False  # its state is for people
            return None
        self.kept.append(value)
        if kind is list:
            return self._meet_all(value)
        if kind is dict:
            self._meet_all(value.keys())
            return self._meet_all(value.values())
        if isinstance(value, set | frozenset):
            self.quiet &= in_order(value)
            return self._meet_all(value)
        if isinstance(value, partial):
            return self._meet_all((value.func, value.args, value.keywords))
        if isinstance(value, MethodType):
            return self._meet_all((value.__func__, value.__self__))
        own = value if isinstance(value, type) else kind
        if is_library(own.__module__):
            self.quiet = False
            self._meet(getattr(value, "__wrapped__", None))
        elif own is value:
            self._meet_all([_inner(member) for member in vars(value).values()])
            self._meet_all(value.__mro__[1:-1])
        else:
            self._meet(kind)
            self._meet_all(list(getattr(value, "__dict__", {}).values()))
        return None


def _inner(member: Any) -> object:
    if isinstance(member, staticmethod | classmethod):
        return member.__func__
    return (member.fget, member.fset) if isinstance(member, property) else member


def is_library(module: str | None) -> bool:
    """Whether a module is Python's or was installed, by its name."""
    if not module or module == "__main__":
        return False
    if module.partition(".")[0] in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def in_order(values: Iterable[object]) -> bool:
    """Whether a set of these values is gone through in an order that is the same in every process."""
    return all(
        isinstance(value, int | float | complex) or (type(value) in (tuple, frozenset) and in_order(value))  # type: ignore[arg-type]
        for value in values
    )
