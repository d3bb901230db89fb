"""The numbers of the transformer that a training script trains: the script takes one step without data."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ahbm.errors import ConfigError, UnsupportedError
from ahbm.job.transformer import read_manifest

STEP_S = 600
"""Seconds that a script may take for its first step."""
REFUSED = "ahbm.errors.ConfigError: AHBM-C157 "
"""How the line begins that says why a script's model is not planned."""
RANK = re.compile(r"^\[rank\d+\]: ")
"""What torch puts before the lines of an error, in a process that has a group."""
LINES = 4
"""Of what a script has said last, those that are told where it fails."""


def trained(script: str | Path, arguments: Sequence[str] = (), topology: str | None = None) -> dict[str, Any]:
    """Fields of a `Transformer`: what `python -m ahbm.torch --fake --steps 1` sees of a script that trains one.

    script: a Python file for one process of CUDA, trusted like code. arguments: its own. topology: a packaged name or a
    path; the machine whose accelerator it sees.

    Raises ConfigError (AHBM-C157) for a script that fails, does not come to the end of a step in ten minutes, or trains
    nothing that a plan divides, UnsupportedError (AHBM-U145) without torch.
    """
    if find_spec("torch") is None:
        raise UnsupportedError("AHBM-U145", "torch is not installed: scripts run on it", hint="pip install ahbm[torch]")
    with tempfile.TemporaryDirectory() as folder:
        numbers = Path(folder) / "numbers.yaml"
        asked = ["--device", "cuda", "--ranks", "1", "--fake", "--steps", "1", "--numbers", str(numbers)]
        given = os.environ | ({} if topology is None else {"AHBM_TOPOLOGY": topology})
        command = [sys.executable, "-m", "ahbm.torch", *asked, str(script), *arguments]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=given, timeout=STEP_S)
        except subprocess.TimeoutExpired:
            raise ConfigError("AHBM-C157", f"{script} did not end a step in {STEP_S} s") from None
        if numbers.exists():
            return read_manifest(numbers)
        lines = [RANK.sub("", line) for line in done.stderr.decode(errors="replace").splitlines()]
        said = [line for line in lines if not line.startswith("ahbm: ")]
    if refused := [line for line in said if line.startswith(REFUSED)]:
        hint = next((line.partition("hint: ")[2] for line in said if line.startswith("  hint: ")), None)
        raise ConfigError("AHBM-C157", f"{script}: {refused[-1].removeprefix(REFUSED)}", hint=hint)
    last = "".join(f"\n  {line[:200]}" for line in said[-LINES:])
    raise ConfigError(
        "AHBM-C157",
        f"{script} does not come to the end of a step (exit status {done.returncode}){last}",
        hint=f"python -m ahbm.torch {' '.join(asked[:-2])} {script} shows all that it says",
    )
