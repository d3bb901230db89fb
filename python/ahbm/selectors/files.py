"""The files of selectors: JSON or YAML, read within bounds."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ahbm.base import packaged
from ahbm.base.load import load_text
from ahbm.base.yaml_source import parse
from ahbm.errors import ConfigError

MAX_BYTES = 1 << 26
"""A tree of a million nodes is shorter."""


def digest(text: str) -> str:
    """16 hex digits that tell a text from others."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read(path: str | Path) -> dict[str, Any]:
    """The mapping in a file: JSON where its name ends so, else YAML. Raises ConfigError: AHBM-C181 for a file that
    cannot be read or holds something else, AHBM-C102 for bad YAML."""
    try:
        text = load_text(path, MAX_BYTES)
        if not str(path).endswith(".json"):
            return parse(text, str(path), packaged=Path(path).is_relative_to(packaged.ROOT)).values
        found = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError("AHBM-C181", f"cannot read the selector {path}: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError("AHBM-C181", f"{path} must hold a mapping, not {type(found).__name__}")
    return found
