"""Reads YAML: its nodes with their lines, within limits. `ahbm.base.yaml_source` imports this when there is something
to read: PyYAML takes longer to import than a packaged file to be looked up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from ahbm.errors import ConfigError, Site

if TYPE_CHECKING:
    from ahbm.base.yaml_source import KeyPath, Source

MAX_BYTES = 1 << 20
"""A configuration file is written by hand; anything longer is not one."""

MAX_DEPTH = 16
"""Levels of a configuration; what is nested deeper is not read, so that nobody's stack ends."""
MAX_VALUES = 20_000
"""Values of a configuration, those that aliases repeat counted every time."""

PACKAGED: type[Any] = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
"""Reads the files of the package, which need no limits, in a tenth of the time."""
WRITER: type[Any] = yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper
"""Writes what the core reads at once, in a tenth of the time."""


def parse(text: str, source: Source, packaged: bool) -> Source:
    """See `ahbm.base.yaml_source.parse`; `source` is empty."""
    origin = source.origin
    if len(text) > MAX_BYTES:
        raise ConfigError("AHBM-C102", f"{origin} has {len(text)} bytes; a configuration has at most {MAX_BYTES}")
    loader = None
    try:
        loader = (PACKAGED if packaged else _Loader)(text)
        root = loader.get_single_node()
        if root is not None:
            if not isinstance(root, yaml.MappingNode):
                raise ConfigError(
                    "AHBM-C102", "the document is no mapping", sites=(Site("found here", _at(origin, root)),)
                )
            source.values = _value(loader, root, (), source)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"{origin}:{mark.line + 1}" if mark else origin
        raise ConfigError(
            "AHBM-C102", f"no valid YAML: {error.problem or error.context}", sites=(Site("found here", line),)
        ) from error
    except yaml.YAMLError as error:
        raise ConfigError("AHBM-C102", f"no valid YAML: {error}", sites=(Site("found here", origin),)) from error
    finally:
        if loader is not None:
            loader.dispose()
    return source


class _Loader(yaml.SafeLoader):
    """Refuses deep nesting where it begins, for the composer recurses, and too many nodes before they are composed."""

    depth = 0
    nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.depth += 1
        self.nodes += 1
        if self.nodes > 2 * MAX_VALUES:
            mark = parent.start_mark if parent is not None else None
            raise yaml.composer.ComposerError(None, None, f"more than {MAX_VALUES} keys and values", mark)
        if self.depth > 2 * MAX_DEPTH:
            mark = parent.start_mark if parent is not None else None
            raise yaml.composer.ComposerError(None, None, "nested too deeply", mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node


def scalar(text: str) -> Any:
    """See `ahbm.base.yaml_source.scalar`."""
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError):
        return text


def _at(origin: str, node: yaml.Node) -> str:
    return f"{origin}:{node.start_mark.line + 1}"


def _value(loader: yaml.SafeLoader, node: yaml.Node, path: KeyPath, source: Source) -> Any:
    site = Site("found here", _at(source.origin, node))
    if len(path) > MAX_DEPTH:
        raise ConfigError("AHBM-C102", "nested too deeply", sites=(site,))
    source.count += 1
    if source.count > MAX_VALUES:
        raise ConfigError("AHBM-C102", f"more than {MAX_VALUES} values, aliases written out", sites=(site,))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            source.places[*path, index] = _at(source.origin, item)
        return [_value(loader, item, (*path, index), source) for index, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        out: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key, place = _constructed(loader, key_node, source), _at(source.origin, key_node)
            if not isinstance(key, str):
                raise ConfigError("AHBM-C102", f"key {key!r} is no text", sites=(Site("found here", place),))
            if key in out:
                raise ConfigError(
                    "AHBM-C102",
                    f"{key} is given twice",
                    sites=(Site("first", source.place((*path, key))), Site("again", place)),
                )
            source.places[*path, key] = place
            out[key] = _value(loader, value_node, (*path, key), source)
        return out
    return _constructed(loader, node, source)


def _constructed(loader: yaml.SafeLoader, node: yaml.Node, source: Source) -> Any:
    try:
        return loader.construct_object(node)
    except (ValueError, OverflowError) as error:
        # Among them: an integer of more digits than Python reads, a date that is none.
        site = Site("found here", _at(source.origin, node))
        raise ConfigError("AHBM-C102", f"no value: {error}", sites=(site,)) from error
