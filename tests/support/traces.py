"""Traces of jobs and algorithms in the JSON form, written node by node."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def attribute(name: str, value: int | str) -> dict[str, Any]:
    """An attribute of a node."""
    return {"name": name, "int64Val" if isinstance(value, int) else "stringVal": value}


def write(prefix: str | Path, rank: int, nodes: Sequence[dict[str, Any]], version: str = "0.0.4") -> Path:
    """Writes a rank's nodes to `<prefix>.<rank>.json`."""
    path = Path(f"{prefix}.{rank}.json")
    path.write_text("\n".join(json.dumps(document) for document in ({"version": version}, *nodes)))
    return path
