"""Groups of options: a parameter of a command whose type is a dataclass stands for options, one for each field."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """`command` as the command line calls it, with the fields in place of every group."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if isinstance(hint, type) and is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        kinds = get_type_hints(groups[name], include_extras=True)
        defaults = {field.name: field.default for field in fields(groups[name])}
        # A class's own options stand before those of its bases.
        order = dict.fromkeys(own for kind in groups[name].__mro__ for own in vars(kind).get("__annotations__", ()))
        parameters += [
            inspect.Parameter(own, inspect.Parameter.KEYWORD_ONLY, default=defaults[own], annotation=kinds[own])
            for own in order
        ]

    @wraps(command)
    def called(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    vars(called)["__signature__"] = inspect.Signature(parameters)
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called
