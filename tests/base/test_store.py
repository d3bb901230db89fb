"""Files are written whole or not at all."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from ahbm.base.store import store

FULL = 100
"""Bytes that a file may have, where the disk is full."""


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_all_files_or_none(tmp_path: Path) -> None:
    one = tmp_path / "one"
    store({one: b"old"})
    with pytest.raises(FileNotFoundError):
        store({one: b"new", tmp_path / "missing/two": b"new"})
    assert one.read_bytes() == b"old" and names(tmp_path) == ["one"]
    one.chmod(0o640)
    store({one: b"new"})
    assert one.read_bytes() == b"new" and one.stat().st_mode & 0o777 == 0o640


def test_a_link_stays_a_link_and_a_device_a_device(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    link.symlink_to(real)
    store({link: b"new"})
    assert link.is_symlink() and real.read_bytes() == b"new"
    store({Path("/dev/null"): b"nothing"})
    assert not Path("/dev/null").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "kept", "code"),
    [
        (["topology", "--svg", "old.svg"], "old.svg", "AHBM-C141"),
        (["ladder", "all_reduce", "-b", "1K", "-e", "1K", "-o", "old.yaml"], "old.yaml", "AHBM-F102"),
        (["new", "fresh"], "ccl.yaml", "AHBM-C141"),
    ],
)
def test_a_full_disk_leaves_what_was_there(tmp_path: Path, command: list[str], kept: str, code: str) -> None:
    text = "algorithms:\n  ring_allreduce: {module: ring_allreduce}\n" if kept == "ccl.yaml" else "old"
    (tmp_path / kept).write_text(text, encoding="utf-8")
    before = names(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "ahbm", *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (FULL, FULL)),
    )
    assert done.returncode not in (0, 1) and code in done.stderr, done.stderr
    assert (tmp_path / kept).read_text(encoding="utf-8") == text and names(tmp_path) == before
