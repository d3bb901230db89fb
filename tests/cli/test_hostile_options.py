"""Whatever an option or an argument of a command is given: it works, or an error names what is wrong."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import ahbm
from ahbm.cli import main
from support import astra_files
from support.commands import application, commands, environment

HOSTILE = [
    "",
    " ",
    "x",
    "-1",
    "0",
    "9" * 30,
    "1.5",
    "nan",
    "inf",
    "=",
    "x=",
    ",",
    "k" * 10_000,
    "\udcff\udcfe",
    "é\u2028",
    ".",
]
KEYS = [
    f"{key}={value}"
    for key in ("system.sips.count", "defaults.n_elem", "algorithms.x.module", "k" * 10_000)
    for value in ("", "-1", "9" * 30, "[", "{x", "nan", "\udcff")
]
SMALL = ["-t", "npu_ring_8", "-a", "ring_allreduce"]
BASE: dict[str, list[str]] = {
    "astra": astra_files.OPTIONS,
    "bench": ["all_reduce", "-b", "64", "-e", "64", *SMALL],
    "calibrate": ["measured.csv"],
    "check": ["plan.xml"],
    "compare": ["run.json", "run.json"],
    "convert": ["plan.xml", "other.json"],
    "explain": ["all_reduce", "--size", "64", *SMALL],
    "explore": ["all_reduce", "--seeds", "1", "--size", "64", *SMALL],
    "features": ["ring_allreduce", "--size", "64"],
    "init": ["mine"],
    "inspect": ["all_reduce", "--size", "64", *SMALL],
    "job": ["new", "tiny.yaml", "-o", "step", "--layers", "1", "--micro-batches", "1"],
    "ladder": ["all_reduce", "-b", "64", "-e", "64", *SMALL],
    "list": [],
    "new": ["fresh"],
    "numerics": ["--seeds", "1", "--size", "64"],
    "paper": ["--small"],
    "plan": [
        *("tiny.yaml", "-t", "dgx_h100", "--ranks", "2", "--batch", "2", "--tp", "1", "--recompute", "none"),
        *("--zero", "0", "--schedule", "1f1b"),
    ],
    "probe": [],
    "report": ["all_reduce", "-b", "64", "-e", "64", "--no-explain", *SMALL],
    "run": ["all_reduce", "--size", "64", *SMALL],
    "sweep": ["space.yaml", "-o", "rows"],
    "synth": ["all_gather", "-b", "1K", "-t", "ring_1d"],
    "topology": [],
    "view": ["--port", "0"],
    "tune": ["all_reduce", "-t", "npu_ring_8", "--sizes", "64", "-a", "ring_allreduce", "-o", "tuned"],
}


def parameters() -> Iterator[tuple[str, Any]]:
    for name, command in sorted(commands().items()):
        for parameter in command.params:
            yield name, parameter


def spelled(command: str, parameter: Any, value: str) -> list[str] | None:
    """The command line with `value` for a parameter; None where the parameter takes none."""
    base = [*BASE[command]]
    for at in [at for at, word in enumerate(base) if word in parameter.opts]:
        del base[at : at + 2]  # twice is another mistake
    if parameter.param_type_name == "argument":
        return [command, value, *base[1:]]
    if parameter.is_flag or getattr(parameter, "count", False):
        return None
    return [command, *base, parameter.opts[-1], value]


def called(arguments: list[str]) -> tuple[object, str]:
    """Exit code, or the exception that came back, and standard error."""
    err = io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["ahbm", *arguments]),
        mock.patch("ahbm.cli.app", application()),
        # Seconds for every page, and for its charts.
        mock.patch("altair.utils.schemapi.DEBUG_MODE", False),
        mock.patch("ahbm.views.page.Page.html", lambda page: ""),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as left:
            return left.code or 0, err.getvalue()
        except BaseException as error:
            return error, err.getvalue()
    return 0, err.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("command", BASE)
def test_every_option(command: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It would answer until Ctrl-C.
    monkeypatch.setattr("ahbm.views.server.serve", lambda bench, listener, token: listener.close())
    if command == "astra":
        astra_files.write(here)
    if command in ("check", "convert"):
        ahbm.synthesize("all_gather", topology="ring_1d", size=1 << 10).save("plan.xml")
    if command == "calibrate":
        rows = "\n".join(f"{1 << at},{10 + (1 << at) / 1e5}" for at in range(10, 16))
        Path("measured.csv").write_text(f"# op: all_reduce\n# ranks: 8\nbytes,time_us\n{rows}\n", encoding="utf-8")
    if command == "sweep":
        Path("space.yaml").write_text("sizes: 64\ndata: false\n")
    if command in ("job", "plan"):
        Path("tiny.yaml").write_text("layers: 1\nhidden: 64\nheads: 4\nsequence: 8\n")
    wrong = []
    with mock.patch.dict(os.environ, environment(), clear=True):
        for name, parameter in parameters():
            if name != command:
                continue
            for value in [*HOSTILE, *(KEYS if "--set" in parameter.opts else [])]:
                arguments = spelled(command, parameter, value)
                if arguments is None:
                    break
                code, told = called(arguments)
                if not isinstance(code, int) or code == 1 or "Traceback" in told:
                    wrong.append(ascii(f"{command} {parameter.opts[-1]} {value[:30]}: {code!r} {told}"[-500:]))
    assert not wrong, "\n".join(wrong)


def test_every_command_is_listed_here() -> None:
    assert {name for name, _ in parameters()} == set(BASE)
