"""Processes of `python` that are forked: their interpreters need not start, and what they import is there."""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def forked(
    imports: tuple[str, ...],
    arguments: Sequence[str],
    ranks: Sequence[Mapping[str, str]],
    folder: Path,
    limit_s: float,
) -> subprocess.CompletedProcess[str]:
    """Runs `python ARGUMENTS...` once for each environment, in forks of a process that has imported modules.

    arguments: a script or `-m MODULE`, and what follows. ranks: the environments. Raises subprocess.TimeoutExpired.
    """
    zygote = started(imports)
    assert zygote.stdin is not None and zygote.stdout is not None
    with tempfile.TemporaryDirectory() as scratch:
        files = [[f"{scratch}/{rank}.out", f"{scratch}/{rank}.err"] for rank in range(len(ranks))]
        job = {"ranks": [*map(dict, ranks)], "arguments": [*arguments], "folder": str(folder), "files": files}
        zygote.stdin.write(json.dumps(job) + "\n")
        zygote.stdin.flush()
        if not select.select([zygote.stdout], [], [], limit_s)[0]:
            end_zygotes()
            raise subprocess.TimeoutExpired([*arguments], limit_s)
        codes = json.loads(zygote.stdout.readline())
        out, err = (
            "".join(Path(names[which]).read_text(encoding="utf-8", errors="replace") for names in files)
            for which in (0, 1)
        )
    return subprocess.CompletedProcess([*arguments], next((code for code in codes if code), 0), out, err)


_running: list[subprocess.Popen[str]] = []


@functools.cache
def started(imports: tuple[str, ...]) -> subprocess.Popen[str]:
    """The zygote of this process that has imported these, in a process group of its own."""
    command = [sys.executable, str(Path(__file__).with_name("zygote.py")), *imports]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AHBM_", "PYTEST_"))}
    pipe = subprocess.PIPE
    made = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=clean, start_new_session=True)
    _running.append(made)
    atexit.register(end_zygotes)
    return made


def end_zygotes() -> None:
    """Ends all zygotes and whatever they forked."""
    started.cache_clear()
    while _running:
        zygote = _running.pop()
        os.killpg(zygote.pid, signal.SIGKILL)
        zygote.wait()
