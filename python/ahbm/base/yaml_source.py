"""YAML text with the line of every key, so that a finding can say where it was written."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ahbm.base.packaged import PARSED
from ahbm.errors import ConfigError, Site

KeyPath = tuple[str | int, ...]


@dataclass
class Source:
    """A parsed YAML document: plain values, and where each of them stands."""

    origin: str
    """Name of the text in findings, usually the file's path."""
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[KeyPath, str] = field(default_factory=dict)
    """Path of a key -> `file:line`, or the override that set it."""
    count: int = 0
    """Values read so far."""

    def place(self, path: KeyPath) -> str:
        """The place of the value at `path`, or else of the nearest enclosing key."""
        while path:
            if path in self.places:
                return self.places[path]
            path = path[:-1]
        return self.origin

    def put(self, path: tuple[str, ...], value: Any, place: str) -> None:
        """Sets the value at `path`, creating the mappings on the way, as if it stood at `place`.

        Raises ConfigError (AHBM-C103) when a key on the way holds something else than a mapping.
        """
        here = self.values
        for depth, key in enumerate(path[:-1], start=1):
            here = here.setdefault(key, {})
            if not isinstance(here, dict):
                dotted = ".".join(path[:depth])
                raise ConfigError(
                    "AHBM-C103",
                    f"{'.'.join(path)}: {dotted} is no mapping",
                    sites=(Site(f"{dotted} = {here!r}", self.place(path[:depth])), Site("set by", place)),
                )
        here[path[-1]] = value
        self.places[path] = place


def parse(text: str, origin: str, *, packaged: bool = False) -> Source:
    """Parses a YAML mapping with string keys; `packaged`: it is a file of this package.

    Raises ConfigError: AHBM-C102 for a syntax error, a duplicate key, a key that is no string, a number that Python
    does not read, a document that is no mapping, too long, too deep, or inflated by aliases; each names file and line.
    """
    if packaged and (known := _parsed(text, origin)) is not None:
        return known
    from ahbm.base import yaml_nodes

    return yaml_nodes.parse(text, Source(origin), packaged)


def _parsed(text: str, origin: str) -> Source | None:
    """A packaged file as it was parsed when the package was made; None for another text."""
    found = json.loads(PARSED.read_text(encoding="utf-8"))
    if found["sha256"] != _digest(text):
        return None
    return Source(origin, found["values"], {tuple(path): f"{origin}:{line}" for path, line in found["lines"]})


def parsed(text: str) -> str:
    """The content of `ahbm.base.packaged.PARSED` for a text."""
    from ahbm.base import yaml_nodes

    source = yaml_nodes.parse(text, Source(""), True)
    lines = [[path, int(place.removeprefix(":"))] for path, place in source.places.items()]
    return json.dumps({"sha256": _digest(text), "values": source.values, "lines": lines}) + "\n"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def scalar(text: str) -> Any:
    """An override's text as a YAML scalar or flow collection; what is not valid YAML stays text."""
    from ahbm.base import yaml_nodes

    return yaml_nodes.scalar(text)


def scalar_text(value: Any) -> str:
    """An override's value as YAML text; the inverse of `scalar` for numbers, booleans, lists and mappings."""
    return value if isinstance(value, str) else json.dumps(value)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint for a misspelt word: the nearest known ones, else those that it is a part of, else all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=3, cutoff=0.6)
    if not near and len(word) > 2:
        near = sorted((name for name in names if word.lower() in name.lower()), key=len)[:5]
    return f"did you mean {' or '.join(near)}?" if near else f"one of {', '.join(names)}"
