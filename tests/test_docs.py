"""Runs every code block of README.md and docs/.

The blocks of a page run in order, in an empty directory:

* ```python / ```yaml / ```csv whose first line is `# some/file.ext` are written to that file;
* other ```python blocks run as scripts of their own;
* other ```yaml blocks must name existing keys of topology.yaml or ccl.yaml: they are applied as overrides;
* ```console: each line `$ ahbm ...`, `$ python ...` or `$ pytest ...` runs and must exit with 0 (or with N after a
  trailing `# exits N`); the lines below it, if any, are its expected output, where `...` matches anything.

```sh and ```text blocks are for the reader (cloning, building) and are not run.

A page is several tests, one for each chain of blocks that have files in common (`chains`), so that no page holds up
the others. A chain has a directory of its own.
"""

from __future__ import annotations

import doctest
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from ahbm.base import packaged
from ahbm.config.ccl import CclConfig, split_overrides
from ahbm.config.topology import load_machine
from support.commands import PROGRAMS, run

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# ([\w./-]+\.\w+)\n")
MENTIONED = re.compile(r"[\w./-]*\w\.(?:py|yaml|csv|json|xml|et|html|svg|pftrace)\b|(?<=-o )\w+\b|(?<=--et )\w+\b")
"""Names of files in a block, and of the folders that a command writes."""
READ_UNASKED = re.compile(r"(?:^|[ /])(ccl\.yaml|topology\.yaml)$|\bahbm new\b", re.MULTILINE)
"""A block that writes what every later block of its page reads without saying so."""


@dataclass(frozen=True)
class Block:
    """One fenced block of a page: its language, text and line number."""

    language: str
    text: str
    line: int

    @property
    def runs(self) -> bool:
        return self.language not in ("sh", "text")

    def files(self) -> set[str]:
        return {name.rpartition("/")[2] for name in MENTIONED.findall(self.text)}

    def configures(self) -> bool:
        return bool(READ_UNASKED.search(self.text))


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        yield Block(match[1], match[2], text.count("\n", 0, match.start()) + 1)


def chains(found: list[Block]) -> list[list[Block]]:
    """The blocks in groups that can run apart, each in the order of the page."""
    groups: list[list[Block]] = []
    for block in found:
        joined = [
            group for group in groups if any(other.configures() or block.files() & other.files() for other in group)
        ]
        groups = [group for group in groups if group not in joined]
        groups.append(sorted([*(other for group in joined for other in group), block], key=lambda other: other.line))
    return sorted(groups, key=lambda group: group[0].line)


def run_console(text: str, cwd: Path) -> None:
    for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
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


def chain_tests() -> Iterator[Any]:
    for page in PAGES:
        name = page.relative_to(ROOT).with_suffix("").as_posix().removeprefix("docs/")
        for chain in chains([block for block in blocks(page) if block.runs]):
            yield pytest.param(page, chain, id=f"{name}:{chain[0].line}")


@pytest.mark.slow
@pytest.mark.parametrize(("page", "chain"), list(chain_tests()))
def test_page(page: Path, chain: list[Block], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.stem == "torch":
        pytest.importorskip("torch", reason="torch is not installed: pip install .[torch]")
    monkeypatch.chdir(tmp_path)
    for block in chain:
        try:
            run_block(block, tmp_path)
        except Exception as failure:
            raise AssertionError(f"{page.name}:{block.line}: {failure}") from failure


def test_blocks_that_share_files_stay_together_and_in_order() -> None:
    def group(*texts: str) -> list[list[int]]:
        return [
            [block.line for block in chain] for chain in chains([Block("console", t, n) for n, t in enumerate(texts)])
        ]

    assert group("$ ahbm list\n", "$ ahbm probe\n") == [[0], [1]]
    assert group("# a.py\nopen('b.xml')\n", "$ ahbm list\n", "$ ahbm check b.xml\n") == [[0, 2], [1]]
    assert group("# a.py\n", "# b.py\n", "$ python a.py\n$ python b.py\n") == [[0, 1, 2]]
    assert group("$ ahbm list\n", "# ccl.yaml\n", "$ ahbm list\n", "$ ahbm probe\n") == [[0], [1, 2, 3]]
    assert group("$ ahbm synth -o out\n", "import out\n", "$ ahbm check -o out\n") == [[0, 2], [1]]


def test_every_page_is_in_a_chain() -> None:
    """No fence is overlooked: an unknown language is an error of `run_block`, an unclosed fence one here."""
    for page in PAGES:
        fences = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("```")]
        assert len(fences) == 2 * len(list(blocks(page))), page.name


def test_files_that_pages_name_exist() -> None:
    """A page that walks through the sources goes out of date as soon as one of them moves."""
    gone = {
        f"{page.name}: {name}"
        for page in [*PAGES, ROOT / "CONTRIBUTING.md"]
        for name in re.findall(
            r"`((?:rust|python|tests|benches|scripts|docs)/[\w./-]+)`", page.read_text(encoding="utf-8")
        )
        if not (ROOT / name).exists()
    }
    assert gone == set()


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[\w-]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_dependency_has_its_reason() -> None:
    """docs/architecture.md says of each dependency of the crates and of the package why it is there."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8").partition("## Dependencies")[2]
    manifests = [tomllib.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "rust").glob("*/Cargo.toml")]
    names = {
        name for manifest in manifests for name in manifest.get("dependencies", {}) if not name.startswith("ahbm-")
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names |= {re.split(r"[<>=]", need)[0] for need in project["dependencies"]}
    assert {name for name in names if not re.search(rf"\b{name}\b", text)} == set()


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
    schema = packaged.SCHEMAS / "topology.schema.json"
    keys = dict(topology_keys(json.loads(schema.read_text(encoding="utf-8"))))
    wanted = {key: value.get("default", []) for key, value in keys.items()}
    defaults = yaml.safe_load(packaged.CCL.read_text(encoding="utf-8"))["defaults"]
    wanted |= {f"defaults.{key}": value for key, value in defaults.items()}
    shown = {key: "" if value == [] else f"`{json.dumps(value).strip(chr(34))}`" for key, value in wanted.items()}
    assert {key: rows.get(key) for key in shown} == shown


def test_no_page_writes_a_file_of_the_package() -> None:
    """A reader who follows a page inside the clone leaves the packaged files, and so every later run, as they are."""
    for page in PAGES:
        for block in blocks(page):
            named = FILE.match(block.text)
            assert not (named and (ROOT / named[1]).exists()), (
                f"{page.name}:{block.line} writes {named[1]} of the clone"
            )
    for path in packaged.ROOT.rglob("*"):
        assert not path.is_symlink(), f"{path} can be changed by whoever works in the clone"
