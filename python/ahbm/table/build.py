"""What rows depend on besides their case: this build of the emulator."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

import ahbm
from ahbm._core import sources

PACKAGES = (
    "base",
    "check",
    "choice",
    "config",
    "core",
    "dsl",
    "job",
    "runs",
    "selectors",
    "source",
    "sweeps",
    "table",
)
"""The packages that make a row; the others show it."""


@lru_cache(1)
def build() -> str:
    """The version of this package and, behind a `+`, the digest of the sources that rows depend on, 12 hex digits.

    Builds with equal ones give equal rows. Takes milliseconds, once in a process.
    """
    digest = hashlib.sha256(sources().encode())
    root = Path(__file__).parents[1]
    for path in sorted(path for package in PACKAGES for path in (root / package).rglob("*.py")):
        digest.update(f"\n{path.relative_to(root).as_posix()}\n".encode())
        digest.update(path.read_bytes().replace(b"\r", b""))
    return f"{ahbm.__version__}+{digest.hexdigest()[:12]}"
