"""Packages that this one does not depend on."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ahbm.errors import UnsupportedError


def needed(module: str, missing: str, hint: str) -> Any:
    """A module. Raises UnsupportedError (AHBM-U145), which says what is `missing`, where it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise UnsupportedError("AHBM-U145", missing, hint=hint) from error
