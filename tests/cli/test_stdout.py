"""Standard output on a full disk is an error with a code, for every command; a closed pipe is silence.

Standard error on a full disk changes no exit code.
"""

from __future__ import annotations

import functools
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

import ahbm
import ahbm.job.paper
from ahbm.cli import main
from support import astra_files
from support.commands import commands, environment

COMMANDS = {
    "astra": astra_files.OPTIONS,
    "bench": ["all_reduce", "-e", "1K"],
    "calibrate": ["measured.csv", "-o", "machine.yaml"],
    "check": ["-a", "ring_allreduce", "--ranks", "4", "-b", "64"],
    "compare": ["run.json", "run.json"],
    "convert": ["plan.xml", "other.json"],
    "explain": ["all_reduce", "--size", "64"],
    "explore": ["all_reduce", "--seeds", "1", "--size", "64"],
    "features": ["ring_allreduce", "--size", "64"],
    "init": ["mine"],
    "inspect": ["all_reduce", "--size", "64"],
    "job": ["new", "--layers", "1", "--hidden", "64", "-o", "step"],
    "ladder": ["all_reduce", "-b", "1K", "-e", "1K"],
    "list": [],
    "new": ["fresh"],
    "numerics": ["--seeds", "1", "--size", "64"],
    "paper": ["--small"],
    "plan": [
        "gpt2",
        "-t",
        "dgx_h100",
        "--ranks",
        "2",
        "--batch",
        "2",
        "--tp",
        "1",
        "--recompute",
        "none",
        "--zero",
        "0",
    ],
    "probe": [],
    "report": ["all_reduce", "-b", "1K", "-e", "1K", "--no-explain"],
    "run": ["all_reduce", "--size", "64"],
    "sweep": ["space.yaml", "-o", "rows"],
    "synth": ["all_reduce", "-b", "1K"],
    "topology": [],
    "view": ["--port", "0"],
    "tune": ["all_reduce", "-t", "npu_ring_8", "--sizes", "1K", "-a", "ring_allreduce", "-o", "tuned"],
}


def failing(arguments: list[str], unbuffered: bool = False) -> tuple[int, str]:
    """Exit code and standard error of a command that writes to a full disk."""
    err = io.StringIO()
    with (
        (
            io.TextIOWrapper(open("/dev/full", "wb", buffering=0), write_through=True)
            if unbuffered
            else open("/dev/full", "w")
        ) as full,
        mock.patch.object(sys, "argv", ["ahbm", *arguments]),
        mock.patch.object(sys, "stdout", full),
        mock.patch.object(sys, "stderr", err),
        pytest.raises(SystemExit) as left,
    ):
        main()
    return int(left.value.code or 0), err.getvalue()


def test_every_command_is_listed_here() -> None:
    assert set(commands()) == set(COMMANDS)


@pytest.mark.slow
@pytest.mark.parametrize("command", [*COMMANDS, "--help", "--version"])
def test_a_full_disk(command: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It would answer until Ctrl-C.
    monkeypatch.setattr("ahbm.views.server.serve", lambda bench, listener, token: listener.close())
    if command == "astra":
        astra_files.write(here)
    if command == "calibrate":
        rows = "".join(f"{1 << n},{n}\n" for n in range(10, 20, 3))
        Path("measured.csv").write_text(f"# op: all_reduce\n# ranks: 8\nbytes,time_us\n{rows}")
    if command == "compare":
        Path("run.json").write_text(json.dumps(ahbm.run(bytes_per_rank=64).to_json()))
    if command == "paper":  # found once, told twice
        monkeypatch.setattr("ahbm.job.paper.paper", functools.cache(ahbm.job.paper.paper))
    if command == "sweep":
        Path("space.yaml").write_text("sizes: 64\ndata: false\n")
    if command == "convert":
        ahbm.synthesize("all_gather", topology="ring_1d", size=1 << 12).save("plan.xml")
    for unbuffered in (False, True):
        code, told = failing([command, *COMMANDS.get(command, [])], unbuffered)
        assert code == 3 and "AHBM-C141 cannot write standard output: No space left" in told, told
        if command in ("init", "new"):  # a second time, its files are there
            break


def test_a_pipe_that_is_closed(here: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "ahbm", "list"],
        env=environment(),
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["list"], 0), (["run", "nothing"], 3), (["run", "--nope"], 2), (["-vv", "run", "all_reduce", "--size", "64"], 0)],
)
def test_standard_error_on_a_full_disk(arguments: list[str], code: int, here: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "ahbm", *arguments],
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=full,
            check=False,
            timeout=60,
        )
    assert done.returncode == code
