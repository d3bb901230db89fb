"""The page that has the user's documents row by row: every row works, by a command that the page's test runs."""

from __future__ import annotations

import re

from support.pages import ROOT, blocks

PAGE = ROOT / "docs/audit.md"


def test_every_row_works_by_a_command_of_the_page() -> None:
    rows = re.findall(r"^\| (\d+) \| .* \| (\w+) \| `(.*)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [int(number) for number, _, _ in rows] == list(range(1, 20))
    ran = [line[2:] for block in blocks(PAGE) if block.runs for line in block.text.splitlines() if line[:2] == "$ "]
    for number, state, command in rows:
        assert state == "works", number
        assert any(line.startswith(command) for line in ran), command
