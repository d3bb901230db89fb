"""Checks of the values in the file of a sweep, in addition to those of ccl.yaml, with their JSON schemas."""

from __future__ import annotations

from typing import Any

from ahbm.base.sizes import parse_size
from ahbm.config.checks import Check, Schema, integer, schema_of, shaped, text
from ahbm.errors import AhbmError

_SCALAR: Schema = {"type": ["number", "string", "boolean"]}


def several(one: Check) -> Check:
    """One value, or a list of at least one."""
    schema = schema_of(one)

    @shaped({"oneOf": [schema, {"type": "array", "items": schema, "minItems": 1}]})
    def check(value: Any) -> str | None:
        found = value if isinstance(value, list) else [value]
        wanted = [text for text in map(one, found) if text is not None]
        return f"{wanted[0]}, or a list of such" if wanted else None if found else "a list of at least one value"

    return check


def either(first: Check, second: Check) -> Check:
    """What one of two checks takes."""

    @shaped({"anyOf": [schema_of(first), schema_of(second)]})
    def check(value: Any) -> str | None:
        texts = first(value), second(value)
        return None if None in texts else f"{texts[0]}, or {texts[1]}"

    return check


def mapping_of(values: Check, wanted: str) -> Check:
    """A mapping whose values are all of one kind; `wanted` says what it must be."""

    @shaped({"type": "object", "additionalProperties": schema_of(values)})
    def check(value: Any) -> str | None:
        return None if isinstance(value, dict) and all(values(one) is None for one in value.values()) else wanted

    return check


@shaped({"anyOf": [_SCALAR, {"type": "array", "minItems": 1}]})
def plain_values(value: Any) -> str | None:
    """The value of an override: a scalar, or a list of values."""
    good = isinstance(value, str | int | float | bool) or (isinstance(value, list) and bool(value))
    return None if good else "a number, a text, true, false, or a list of values"


@shaped({"anyOf": [{"type": "integer", "minimum": 1}, schema_of(text)]})
def size(value: Any) -> str | None:
    """Bytes, or a text such as 64K."""
    if isinstance(value, str):
        try:
            parse_size(value)
        except AhbmError:
            return "bytes, or a text such as 64K"
        return None
    return None if integer(1)(value) is None else "bytes, or a text such as 64K"


sizes = several(size)
