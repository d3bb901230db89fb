"""The kinds of algorithms: what an entry of ccl.yaml may name, and which module knows it.

A kind is one module with a `KIND`, and one line of `KINDS`. Modules are looked up by name, for the configuration reads
what they declare and knows none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ahbm.config.checks import Check

if TYPE_CHECKING:
    from ahbm.config.settings import Settings

KINDS = {
    "module": "ahbm.source.module",
    "plan": "ahbm.source.plan",
    "dsl": "ahbm.source.dsl",
    "synth": "ahbm.source.synth",
}
"""By the key of the entry, the module whose `KIND` declares it."""


class Kind(NamedTuple):
    """The parts of an entry of one kind, and the way from the entry to an algorithm."""

    check: Check
    """Of the key's value."""
    example: str
    """The key as people write it."""
    options: Callable[[Mapping[str, Any]], Hashable]
    """The keys that only this kind has, as one value."""
    load: Callable[[Settings], Any]
    """The entry as an `ahbm.source.algorithm.Algorithm`. Raises what is wrong with the entry's file."""
    listed: Callable[[Settings], tuple[tuple[str, ...], str]]
    """Its collectives and its source, for people, without executing code. Raises as `load`."""
    keys: Mapping[str, Check] = MappingProxyType({})
    """Keys that an entry of this kind may have besides those of `defaults`."""
    defaults: Mapping[str, object] = MappingProxyType({})
    """Values that replace those of `defaults` if the entry does not give them."""
    parameters: Check | None = None
    """Of further keys, which are parameters of the algorithm; None: there are none."""
    file: Callable[[str, Path], Path | None] = lambda value, folder: None
    """The file that a value of the key means in a ccl.yaml in a folder; None for what means the same in every one."""
    claims: Callable[[str], bool] = lambda name: False
    """Whether the name of an algorithm that no entry has is one of this kind."""
    named: Callable[[str], object] = lambda name: name
    """The value of the key that such a name means. Raises what is wrong with the name."""

    def all_keys(self, key: str) -> dict[str, Check]:
        """The `key` of this kind and those beside it."""
        return {key: self.check, **self.keys}


@cache
def kind(key: str) -> Kind:
    """The kind of entries with `key`."""
    found = import_module(KINDS[key]).KIND
    assert isinstance(found, Kind)
    return found


def keys() -> Mapping[str, Check]:
    """Every key that some kind of entry has."""
    found: dict[str, Check] = {}
    for key in KINDS:
        found |= kind(key).all_keys(key)
    return found
