"""The fenced blocks of a page, run as a reader runs them.

* ```python / ```yaml / ```csv whose first line is `# some/file.ext` are written to that file;
* other ```python blocks run as scripts of their own;
* other ```yaml blocks must name existing keys of topology.yaml or ccl.yaml: they are applied as overrides;
* ```console: each line `$ ahbm ...`, `$ python ...` or `$ pytest ...` runs and must exit with 0 (or with N after a
  trailing `# exits N`; one with a trailing `# with torch` runs where torch is installed); the lines below it, if any,
  are its expected output, where `...` matches anything.

```sh and ```text blocks are for the reader (cloning, building) and are not run.
"""

from __future__ import annotations

import doctest
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import yaml

from ahbm.config.ccl import CclConfig, split_overrides
from ahbm.config.topology import load_machine
from support.commands import PROGRAMS, run

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WALKS = sorted((ROOT / "tests/walks").glob("*.md"))
"""The first hours of five users."""
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# ([\w./-]+\.\w+)\n")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page: its language, text and line number."""

    language: str
    text: str
    line: int

    @property
    def runs(self) -> bool:
        return self.language not in ("sh", "text")


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        yield Block(match[1], match[2], text.count("\n", 0, match.start()) + 1)


def run_console(text: str, cwd: Path) -> None:
    for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
        command, optional, _ = command.partition("# with torch")
        if optional and find_spec("torch") is None:
            continue
        words, _, note = command.partition("# exits ")
        program, *arguments = shlex.split(words, comments=True)
        assert program in PROGRAMS, f"`{program}` cannot be run here; use a sh block"
        target = None
        if ">" in arguments:
            arguments, (_, target) = arguments[:-2], arguments[-2:]
        code, out, err = run(program, arguments, cwd)
        got = out + err
        assert code == int(note or 0), f"$ {command}\nexit {code}\n{got}"
        if target is not None:
            (cwd / target).write_text(got, encoding="utf-8")
        if expected.strip():
            flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            assert doctest.OutputChecker().check_output(expected, got, flags), (
                f"$ {command}\nexpected:\n{expected}\ngot:\n{got}"
            )


def flatten(tree: dict[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def apply_fragment(text: str) -> None:
    for_topology, for_ccl = split_overrides(dict(flatten(yaml.safe_load(text))))
    load_machine(None, for_topology)
    CclConfig.load(overrides=for_ccl)


def run_block(block: Block, cwd: Path) -> None:
    named = FILE.match(block.text)
    if block.language in ("python", "yaml", "csv") and named:
        target = cwd / named[1]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(block.text, encoding="utf-8")
    elif block.language == "python":
        script = cwd / f"line_{block.line}.py"
        script.write_text(block.text, encoding="utf-8")
        code, out, err = run("python", [script.name], cwd)
        assert code == 0, out + err
    elif block.language == "yaml":
        apply_fragment(block.text)
    elif block.language == "console":
        run_console(block.text, cwd)
    else:
        assert block.language in ("sh", "text"), f"unknown block language {block.language!r}"
