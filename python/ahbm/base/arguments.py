"""Arguments of the public functions: taken in every sensible type, else refused by name."""

from __future__ import annotations

import functools
import inspect
import json
import math
import numbers
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from ahbm.base.host import exhausted
from ahbm.errors import AhbmError, ConfigError

_Kind = TypeVar("_Kind")
_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")
SHOWN = 60
"""Characters of a refused value that the error shows."""


def refused(name: str, wanted: str, value: object) -> ConfigError:
    """The error (AHBM-C129) for an argument of a wrong type or out of its range."""
    return ConfigError("AHBM-C129", f"{name} must be {wanted}, not {shown(value)}")


def shown(value: object) -> str:
    """A refused value in a few words, whatever it is."""
    try:
        text = repr(value)
    except Exception:  # whatever a stranger's object raises
        text = f"an object of {type(value).__name__} that cannot be shown"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def whole(name: str, value: Any, least: int, most: int) -> int:
    """A whole number from `least` to `most`; NumPy's integers are taken, truth values are not. Raises AHBM-C129."""
    try:
        number = operator.index(value)
    except Exception:  # whatever a stranger's object raises
        number = None
    if number is None or isinstance(value, bool) or not least <= number <= most:
        raise refused(name, f"an integer from {least} to {most}", value)
    return number


def text(name: str, value: Any) -> str:
    """A text that Unicode can spell, without zeros. Raises AHBM-C129."""
    if not _is_text(value):
        raise refused(name, "a text", value)
    return str(value)


def texts(name: str, value: Any, wanted: str = "a list of texts") -> tuple[str, ...]:
    """The texts of what can be gone through once. Raises AHBM-C129."""
    try:
        found = tuple(value)
    except Exception as error:  # whatever a stranger's object raises
        raise refused(name, wanted, value) from error
    if isinstance(value, bytes) or not all(map(_is_text, found)):
        raise refused(name, wanted, value)
    return found


def path(name: str, value: Any) -> Path | None:
    """A path, or None. Raises AHBM-C129."""
    if value is None or _is_path(value):
        return Path(value) if value else None
    raise refused(name, "a path", value)


def checked(function: Callable[_Given, _Answer]) -> Callable[_Given, _Answer]:
    """`function`, which raises AHBM-C129 for an argument that is not what its annotation says, and AHBM-B301 where
    memory runs out.

    Looks at the arguments when the call has failed with an error that is not AHBM's: calls that succeed pay nothing.
    Any other error is raised as it is.
    """

    @functools.wraps(function)
    def called(*args: _Given.args, **given: _Given.kwargs) -> _Answer:
        try:
            return function(*args, **given)
        except AhbmError:
            raise
        except MemoryError as error:
            raise exhausted(error) from error
        except Exception as error:
            wrong = _first_wrong(function, args, given)
            if wrong is None:
                raise
            raise wrong from error

    return called


def fields_fit(kind: type, given: Mapping[str, object]) -> None:
    """Raises AHBM-C129 for a value that is not what the annotation of the field of its name says; others pass."""
    for name, value in given.items():
        annotation = kind.__annotations__.get(name, "Any")
        wanted = str(getattr(annotation, "__forward_arg__", annotation))  # a TypedDict keeps no text
        if not fits(value, wanted):
            raise refused(name, _described(wanted), value)


def _first_wrong(
    function: Callable[..., object], args: Sequence[object], given: Mapping[str, object]
) -> ConfigError | None:
    try:
        bound = inspect.signature(function).bind(*args, **given)
    except TypeError:
        return None
    for name, value in bound.arguments.items():
        wanted = str(function.__annotations__.get(name, "Any"))
        if wanted.startswith("Unpack["):  # keyword arguments by the names of a TypedDict's fields
            try:
                fields_fit(function.__globals__[wanted[len("Unpack[") : -1]], value)
            except ConfigError as error:
                return error
        elif not fits(value, wanted):
            return refused(name, _described(wanted), value)
    return None


