"""Checks of values in ccl.yaml: each says what a value must be, or None where it is that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], str | None]
Schema = dict[str, Any]
"""A JSON schema."""
_SCHEMAS: dict[Check, Schema] = {}

AUTO = "auto"
"""Leaves a choice to the program."""


def shaped(schema: Schema) -> Callable[[Check], Check]:
    """A decorator: the JSON schema of a check, for editors."""

    def register(check: Check) -> Check:
        _SCHEMAS[check] = schema
        return check

    return register


def schema_of(check: Check) -> Schema:
    """The JSON schema of a check. Raises KeyError for a check without."""
    return _SCHEMAS[check]


MOST = 2**63 - 1
"""The largest number that the native core takes."""


def integer(least: int, most: int = MOST) -> Check:
    """An integer from `least` to `most`."""

    @shaped({"type": "integer", "minimum": least, "maximum": most})
    def check(value: Any) -> str | None:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            return f"an integer of at least {least}"
        return None if value <= most else f"an integer of at most {most}"

    return check


@shaped({"type": "string", "minLength": 1})
def text(value: Any) -> str | None:
    """A text that is not empty."""
    return None if isinstance(value, str) and value else "a name"


@shaped({"type": "string"})
def pattern(value: Any) -> str | None:
    """A text in which `*` stands for any other, `?` for a character and `[ab]` for one of some."""
    return None if isinstance(value, str) else "a name, or a pattern such as tp*"


@shaped({"oneOf": [schema_of(text), {"type": "array", "items": schema_of(text), "minItems": 1}]})
def texts(value: Any) -> str | None:
    """A text, or a list of texts."""
    found = value if isinstance(value, list) else [value]
    return None if found and all(text(name) is None for name in found) else "a name, or a list of names"


@shaped({"type": "boolean"})
def switch(value: Any) -> str | None:
    """True or false."""
    return None if isinstance(value, bool) else "true or false"


@shaped({"oneOf": [schema_of(integer(1)), {"const": AUTO}]})
def size(value: Any) -> str | None:
    """A number of bytes, or `AUTO`."""
    return None if value == AUTO or integer(1)(value) is None else "a number of bytes or auto"


@shaped({"enum": ["sleep", "poll"]})
def backpressure(value: Any) -> str | None:
    """The ways in which a sender waits for a free slot."""
    return None if value in ("sleep", "poll") else "sleep or poll"


def one_of(*known: str) -> Check:
    """One of some names."""

    @shaped({"enum": list(known)})
    def check(value: Any) -> str | None:
        return None if value in known else f"one of {', '.join(known)}"

    return check


def mapping(keys: Mapping[str, Check], wanted: str) -> Check:
    """A mapping with some of the `keys`; `wanted` says so."""

    properties = {key: schema_of(inner) for key, inner in keys.items()}

    @shaped({"type": "object", "properties": properties, "additionalProperties": False})
    def check(value: Any) -> str | None:
        good = isinstance(value, dict) and all(key in keys and keys[key](v) is None for key, v in value.items())
        return None if good else wanted

    return check


@shaped({"type": ["number", "string", "boolean", "array"], "items": {"type": ["number", "string", "boolean"]}})
def parameter(value: Any) -> str | None:
    """The value of an algorithm's own parameter."""
    plain = all(isinstance(one, str | int | float | bool) for one in (value if isinstance(value, list) else [value]))
    return None if plain else "a number, a text, true, false, or a list of these"


_NAMED: Schema = {"type": "object", "properties": {"kind": {"type": "string"}}, "required": ["kind"]}


@shaped({"oneOf": [schema_of(text), _NAMED]})
def selector(value: Any) -> str | None:
    """A selector: its name or file, or a mapping with its kind and options, which whoever loads it judges."""
    good = text(value) is None or (isinstance(value, dict) and text(value.get("kind")) is None)
    return None if good else "the name or the file of a selector, or a mapping with its kind"
