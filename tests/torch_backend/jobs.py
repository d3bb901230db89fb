"""Starting jobs of processes, and ending them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def torchrun(
    script: Path, ranks: int, *args: str, module: str | None = None, launcher: tuple[str, ...] = (), **env: str
) -> subprocess.CompletedProcess[str]:
    """Runs a script on that many ranks, by a module (or arguments, `launcher`) that runs scripts if one is given."""
    start = ["-m", module, str(script)] if module else [*launcher, str(script)]
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc_per_node={ranks}",
        *start,
        *args,
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **env}
    where = Path(__file__).parent
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=where, env=environment)


def end() -> None:
    """Ends a rank's process without ending its interpreter.

    A thread of gloo's that still holds a tensor when the interpreter ends aborts the process ("terminate called without
    an active exception", torch 2.15): it waits for the interpreter's lock in a destructor.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
