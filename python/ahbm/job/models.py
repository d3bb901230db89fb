"""Public models by name: their numbers, and where each stands."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from ahbm.base.load import load_text
from ahbm.base.yaml_source import did_you_mean, parse
from ahbm.errors import ConfigError

FILE = Path(__file__).resolve().parents[1] / "data" / "models.yaml"


@cache
def _table() -> dict[str, dict[str, Any]]:
    return parse(load_text(FILE), str(FILE)).values


def names() -> list[str]:
    """All of them."""
    return list(_table())


def like(name: str) -> dict[str, Any]:
    """The numbers of a model, as fields of a `Transformer`. Raises ConfigError (AHBM-C157) for an unknown one."""
    found = _table().get(name)
    if found is None:
        hint = did_you_mean(name, _table()) or f"one of {', '.join(_table())}"
        raise ConfigError("AHBM-C157", f"there is no model {name[:40]!r}", hint=hint)
    return {key: value for key, value in found.items() if key != "source"}


def source(name: str) -> str:
    """Where a model's numbers stand."""
    return str(_table()[name]["source"])
