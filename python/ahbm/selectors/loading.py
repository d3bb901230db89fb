"""Selectors by name, by file, and as ccl.yaml names them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ahbm.base.arguments import refused, shown, whole
from ahbm.base.load import load_text
from ahbm.base.yaml_source import did_you_mean
from ahbm.config.rules import Named
from ahbm.errors import ConfigError, Site
from ahbm.selectors.files import MAX_BYTES, digest, read
from ahbm.selectors.function import FunctionSelector
from ahbm.selectors.protocol import AnySelector, Selector

KINDS: dict[str, frozenset[str]] = {
    "static": frozenset({"algorithms"}),
    "nccl": frozenset({"constants"}),
    "ranges": frozenset({"file", "rules"}),
    "tree": frozenset({"file"}),
    "shortlist": frozenset({"model", "k"}),
    "prior": frozenset({"small", "large"}),
}
"""The kinds that come with AHBM, and the options of each in ccl.yaml."""
ALONE = ("nccl", "prior", "shortlist")
"""Kinds that need no option, so their name is enough."""


def as_selector(value: AnySelector) -> Selector | None:
    """What is taken for a selector as one: a function, the name of one, a file. None is None.

    Raises ConfigError: AHBM-C129 for what is none of them, AHBM-C181 for an unknown name and a bad file.
    """
    if value is None:
        return None
    if isinstance(value, str | Path):
        return of(str(value))
    if isinstance(value, Selector) and not isinstance(value, type):
        return value
    if callable(value):
        return FunctionSelector(value)
    raise refused("selector", "a selector, a function of algorithms and request, a name or a file", value)


def load(named: Named) -> Selector:
    """The selector that ccl.yaml names. Raises ConfigError with the line in ccl.yaml."""
    try:
        return of(named.value, named.folder)
    except ConfigError as error:
        site = Site("named", named.place)
        raise ConfigError(error.code, error.message, sites=(*error.sites, site), hint=error.hint) from error


def contents(named: Named) -> list[str]:
    """What decides the choices of a selector that ccl.yaml names, as far as it is written down: the entry, and digests
    of the files that it names, and that those name."""
    found, folders, waiting = [named.text], {named.folder}, [named.value]
    seen: set[Path] = set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping | list):
            waiting += value.values() if isinstance(value, Mapping) else value
        elif isinstance(value, str) and value.endswith((".json", ".yaml", ".yml", ".py")):
            for path in sorted(folder / value for folder in folders):
                if path.is_file() and path not in seen:
                    seen.add(path)
                    folders.add(path.parent)
                    found.append(digest(load_text(path, MAX_BYTES)))
                    waiting += [] if value.endswith(".py") else [read(path)]
    return found


def of(value: str | Mapping[str, Any], folder: Path = Path()) -> Selector:
    """A selector by its name, by its file, or by a mapping with `kind` and options; paths start from `folder`.

    A file is JSON or YAML with `kind` and the options of that kind, or a Python file with a `selector`, which is code
    that runs. Raises ConfigError (AHBM-C181).
    """
    if isinstance(value, str):
        if value in ALONE:
            return of({"kind": value})
        path = folder / value
        if value.endswith(".py"):
            return _of_module(path)
        if value.endswith((".json", ".yaml", ".yml")):
            return of(read(path), path.parent)
        hint = did_you_mean(value, ALONE) or f"{', '.join(ALONE)}, or a file: .json, .yaml, .py"
        raise ConfigError("AHBM-C181", f"unknown selector {value!r}", hint=hint)
    options = dict(value)
    kind = options.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        hint = f"kind: one of {', '.join(KINDS)}"
        raise ConfigError("AHBM-C181", f"unknown kind of selector: {shown(kind)}", hint=hint)
    if kind == "tree" and "file" not in options:
        from ahbm.selectors.tree import Tree

        return Tree.of(options)
    if unknown := sorted(map(str, options.keys() - KINDS[kind])):
        known = ", ".join(sorted(KINDS[kind]))
        raise ConfigError("AHBM-C181", f"a selector of kind {kind} has no {', '.join(unknown)}", hint=f"it has {known}")
    if "file" in options:
        if not isinstance(options["file"], str):
            raise ConfigError("AHBM-C181", f"file: must be a text, not {shown(options['file'])}")
        path = folder / options["file"]
        return of({"kind": kind} | read(path), path.parent)
    return _made(kind, options, folder)


def _made(kind: str, options: Mapping[str, Any], folder: Path) -> Selector:
    # Each is imported by who asks for it.
    if kind == "static":
        from ahbm.selectors.static import Static

        return Static(_by_collective(options.get("algorithms")))
    if kind == "ranges":
        rules = options.get("rules")
        if not isinstance(rules, list):
            raise ConfigError("AHBM-C181", f"rules: must be a list, not {shown(rules)}")
        from ahbm.selectors.ranges import Ranges

        return Ranges(rules)
    if kind == "nccl":
        constants = options.get("constants")
        if not isinstance(constants, str | Mapping | None):
            raise ConfigError("AHBM-C181", f"constants: must be a file or a mapping, not {shown(constants)}")
        from ahbm.selectors.nccl_model import NcclModel

        return NcclModel(folder / constants if isinstance(constants, str) else constants)
    if kind == "prior":
        from ahbm.selectors.prior import Prior

        return Prior(
            **{name: whole(name, options[name], 0, 2**63 - 1) for name in ("small", "large") if name in options}
        )
    model = options.get("model")
    if model is not None and not isinstance(model, str | Mapping):
        raise ConfigError("AHBM-C181", f"model: must be a selector, not {shown(model)}")
    from ahbm.selectors.shortlist import Shortlist

    return Shortlist(None if model is None else of(model, folder), options.get("k", 3))


def _by_collective(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ConfigError("AHBM-C181", f"algorithms: must map collectives to algorithms, not {shown(value)}")
    return dict(value)


def _of_module(path: Path) -> Selector:
    """The `selector` of a Python file: an object, or a function. Every rank's is an instance of its own."""
    name = f"ahbm_selector_{digest(str(path.resolve()))}"
    spec = importlib.util.spec_from_file_location(name, path)
    try:
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        found = as_selector(module.selector)
    except Exception as error:  # whatever a stranger's module raises
        message = f"cannot load the selector {path}: {type(error).__name__}: {error}"
        raise ConfigError(
            "AHBM-C181", message, hint="the file must have a selector: an object or a function"
        ) from error
    if found is None:
        raise ConfigError("AHBM-C181", f"the selector of {path} is None")
    return found
