"""Five users' first hours: each page of this folder is followed from top to bottom, in one folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.pages import blocks, run_block

WALKS = sorted(Path(__file__).parent.glob("*.md"))


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.stem)
def test_a_walk_ends_without_a_dead_end(walk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if walk.stem == "pytorch_user":
        pytest.importorskip("torch", reason="torch is not installed: make torch")
    monkeypatch.chdir(tmp_path)
    for block in blocks(walk):
        if block.runs:
            try:
                run_block(block, tmp_path)
            except Exception as failure:
                raise AssertionError(f"{walk.name}:{block.line}: {failure}") from failure
