"""Checks that `python/ahbm/_core.pyi` describes the extension module that is installed, both ways.

Exits with mypy stubtest's status: 0 when names, signatures and defaults agree.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    command = [sys.executable, "-m", "mypy.stubtest", "ahbm._core", "--mypy-config-file", str(ROOT / "pyproject.toml")]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "MYPYPATH": str(ROOT / "python")}).returncode


if __name__ == "__main__":
    sys.exit(main())
