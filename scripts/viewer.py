"""Joins web/src/*.js to what pages, the server and notebooks bring: viewer.js and live.js in python/ahbm/views.

`--check` says whether it is up to date. The modules use plain `import { name } from` and `export` before a declaration,
so joining is leaving those out; no two of them may declare the same name.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE, TARGETS = ROOT / "web/src", ROOT / "python/ahbm/views"
IMPORT = re.compile(r'^import \{ ([^}]*) \} from "\./(\w+)\.js";\n', re.MULTILINE)
DECLARED = re.compile(r"^(?:export )?(?:async )?(?:function|const|let|class) (\w+)", re.MULTILINE)
PUBLIC = ("CONTRACT", "csv", "decode", "mount", "sortable")
"""Names of the joined module, beside the widget, which is its default."""


def ordered(name: str, found: list[str]) -> None:
    """Appends a module behind those that it imports."""
    text = (SOURCE / f"{name}.js").read_text(encoding="utf-8")
    for names, other in IMPORT.findall(text):
        if " as " in names:
            raise SystemExit(f"{name}.js: an import under another name cannot be joined: {names}")
        if other not in found:
            ordered(other, found)
    found.append(name)


def joined(name: str, known: list[str], end: str) -> str:
    """The module of a source and of what that imports, less what is `known`, which it is appended to."""
    found = list(known)
    ordered(name, found)
    found, known[:] = found[len(known) :], found
    homes: dict[str, str] = {}
    parts = ["// Made of web/src by scripts/viewer.py: change it there.\n"]
    for name in found:
        text = IMPORT.sub("", (SOURCE / f"{name}.js").read_text(encoding="utf-8"))
        for declared in DECLARED.findall(text):
            if declared in homes:
                raise SystemExit(f"{name}.js and {homes[declared]}.js both declare {declared}")
            homes[declared] = name
        # Comments are for who reads the sources.
        text = re.sub(r"^[ \t]*/\*\*[\s\S]*?\*/\n|^[ \t]*//.*\n", "", text, flags=re.MULTILINE)
        text = re.sub(r"/\*\* @type .*?\*/ ?", "", text)
        parts.append(re.sub(r"^export ", "", text, flags=re.MULTILINE).strip() + "\n")
    return "\n".join([*parts, end])


def modules() -> dict[Path, str]:
    """Every module that is made, by its file."""
    known: list[str] = []
    exports = f"export {{ {', '.join(PUBLIC)} }};\nexport default widget;\n"
    viewer = joined("workbench", known, exports)
    # It goes on behind the viewer.
    return {TARGETS / "viewer.js": viewer, TARGETS / "live.js": joined("live", known, "")}


def main(*arguments: str) -> int:
    """Writes or compares the modules; the exit code."""
    stale = [p for p, text in modules().items() if not p.exists() or p.read_text(encoding="utf-8") != text]
    if "--check" in arguments:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not what web/src says: run python scripts/viewer.py", file=sys.stderr)
        return int(bool(stale))
    for path in stale:
        path.write_text(modules()[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
