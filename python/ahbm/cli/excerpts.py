"""The source lines that findings name, below them: in text, never in JSON."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from ahbm.base.load import files_read, load_text, parse_python

MOST = 3
"""Excerpts of one command."""
WIDTH = 110
"""Characters of a line that are shown."""
LARGEST = 1 << 24
"""Bytes of a file that is opened for a line of it."""
_ORIGIN = re.compile(r"^( *)(.*)\[([^\[\]]+\.\w+:[0-9][^\[\]]*)\]$")
LONGEST = 1 << 20
"""Characters of a Python file that is parsed for the columns of a call."""
_OPERATORS: dict[type[ast.operator], str] = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}
"""Operators of handles by the names of their operations."""
_PLACE = re.compile(r"(?:^| -> |, fused with | and )([^()]+?\.\w+):([0-9]{1,9})(?=$| \(| -> |, fused with | and )")
"""The places of an origin: a fused operation has several, each with its loop variables behind it, and one of a helper
those of its calls."""


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
            words = frozenset(re.findall(r"[a-z_]+", found[2]))
            for name, number in _PLACE.findall(found[3]):
                if len(self._shown) < MOST:
                    lines += self._excerpt(len(found[1]), words, name, int(number))
        return "\n".join(lines)

    def _excerpt(self, indent: int, words: frozenset[str], name: str, number: int) -> list[str]:
        path = _file(name)
        if path is None or (path, number) in self._shown:
            return []
        try:
            text = load_text(path, LARGEST)
        except OSError:
            return []
        written = text.split("\n")[number - 1 : number]
        # What is no character of a text could move the cursor.
        line = "".join(c if c.isprintable() else " " for c in (written or [""])[0].expandtabs(4))[:WIDTH].rstrip()
        if not line.strip():
            return []
        self._shown.add((path, number))
        whole = (len(line) - len(line.lstrip()), len(line))
        marks = [" "] * len(line)
        is_python = path.suffix == ".py" and len(text) <= LONGEST
        for start, end in (_calls(path, written[0], number, words) if is_python else []) or [whole]:
            marks[start:end] = "^" * (min(end, len(line)) - start)
        margin = " " * (indent + 2)
        return [f"{margin}{number} | {line}", f"{margin}{' ' * len(str(number))} | {''.join(marks).rstrip()}"]


def _calls(path: Path, line: str, number: int, words: frozenset[str]) -> list[tuple[int, int]]:
    """Columns of the calls and operators of a line of Python that `words` name, or of the only call on it."""
    try:
        tree = parse_python(path)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    calls: list[ast.Call | ast.BinOp] = []
    named: list[ast.Call | ast.BinOp] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call | ast.BinOp) or node.lineno != number:
            continue
        if isinstance(node, ast.BinOp):
            named += [node] if _OPERATORS.get(type(node.op)) in words else []
        elif isinstance(node.func, ast.Attribute):
            calls.append(node)
            named += [node] if node.func.attr in words else []
    found = named or (calls if len(calls) == 1 else [])
    # The tree counts bytes, and the excerpt has blanks in place of tabs.
    encoded = line.encode()
    spans = [(node.col_offset, node.end_col_offset if node.end_lineno == number else None) for node in found]
    return [
        (len(encoded[:start].decode().expandtabs(4)), len(encoded[:end].decode().expandtabs(4)))
        for start, end in spans
        if len(encoded[:start].decode().expandtabs(4)) < WIDTH
    ]


def _file(name: str) -> Path | None:
    """The file that an origin names: Python files by their last part, of those that were read or stand beside them."""
    if not name.endswith(".py") or "/" in name:
        return Path(name)
    read = [path for path in files_read() if path.suffix == ".py"]
    named = {path for path in read if path.name == name} or {path.parent / name for path in read}
    there = [path for path in named if path.is_file()]
    return there[0] if len(there) == 1 else None