def fits(value: object, wanted: str) -> bool:
    """Whether a value is what an annotation says, as far as names tell."""
    return any(_one(value, kind.strip()) for kind in _split(wanted, "|"))


def _one(value: object, kind: str) -> bool:
    outer, _, inner = kind.removesuffix("]").partition("[")
    if outer in _RULES:
        return _RULES[outer](value)
    if outer in ("Mapping", "dict"):
        return isinstance(value, Mapping) and all(_is_text(key) for key in value)
    if outer == "Iterable" and not isinstance(value, Sequence):
        # What is no sequence may be used up by looking at it.
        return isinstance(value, Iterable) and not isinstance(value, bytes | Mapping)
    if outer in ("Sequence", "Iterable", "list", "tuple"):
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            return False
        kinds = [part.strip() for part in _split(inner, ",")] if inner else ["Any"]
        if outer == "tuple" and kinds[-1] != "...":
            return len(value) == len(kinds) and all(map(fits, value, kinds))
        return all(fits(item, kinds[0]) for item in value)
    return any(base.__name__ == outer for base in type(value).__mro__)


def _split(kinds: str, mark: str) -> list[str]:
    """The parts of an annotation between marks that stand in no brackets."""
    parts, depth = [""], 0
    for letter in kinds:
        depth += (letter == "[") - (letter == "]")
        if letter == mark and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _described(wanted: str) -> str:
    kinds = [kind.strip() for kind in _split(wanted, "|")]
    return " or ".join(dict.fromkeys(_WORDS.get(kind.partition("[")[0], kind) for kind in kinds))


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\x00" not in value and not re.search("[\ud800-\udfff]", value)


def _is_path(value: object) -> bool:
    try:
        return isinstance(value, str | PathLike) and b"\x00" not in os.fsencode(value)
    except Exception:  # text that no file system takes, or whatever a stranger's object raises
        return False


def _is_whole(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and abs(int(value)) < 1 << 63


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)


_RULES: dict[str, Callable[[Any], bool]] = {
    "Any": lambda _: True,
    "object": lambda _: True,
    "ArrayLike": lambda _: True,
    "None": lambda value: value is None,
    "bool": lambda value: isinstance(value, bool) or type(value).__name__ == "bool",
    "int": _is_whole,
    "float": _is_number,
    "str": _is_text,
    "Path": _is_path,
    "Callable": callable,
    "AnySelector": lambda _: True,
    "AnyAlgorithm": lambda _: True,
}
_WORDS = {
    "None": "None",
    "bool": "True or False",
    "int": "an integer of 64 bits",
    "float": "a finite number",
    "str": "a text",
    "Path": "a path",
    "Callable": "a function",
    "Sequence": "a list",
    "Iterable": "a list",
    "list": "a list",
    "tuple": "a list",
    "Mapping": "a mapping with texts as keys",
}
"""The kinds of values for people."""


def instance(name: str, value: Any, kind: type[_Kind], wanted: str) -> _Kind | None:
    """An object of a class, or None. Raises AHBM-C129."""
    if value is None or isinstance(value, kind):
        return value
    raise refused(name, wanted, value)


def overrides(value: Any) -> Mapping[str, object] | None:
    """Dotted path -> value, or None; NumPy's scalars become Python's. Raises AHBM-C129."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not all(_is_text(key) for key in value):
        raise refused("overrides", "a mapping of dotted paths", value)
    return {key: _plain(key, item) for key, item in value.items()}


def _plain(key: str, value: Any) -> object:
    """An override's value as YAML can spell it; NumPy's scalars and arrays become Python's. Raises AHBM-C129."""
    plain = value.tolist() if type(value).__module__ == "numpy" else value
    try:
        json.dumps(plain).encode()
    except (TypeError, ValueError, RecursionError):
        plain = None
    if plain is None or (isinstance(plain, str) and not _is_text(plain)):
        raise refused(f"overrides[{key!r}]", "a number, a text, a truth value, or lists and mappings of them", value)
    return plain
