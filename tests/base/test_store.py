"""Files are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from ahbm.base.store import make_folders, store
from support.commands import run

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


def test_a_pipe_needs_a_reader(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="a pipe that nobody reads"):
        store({pipe: b"text"})
    content = b"text" * 100_000  # more than a pipe holds
    with (tmp_path / "read").open("wb") as copied, subprocess.Popen(["cat", str(pipe)], stdout=copied) as reader:
        while reader.poll() is None:
            with contextlib.suppress(OSError):
                store({pipe: content})
                break
        reader.wait(30)
    assert (tmp_path / "read").read_bytes() == content


WRITERS = [
    "run all_reduce -t npu_ring_8 --trace pipe.pftrace",
    "run all_reduce -t npu_ring_8 --et pipe",
    "report all_reduce -t npu_ring_8 -e 1K --no-explain -o pipe.html",
    "topology npu_ring_8 --svg pipe.svg",
    "synth all_gather -t npu_ring_8 --size 1K -o pipe.xml",
    "convert -a ring_allreduce pipe.xml",
    "ladder all_reduce -t npu_ring_8 -e 4K -o pipe.yaml",
    "job new --layers 1 --hidden 64 --sequence 8 --dp 8 -o pipe",
]


@pytest.mark.parametrize("words", WRITERS)
def test_every_command_refuses_a_pipe_that_nobody_reads(words: str, tmp_path: Path) -> None:
    for name in ("pipe.pftrace", "pipe.0.et", "pipe.html", "pipe.svg", "pipe.xml", "pipe.yaml"):
        os.mkfifo(tmp_path / name)
    code, _, err = run("ahbm", words.split(), tmp_path)
    assert code in (3, 13) and "AHBM-" in err and "pipe that nobody reads" in err


def test_folders_may_be_deep(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a"] * 1500)
    make_folders(deep)
    make_folders(deep)
    assert deep.is_dir()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileExistsError):
        make_folders(tmp_path / "file")
    with pytest.raises(OSError, match="too long"):
        make_folders(tmp_path.joinpath(*["b"] * 5000))
    while deep != tmp_path:
        deep.rmdir()
        deep = deep.parent


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
