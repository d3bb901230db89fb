"""The error that all kinds that are files have in common."""

from __future__ import annotations

from pathlib import Path

from ahbm.errors import ConfigError


def no_file(algorithm: str, path: Path) -> ConfigError:
    """The error (AHBM-C110) for an entry whose file does not exist."""
    return ConfigError(
        "AHBM-C110",
        f"algorithm {algorithm}: there is no file {path}",
        hint="a relative path starts from the folder of the ccl.yaml that names it",
    )
