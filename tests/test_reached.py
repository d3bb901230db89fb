"""The table of docs/reached.md is what this version reaches; where an all-reduce reaches less, the page says why."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from ahbm.base import packaged

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "reached.md").read_text(encoding="utf-8")


def test_rows_are_as_they_run() -> None:
    names = ["npu_ring_8", "npu_switch_8", "npu_fully_connected_8"]
    command = [sys.executable, str(ROOT / "scripts" / "reached.py"), "--check", *names]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "as on the page\n"), ran.stdout + ran.stderr


def test_what_reaches_less_is_explained() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (\d+) ", PAGE, re.MULTILINE))
    assert sorted(rows) == sorted(path.stem for path in packaged.TOPOLOGIES.glob("*.yaml"))
    explained = set(re.findall(r"^- `(\w+)`:", PAGE, re.MULTILINE))
    assert {name for name, percent in rows.items() if int(percent) < 90} == explained
