"""Prints what pyproject.toml asks for, for pip: `needs.py NAME...`, `build`, `run` or the name of an extra.

One list for everybody: the wheel's own metadata, the Makefile and the gate.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def needs(manifest: dict[str, Any], name: str) -> Iterator[str]:
    """Requirements; extras of the project itself are followed."""
    project = manifest["project"]
    own = {"build": manifest["build-system"]["requires"], "run": project["dependencies"]}
    for one in (own | project["optional-dependencies"])[name]:
        if inner := re.fullmatch(rf"{project['name']}\[(.*)\]", one):
            for extra in inner[1].split(","):
                yield from needs(manifest, extra)
        else:
            yield one


def main(*names: str) -> None:
    manifest = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    print(*dict.fromkeys(one for name in names for one in needs(manifest, name)))


if __name__ == "__main__":
    main(*sys.argv[1:])
