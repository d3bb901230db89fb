"""The source lines that findings name, below them: in text, never in JSON."""

from __future__ import annotations

import re
from pathlib import Path

from ahbm.base.load import files_read, load_text

MOST = 3
"""Excerpts of one command."""
WIDTH = 110
"""Characters of a line that are shown."""
LARGEST = 1 << 24
"""Bytes of a file that is opened for a line of it."""
_ORIGIN = re.compile(r"^( *).*\[([^\[\]]+\.\w+:[0-9][^\[\]]*)\]$")
_PLACE = re.compile(r"(?:^|, fused with | and )([^()]+?\.\w+):([0-9]{1,9})(?=$| \(|, fused with | and )")
"""The places of an origin: a fused operation has several, each with its loop variables behind it."""


class Excerpts:
    """The excerpts of one command: at most `MOST`, each line once."""

    def __init__(self) -> None:
        self._shown: set[tuple[Path, int]] = set()

    def below(self, text: str) -> str:
        """`text`, with the source below each line that ends in `[file:line]`, where the file can be read."""
        lines = []
        for line in text.split("\n"):
            lines.append(line)
            if (found := _ORIGIN.match(line)) is None:
                continue
            for name, number in _PLACE.findall(found[2]):
                if len(self._shown) < MOST:
                    lines += self._excerpt(len(found[1]), name, int(number))
        return "\n".join(lines)

    def _excerpt(self, indent: int, name: str, number: int) -> list[str]:
        path = _file(name)
        if path is None or (path, number) in self._shown:
            return []
        try:
            written = load_text(path, LARGEST).split("\n")[number - 1 : number]
        except OSError:
            return []
        # What is no character of a text could move the cursor.
        line = "".join(c if c.isprintable() else " " for c in (written or [""])[0].expandtabs(4))[:WIDTH].rstrip()
        if not line.strip():
            return []
        self._shown.add((path, number))
        start = len(line) - len(line.lstrip())
        margin = " " * (indent + 2)
        marks = " " * start + "^" * (len(line) - start)
        return [f"{margin}{number} | {line}", f"{margin}{' ' * len(str(number))} | {marks}"]


def _file(name: str) -> Path | None:
    """The file that an origin names: Python files by their last part, of those that were read or stand beside them."""
    if not name.endswith(".py") or "/" in name:
        return Path(name)
    read = [path for path in files_read() if path.suffix == ".py"]
    named = {path for path in read if path.name == name} or {path.parent / name for path in read}
    there = [path for path in named if path.is_file()]
    return there[0] if len(there) == 1 else None
