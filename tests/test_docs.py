"""Runs every code block of README.md, docs/ and tests/walks/, as `support.pages` says.

The blocks of a page run in order, in one directory that is empty at first.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ahbm.base import packaged
from support.commands import run
from support.pages import FILE, PAGES, ROOT, WALKS, blocks, run_block


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).with_suffix("").as_posix().removeprefix("docs/").removeprefix("tests/walks/")


PAGE_TESTS = [
    *(pytest.param(page, False, id=name_of(page)) for page in [*PAGES, *WALKS]),
    pytest.param(ROOT / "README.md", True, id="README, in a clone"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "in_clone"), PAGE_TESTS)
def test_page(page: Path, in_clone: bool, here: Path) -> None:
    """A reader follows a page from top to bottom. README.md changes nothing of the project at the top of a clone."""
    if "torch" in page.stem or page.stem == "training":
        pytest.importorskip("torch", reason="torch is not installed: pip install .[torch]")
    if in_clone:
        assert run("ahbm", ["init"], here)[0] == 0
    project = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    for block in blocks(page):
        if block.runs:
            try:
                run_block(block, here)
            except Exception as failure:
                raise AssertionError(f"{page.name}:{block.line}: {failure}") from failure
    assert [path for path, content in project.items() if path.read_bytes() != content] == []


def test_every_block_is_found() -> None:
    """No fence is overlooked: an unknown language is an error of `run_block`, an unclosed fence one here."""
    for page in [*PAGES, *WALKS]:
        fences = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("```")]
        assert len(fences) == 2 * len(list(blocks(page))), page.name


def test_files_that_pages_name_exist() -> None:
    """A page that walks through the sources goes out of date as soon as one of them moves."""
    gone = {
        f"{page.name}: {name}"
        for page in [*PAGES, ROOT / "CONTRIBUTING.md"]
        if page.name != "changes.md"  # a diary: files are where they were
        for name in re.findall(
            r"`((?:rust|python|tests|benches|scripts|docs)/[\w./-]+)`", page.read_text(encoding="utf-8")
        )
        if not (ROOT / name).exists()
    }
    assert gone == set()


def anchors(page: Path) -> set[str]:
    """Those that GitHub gives the headings of a page: in small letters, hyphens for blanks, all else but letters,
    digits, hyphens and underscores left out; of equal ones, all but the first are numbered."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found, times = set[str](), Counter[str]()
    for heading in re.findall(r"^#+ +(.+?) *$", text, flags=re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w -]", "", plain).replace(" ", "-")
        found.add(f"{name}-{times[name]}" if times[name] else name)
        times[name] += 1
    return found


def test_links_between_pages_lead_somewhere() -> None:
    more = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "changelog.d/README.md")
    for page in [*PAGES, *(ROOT / name for name in more)]:
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8")):
            file = page.parent / target if target else page
            assert file.exists(), f"{page.name} links to {target}"
            if anchor and file.suffix == ".md":
                assert anchor in anchors(file), f"{page.name} links to {target}#{anchor}"


def test_anchors_are_those_of_headings(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# MSCCL++ scripts\n## `topology.yaml`: a_b\n## Twice\n## Twice\n```\n# code\n```\n")
    assert anchors(page) == {"msccl-scripts", "topologyyaml-a_b", "twice", "twice-1"}


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


def test_no_page_changes_a_file_of_the_clone() -> None:
    """README.md shows the project at the top of the clone to the letter.

    The other pages are followed in a folder of the reader's own, and name no file that the clone has but those that
    AHBM reads wherever it runs.
    """
    shown = set()
    for page in PAGES:
        for block in blocks(page):
            named = FILE.match(block.text)
            if named is None or not (file := ROOT / named[1]).exists():
                continue
            assert page.name == "README.md" or named[1] in ("ccl.yaml", "topology.yaml"), f"{page.name}:{block.line}"
            if page.name == "README.md":
                assert block.text == file.read_text(encoding="utf-8"), f"{named[1]} is not as README.md shows it"
                shown.add(named[1])
    assert shown == {"ccl.yaml", "algorithms/my_allreduce.py"}


def test_packaged_files_cannot_be_changed_through_a_link() -> None:
    for path in packaged.ROOT.rglob("*"):
        assert not path.is_symlink(), f"{path} can be changed by whoever works in the clone"
