"""Arguments of the public functions: taken in every sensible type, else refused by name."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from ahbm.errors import ConfigError

_Kind = TypeVar("_Kind")
SHOWN = 60
"""Characters of a refused value that the error shows."""


def refused(name: str, wanted: str, value: object) -> ConfigError:
    """The error (AHBM-C129) for an argument of a wrong type or out of its range."""
    shown = repr(value)
    shown = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}..."
    return ConfigError("AHBM-C129", f"{name} must be {wanted}, not {shown}")


def whole(name: str, value: Any, least: int, most: int) -> int:
    """A whole number from `least` to `most`; NumPy's integers are taken, truth values are not. Raises AHBM-C129."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or not least <= number <= most:
        raise refused(name, f"an integer from {least} to {most}", value)
    return number


def text(name: str, value: Any) -> str:
    """A text without control characters. Raises AHBM-C129."""
    if not isinstance(value, str) or "\x00" in value:
        raise refused(name, "a text", value)
    return value


def path(name: str, value: Any) -> Path | None:
    """A path, or None. Raises AHBM-C129."""
    if value is None or (isinstance(value, str | PathLike) and "\x00" not in str(value)):
        return Path(value) if value else None
    raise refused(name, "a path", value)


def instance(name: str, value: Any, kind: type[_Kind], wanted: str) -> _Kind | None:
    """An object of a class, or None. Raises AHBM-C129."""
    if value is None or isinstance(value, kind):
        return value
    raise refused(name, wanted, value)


def overrides(value: Any) -> Mapping[str, object] | None:
    """Dotted path -> value, or None; NumPy's scalars become Python's. Raises AHBM-C129."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise refused("overrides", "a mapping of dotted paths", value)
    return {key: item.item() if hasattr(item, "item") else item for key, item in value.items()}
