"""Prints what pyproject.toml asks for, for pip: `needs.py build` or the name of an extra.

One list for everybody: the wheel's own metadata, the Makefile and the gate.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found = (
        project["build-system"]["requires"] if name == "build" else project["project"]["optional-dependencies"][name]
    )
    print(*found)


if __name__ == "__main__":
    main(sys.argv[1])
