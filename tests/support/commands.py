"""Command lines, run as a reader runs them; `ahbm` without a process of its own, except for scripts."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import subprocess
import sys
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any
from unittest import mock

import typer.main

from ahbm.cli import app, main
from ahbm.cli.app import MODULES, PANELS
from support.forks import forked

PROGRAMS = {
    "ahbm": [sys.executable, "-m", "ahbm"],
    "python": [sys.executable],
    "pytest": [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
}
LIMIT_S = 120
IMPORTED = (
    *("numpy", "numpy.ma", "numpy.random", "pydantic", "ahbm.distributed", "ahbm.job.open", "ahbm.job.replay"),
    *("ahbm.dsl.loops", "ahbm.dsl.mscclpp", "ahbm.source.dsl", "ahbm.source.synthesis", "ahbm.table.nccl"),
    *("ahbm.runs.advice", "ahbm.runs.explanation", "ahbm.runs.inspection", "ahbm.runs.plans", "ahbm.runs.verdict"),
    *(f"ahbm.cli.{MODULES.get(name, name)}" for name in chain(*PANELS.values())),
    *(("torch", "torch.distributed", "torch.nn.parallel") if find_spec("torch") else ()),
)
"""What most commands and scripts import; where torch is installed, its pages are what is run."""


def environment() -> dict[str, str]:
    """A reader's: nothing of AHBM or pytest, and a terminal without colours, 120 columns wide."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("AHBM_", "PYTEST_"))}
    return kept | {"NO_COLOR": "1", "COLUMNS": "120", "TERM": "dumb"}


@functools.cache
def application() -> Any:
    """The application, made once: to make all of its commands takes longer than most of them take."""
    return typer.main.get_command(app)


def commands() -> dict[str, Any]:
    """Every command of `ahbm`, by its name."""
    root = application()
    context = typer.Context(root)
    return {name: root.get_command(context, name) for name in root.list_commands(context)}


def run(program: str, arguments: list[str], cwd: Path, tame: bool = False) -> tuple[int, str, str]:
    """Exit code, standard output and standard error. tame: a script among the arguments leaves nothing behind, and is
    run in this process."""
    if program == "ahbm" and (tame or not any(argument.endswith(".py") for argument in arguments)):
        return _in_process(arguments, cwd)
    done = apart(PROGRAMS[program][1:] + arguments, cwd)
    return done.returncode, done.stdout, done.stderr


def apart(arguments: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """`python ARGUMENTS...` in a process of its own, by an interpreter that starts for it only where it must."""
    how = environment()
    if (arguments[0] != "-m" and arguments[0].startswith("-")) or arguments[:2] == ["-m", "pytest"]:
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=cwd, env=how, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return forked(IMPORTED, arguments, [how], cwd, LIMIT_S)


def _in_process(arguments: list[str], cwd: Path) -> tuple[int, str, str]:
    """`ahbm` in this process: starting an interpreter takes longer than most commands. A script is not run this way,
    since it may leave anything behind."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(cwd),
        mock.patch.dict(os.environ, environment(), clear=True),
        mock.patch.object(sys, "argv", ["ahbm", *arguments]),
        mock.patch("ahbm.cli.app", application()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
        else:
            code = 0
    return code, out.getvalue(), err.getvalue()
