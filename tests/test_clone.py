"""A reader follows a page in a clone: every block in order, in one folder, and nothing of the clone changes.

README.md is about the project at the top of the clone. The other pages are followed in a folder of the reader's own, as
docs/quick-start.md says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.pages import PAGES, ROOT, blocks, run_block


def git(*arguments: str, cwd: Path) -> str:
    return subprocess.run(["git", *arguments], cwd=cwd, check=True, capture_output=True, text=True).stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.stem not in ("torch", "training")], ids=lambda page: page.stem
)
def test_a_page_is_followed_from_top_to_bottom(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("no clone: these are unpacked sources")
    clone = tmp_path / "ahbm"
    # The sources may belong to somebody else, whom git would not trust.
    (tmp_path / "gitconfig").write_text("[safe]\n\tdirectory = *\n", encoding="utf-8")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    git("clone", "--quiet", "--no-hardlinks", "--depth=1", f"file://{ROOT}", str(clone), cwd=tmp_path)
    folder = clone if page.name == "README.md" else clone / "try"
    folder.mkdir(exist_ok=True)
    monkeypatch.chdir(folder)
    for block in blocks(page):
        if block.runs:
            try:
                run_block(block, folder)
            except Exception as failure:
                raise AssertionError(f"{page.name}:{block.line}: {failure}") from failure
    changed = [line for line in git("status", "--porcelain", cwd=clone).splitlines() if not line.startswith("??")]
    assert not changed
