"""Writes where the sources are hosted into pyproject.toml and README.md, for an index of packages to show.

    python scripts/urls.py https://HOST/OWNER/NAME COMMIT

The workflow that builds wheels runs it before it builds: it knows the address, and a clone has none. `[project.urls]`
is added, and links of README.md that are relative lead to the files of that commit. Raises SystemExit for another
address, or where that was done already.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEFORE = "[project.optional-dependencies]\n"


def project(text: str, home: str, commit: str) -> str:
    """pyproject.toml with `[project.urls]`."""
    if not re.fullmatch(r"https://[\w.-]+(/[\w.-]+){2}", home) or not re.fullmatch(r"[0-9a-f]{40}", commit):
        raise SystemExit(f"no address of a repository and commit: {home} {commit}")
    if "[project.urls]" in text or text.count(BEFORE) != 1:
        raise SystemExit("pyproject.toml has addresses already, or has no place for them")
    urls = {
        "Source": home,
        "Documentation": site(text, home) or f"{home}/tree/{commit}/docs",
        "Changelog": f"{home}/blob/{commit}/CHANGELOG.md",
        "Issues": f"{home}/issues",
    }
    table = "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    return text.replace(BEFORE, f"[project.urls]\n{table}\n{BEFORE}")


def site(text: str, home: str) -> str:
    """Where .github/workflows/site.yml publishes this version's documentation; empty for a host without such pages."""
    host, owner, name = home.removeprefix("https://").split("/")
    version = tomllib.loads(text)["project"]["version"]
    return f"https://{owner}.github.io/{name}/{version}" if host == "github.com" else ""


def readme(text: str, home: str, commit: str) -> str:
    """README.md with links and pictures that lead somewhere from any page."""
    kept = r"(?!https?://|#)"
    text = re.sub(rf"\]\({kept}([^)]+)\)", rf"]({home}/blob/{commit}/\1)", text)
    return re.sub(rf'\b(src|srcset)="{kept}([^"]+)"', rf'\1="{home}/raw/{commit}/\2"', text)


def main(home: str, commit: str, folder: Path = ROOT) -> None:
    for name, write in (("pyproject.toml", project), ("README.md", readme)):
        path = folder / name
        path.write_text(write(path.read_text(encoding="utf-8"), home, commit), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
