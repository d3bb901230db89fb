"""The documentation as a site: every page is in its contents, its generator is given what it needs, and it fetches
nothing. Links between pages are those of `test_docs.py`."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from support.pages import ROOT

SITE = runpy.run_path(str(ROOT / "scripts/site.py"))


class Loader(yaml.SafeLoader):
    """mkdocs.yml without what its own tags mean."""


Loader.add_multi_constructor("", lambda loader, tag, node: None)
CONFIG: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)


def pages(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            (inner,) = entry.values()
            yield from pages(inner) if isinstance(inner, list) else [inner]


def test_every_page_is_in_the_contents_once() -> None:
    listed = list(pages(CONFIG["nav"]))
    assert sorted(listed) == sorted(path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md"))


def test_the_five_paths_begin_with_their_page() -> None:
    first = {name: entries[0] for section in CONFIG["nav"] for name, entries in section.items()}
    assert list(first)[1:6] == [
        "Write an algorithm", "Compare for a paper", "Size a machine", "My training step", "In CI"
    ]  # fmt: skip
    home = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    assert all(f"]({first[name]})" in home for name in list(first)[1:6])


def test_every_page_has_one_title() -> None:
    """The contents show it."""
    for path in ROOT.glob("docs/**/*.md"):
        text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        assert len(re.findall(r"^# ", text, flags=re.MULTILINE)) == 1 and text.startswith("# "), path.name


def test_links_beside_the_pages_lead_to_the_repository() -> None:
    def rewritten(text: str, at: str, repository: str) -> str:
        page = SimpleNamespace(file=SimpleNamespace(src_uri=at))
        found: str = SITE["on_page_markdown"](text, page=page, config=SimpleNamespace(repo_url=repository), files=())
        return found

    home = "https://host.example/owner/ahbm"
    assert rewritten("[a](../examples) [b](c.md)", "x.md", home) == f"[a]({home}/blob/HEAD/examples) [b](c.md)"
    assert rewritten("[a](../examples) [b](c.md)", "x.md", "") == "a [b](c.md)"
    assert rewritten("[a](../jobs.md) [b](../../x)", "records/x.md", "") == "[a](../jobs.md) b"


def test_a_page_that_fetches_is_refused() -> None:
    page, config = (
        SimpleNamespace(file=SimpleNamespace(src_uri="x.md")),
        SimpleNamespace(site_url="https://own.example/"),
    )
    for text in (
        '<script src="https://cdn.example/x.js"></script>',
        "<img alt=x src='//x.example/p.png'>",
        '<link rel="stylesheet" href="https://fonts.example/x.css">',
    ):
        with pytest.raises(SystemExit, match=r"x\.md fetches from elsewhere"):
            SITE["on_post_page"](text, page=page, config=config)
    kept = '<a href="https://x.example">x</a><link rel="canonical" href="https://x.example/"><img src="p.png">'
    assert SITE["on_post_page"](kept, page=page, config=config) == kept


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    if not find_spec("mkdocs") or not find_spec("material"):
        pytest.skip("mkdocs is not installed: pip install .[site]")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(ROOT / "mkdocs.yml"), "-d", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "search/search_index.js").stat().st_size > 100_000
