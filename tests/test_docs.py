"""Runs every code block of README.md and docs/*.md.

The blocks of a page run in order in one empty directory:

* ```python / ```yaml whose first line is `# some/file.ext` are written to that file;
* other ```python blocks run as scripts of their own;
* other ```yaml blocks must name existing keys of topology.yaml or ccl.yaml: they are applied as overrides;
* ```console: each line `$ ahbm ...`, `$ python ...` or `$ pytest ...` runs and must exit with 0 (or with N after a
  trailing `# exits N`); the lines below it, if any, are its expected output, where `...` matches anything.

```sh and ```text blocks are for the reader (cloning, building) and are not run.
"""

from __future__ import annotations

import doctest
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from ahbm.config import CclConfig, split_overrides
from ahbm.topology import load_machine

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# ([\w./-]+\.\w+)\n")
PROGRAMS = {
    "ahbm": [sys.executable, "-c", "from ahbm.cli import main; main()"],
    "python": [sys.executable],
    "pytest": [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
}


@dataclass(frozen=True)
class Block:
    """One fenced block of a page: its language, text and line number."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        yield Block(match[1], match[2], text.count("\n", 0, match.start()) + 1)


def run(command: list[str], expected_exit: int, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("AHBM_", "PYTEST_"))}
    environment |= {"NO_COLOR": "1", "COLUMNS": "120", "TERM": "dumb"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == expected_exit, f"exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def run_console(text: str, cwd: Path) -> None:
    for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
        words, _, note = command.partition("# exits ")
        program, *arguments = shlex.split(words, comments=True)
        assert program in PROGRAMS, f"`{program}` cannot be run here; use a sh block"
        target = None
        if ">" in arguments:
            arguments, (_, target) = arguments[:-2], arguments[-2:]
        got = run(PROGRAMS[program] + arguments, int(note or 0), cwd)
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
    if block.language in ("python", "yaml") and named:
        target = cwd / named[1]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(block.text, encoding="utf-8")
    elif block.language == "python":
        script = cwd / f"line_{block.line}.py"
        script.write_text(block.text, encoding="utf-8")
        run([sys.executable, str(script)], 0, cwd)
    elif block.language == "yaml":
        apply_fragment(block.text)
    elif block.language == "console":
        run_console(block.text, cwd)
    else:
        assert block.language in ("sh", "text"), f"unknown block language {block.language!r}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.stem == "torch":
        pytest.importorskip("torch", reason="torch is not installed: pip install .[torch]")
    monkeypatch.chdir(tmp_path)
    for block in blocks(page):
        try:
            run_block(block, tmp_path)
        except Exception as failure:
            raise AssertionError(f"{page.name}:{block.line}: {failure}") from failure


def test_every_error_code_is_documented() -> None:
    """docs/errors.md and the sources name the same codes."""
    sources = [*(ROOT / "rust").glob("*/src/**/*.rs"), *(ROOT / "python/ahbm").rglob("*.py")]
    raised = {code for path in sources for code in re.findall(r'"(AHBM-[A-Z]\d{3})"', path.read_text(encoding="utf-8"))}
    documented = set(re.findall(r"AHBM-[A-Z]\d{3}", (ROOT / "docs/errors.md").read_text(encoding="utf-8")))
    assert documented == raised


def topology_keys(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every key of the topology schema, as the documentation spells it."""
    for key, value in schema.get("properties", {}).items():
        here = f"{path}.{key}" if path else key
        if value.get("additionalProperties"):
            yield from topology_keys(value["additionalProperties"], f"{here}.<name>")
        elif "properties" in value:
            yield from topology_keys(value, here)
        else:
            yield here, value
            yield from topology_keys(value.get("items", {}), f"{here}[]")


def test_every_parameter_is_documented_with_its_default() -> None:
    """docs/machine-model.md has a row `| `key` | `default` | ...` for each key of topology.yaml and ccl.yaml."""
    text = (ROOT / "docs/machine-model.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([^`]+)` \| (.*?) \|", text, re.MULTILINE))
    keys = dict(topology_keys(json.loads((ROOT / "schemas/topology.schema.json").read_text(encoding="utf-8"))))
    wanted = {key: value.get("default", []) for key, value in keys.items()}
    defaults = yaml.safe_load((ROOT / "ccl.yaml").read_text(encoding="utf-8"))["defaults"]
    wanted |= {f"defaults.{key}": value for key, value in defaults.items()}
    shown = {key: "" if value == [] else f"`{json.dumps(value).strip(chr(34))}`" for key, value in wanted.items()}
    assert {key: rows.get(key) for key in shown} == shown
