"""How far a command is, on standard error."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from ahbm.cli import progress
from support.commands import run


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "argv", ["ahbm", "bench"])
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    progress.begin()
    return stream


def test_a_terminal_shows_one_line_that_is_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = terminal(monkeypatch)
    progress.at("row 1 of 2")
    progress.at("x" * 50)
    progress.clear()
    progress.clear()
    assert shown.getvalue() == f"\r\x1b[Krow 1 of 2\r\x1b[K{'x' * 19}\r\x1b[K"
    assert progress.where() == "x" * 50
    progress.begin()
    assert progress.where() == ""


def test_json_for_a_pipe_is_accompanied_by_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = terminal(monkeypatch)
    monkeypatch.setattr(sys, "argv", ["ahbm", "bench", "--json"])
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    progress.at("row 1 of 2")
    assert not shown.getvalue() and progress.where() == "row 1 of 2"


def test_lines_elsewhere_are_asked_for_and_few(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    progress.begin()
    progress.at("row 1 of 9")
    monkeypatch.setenv("AHBM_PROGRESS", "1")
    for row in range(2, 9):
        progress.at(f"row {row} of 9")
    assert capsys.readouterr().err == "# row 2 of 9\n"


@pytest.mark.parametrize(
    ("arguments", "last"),
    [
        (["bench", "all_reduce", "--sizes", "1K,4K", "-a", "ring_allreduce"], "4,096 B by ring_allreduce, row 2 of 2"),
        (
            ["ladder", "all_gather", "-t", "npu_ring_8", "--sizes", "4K", "--synth", "ring"],
            "4,096 B by synth_ring, row 5 of 5",
        ),
        (["explore", "all_reduce", "--seeds", "2"], "seed 1, 2 of 2, 0 failed"),
        (["numerics", "all_reduce", "--seeds", "2"], "random numbers 2 of 2"),
        (["synth", "all_gather", "-t", "npu_ring_8", "--size", "4K"], "synthesizing all_gather, method auto"),
        (["compare", "all_reduce", "-t", "npu_ring_8", "-t", "npu_mesh_4x4", "--sizes", "1K"], "row 1 of 1"),
    ],
)
def test_long_commands_say_where_they_are(arguments: list[str], last: str, tmp_path: Path) -> None:
    code, _, err = run("ahbm", arguments, tmp_path)
    assert code == 0 and not err and progress.where().endswith(last)
