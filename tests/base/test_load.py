"""Files that a user names are read whole, bounded, and nothing else than files."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from ahbm.base.load import load_bytes, load_text, parse_python


def test_no_more_than_the_bound(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a\r\nb\rc\n")
    assert load_bytes(path) == load_bytes(str(path), 7) == b"a\r\nb\rc\n"
    assert load_text(path) == "a\nb\nc\n"
    with pytest.raises(OSError, match="more than 6 bytes"):
        load_bytes(path, 6)
    path.write_bytes(b"ab\xff")
    with pytest.raises(OSError, match="no UTF-8 text at byte 2"):
        load_text(path)


def test_nothing_but_files_and_pipes(tmp_path: Path) -> None:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "socket"))
    for other in (tmp_path, "/dev/zero", "/dev/null", tmp_path / "socket", tmp_path / "missing", "\x00", "\ud800"):
        with pytest.raises(OSError):
            load_bytes(other)
    listening.close()


def test_a_pipe_is_read_and_one_that_nobody_writes_to_is_empty(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert load_bytes(pipe) == b""
    read, write = os.pipe()
    writer = threading.Timer(0.05, lambda: (os.write(write, b"late"), os.close(write)))
    writer.start()
    assert load_bytes(f"/dev/fd/{read}") == b"late"
    writer.join()
    os.close(read)


def test_python_is_parsed_and_not_run(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("raise SystemExit", encoding="utf-8")
    assert len(parse_python(file).body) == 1
    file.write_text("def", encoding="utf-8")
    with pytest.raises(SyntaxError):
        parse_python(file)
