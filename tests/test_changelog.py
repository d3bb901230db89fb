"""The changelog, and the files of `changelog.d` that become its next part."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import ahbm

ROOT = Path(__file__).parent.parent
FRAGMENTS = ROOT / "changelog.d"
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["towncrier"]
TYPES = {kind["directory"]: kind["name"] for kind in SETTINGS["type"]}
CHANGELOG = (ROOT / SETTINGS["filename"]).read_text(encoding="utf-8")
LONGEST = 400
"""Characters of an entry."""
RELEASE = re.compile(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def faults(name: str, text: str) -> list[str]:
    """What is wrong with a file of `changelog.d`, by its name and its text."""
    found = []
    named = re.fullmatch(r"\+[a-z0-9]+(?:-[a-z0-9]+)*\.([a-z]+)\.md", name)
    if named is None:
        found.append("its name is not +NAME.TYPE.md")
    elif named[1] not in TYPES:
        found.append(f"its type is none of {', '.join(TYPES)}")
    if "\n\n" in text.strip() or re.match(r"\s*[-*#]", text):
        found.append("it is not one paragraph")
    if not re.match(r"[A-Z`]", text) or not text.endswith(".\n"):
        found.append("it does not begin with a capital letter or a code and end with a full stop")
    if len(text) > LONGEST:
        found.append(f"it has more than {LONGEST} characters")
    return found


def test_every_fragment_is_well_formed() -> None:
    files = sorted(path for path in FRAGMENTS.iterdir() if path.name != "README.md")
    assert {path.name: found for path in files if (found := faults(path.name, path.read_text("utf-8")))} == {}


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("+list-tables.run.md", "`ahbm list` has the bandwidth of every machine.\n", ""),
        ("list-tables.run.md", "`ahbm list` has more.\n", "name"),
        ("+List.run.md", "`ahbm list` has more.\n", "name"),
        ("+list.feature.md", "`ahbm list` has more.\n", "type"),
        ("+list.run.md", "- `ahbm list` has more.\n", "paragraph"),
        ("+list.run.md", "More.\n\nAnd more.\n", "paragraph"),
        ("+list.run.md", "more of it.\n", "capital"),
        ("+list.run.md", "More of it", "full stop"),
        ("+list.run.md", "", "full stop"),
        ("+list.run.md", f"More {'and more ' * 50}.\n", "characters"),
    ],
)
def test_a_fault_of_a_fragment_is_named(name: str, text: str, fault: str) -> None:
    found = faults(name, text)
    assert any(fault in one for one in found) if fault else not found


def test_the_page_of_the_fragments_lists_the_types() -> None:
    page = (FRAGMENTS / "README.md").read_text(encoding="utf-8")
    assert dict(re.findall(r"^\| `(\w+)` \| (.*?) \|$", page, re.MULTILINE)) == TYPES
    assert f"at most {LONGEST} characters" in page


def test_the_newest_release_is_this_one_and_short() -> None:
    assert CHANGELOG.count(SETTINGS["start_string"]) == 1
    releases = RELEASE.findall(CHANGELOG.partition(SETTINGS["start_string"])[2])
    version, date, text = releases[0]
    assert version == ahbm.__version__
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(citation["date-released"]) == date
    assert [release[1] for release in releases] == sorted((release[1] for release in releases), reverse=True)
    assert len(CHANGELOG.splitlines()) <= 120 * len(releases)
    headings = re.findall(r"^### (.*)$", text, re.MULTILINE)
    assert headings == [name for name in TYPES.values() if name in headings]
