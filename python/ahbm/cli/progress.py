"""How far a command is: one line on standard error that the next one erases, and the answer to Ctrl-C.

Shown on a terminal, unless JSON goes elsewhere; with AHBM_PROGRESS=1 anywhere, and of sweeps, as lines of their own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from dataclasses import dataclass

EVERY_S = 2.0
"""Seconds between lines of their own, at least."""


@dataclass
class _State:
    where: str = ""
    drawn: bool = False
    """Whether a line stands that is to be erased."""
    shown_s: float = 0.0


_state = _State()


def begin() -> None:
    """A command begins: it is nowhere yet."""
    vars(_state).update(vars(_State()))


def at(where: str, *, lines: bool = False) -> None:
    """The command does this now. `lines`: of a command that takes long, lines where there is no terminal."""
    _state.where = where
    if _wanted():
        width = shutil.get_terminal_size().columns - 1
        _write(f"\r\x1b[K{where[:width]}")
        _state.drawn = True
    elif (lines or os.environ.get("AHBM_PROGRESS") == "1") and time.monotonic() - _state.shown_s >= EVERY_S:
        _state.shown_s = time.monotonic()
        _write(f"# {where}\n")


def clear() -> None:
    """Erases the line: something else is written."""
    if _state.drawn:
        _write("\r\x1b[K")
        _state.drawn = False


def where() -> str:
    """What the command does; empty where it has not said."""
    return _state.where


def _wanted() -> bool:
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return False
    return sys.stdout.isatty() or not {"--json", "--json-lines"} & set(sys.argv)


def _write(text: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()
