"""The loops around the lines of a program."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from ahbm.dsl.loops import MOST, loops


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("for a in b:\n  c\nelse:\n  d\ne", {2: ("a",)}),
        ("for a in b: c", {1: ("a",)}),
        (
            "for a, (b, *c) in d:\n  for a in e:\n    f\n  g",
            {2: ("a", "b", "c"), 3: ("a", "b", "c"), 4: ("a", "b", "c")},
        ),
        ("for a in b:\n  def c():\n    d\n    for e in f:\n      g\n  h", {2: ("a",), 5: ("e",), 6: ("a",)}),
        ("for a in b:\n  class C:\n    d", {2: ("a",)}),
        ("async def f():\n  async for a in b:\n    with c:\n      if d:\n        e", dict.fromkeys((3, 4, 5), ("a",))),
        ("for a.b in c:\n  d", {}),
        ("for _, a in b:\n  for _ in c:\n    d", {2: ("a",), 3: ("a",)}),
        ("while a:\n  b", {}),
        ("no python at all", {}),
        ("x = '\0'", {}),
    ],
)
def test_loops(tmp_path: Path, source: str, found: dict[int, tuple[str, ...]]) -> None:
    path = tmp_path / "program.py"
    path.write_text(source, encoding="utf-8")
    assert loops(str(path)) == found


def test_the_innermost_loops_count(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    lines = [f"{' ' * depth}for v{depth} in x:" for depth in range(MOST + 2)]
    path.write_text("\n".join([*lines, " " * (MOST + 2) + "y"]), encoding="utf-8")
    assert loops(str(path))[MOST + 3] == tuple(f"v{depth}" for depth in range(2, MOST + 2))


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    assert loops(str(path)) == {}
    for name in ("one", "another"):
        path.write_text(textwrap.dedent(f"for {name} in x:\n  y"), encoding="utf-8")
        assert loops(str(path)) == {2: (name,)}
