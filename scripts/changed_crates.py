"""Prints `-p CRATE` for each Rust crate with changes that are not on the main branch, or that are not committed.

`rust/python` is left out: it is linked against an interpreter, and the Python tests run it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def git(*arguments: str) -> list[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()


def main(base: str) -> None:
    since = (git("merge-base", "HEAD", base) or ["HEAD"])[0]
    changed = git("diff", "--name-only", since) + git("ls-files", "--others", "--exclude-standard")
    crates = sorted({Path(name).parts[1] for name in changed if name.startswith("rust/")} - {"python"})
    print(*(f"-p ahbm-{crate}" for crate in crates if (ROOT / "rust" / crate / "Cargo.toml").exists()))


if __name__ == "__main__":
    main(*sys.argv[1:] or ["main"])
