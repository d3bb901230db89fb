"""Which function describes which operation."""

from __future__ import annotations

from collections.abc import Callable

from ahbm.kernels.model import Call, Kernel

Rule = Callable[[Call], list[Kernel]]
TABLE: dict[str, Rule] = {}
"""By the operation's name, without its namespace and overload."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Has a function describe operations of these names. It may raise `Unknown`."""

    def put(function: Rule) -> Rule:
        for name in names:
            assert name not in TABLE, name
            TABLE[name] = function
        return function

    return put


def found(name: str) -> Rule | None:
    """The rule of an operation; one in place has that of its twin, where it has none of its own."""
    own = TABLE.get(name)
    if own is None and name.endswith("_") and not name.endswith("__"):
        own = TABLE.get(name[:-1])
    return own
