"""Starting jobs of processes, and ending them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
LIMIT_S = 300
IMPORTED = (
    *("torch._dynamo", "torch.nn.parallel", "torch.optim", "torch.utils.flop_counter"),
    *("torch.distributed.fsdp", "torch.distributed.pipelining", "torch.distributed.tensor.parallel"),
    *("ahbm.torch.backend", "ahbm.torch.cuda", "ahbm.torch.places", "ahbm.torch.remote", "ahbm.torch.report"),
    *("ahbm.torch.device.answer", "ahbm.torch.device.graphs", "ahbm.torch.device.kernels", "ahbm.mscclpp.choosing"),
)
"""What most jobs import; a script that is run afresh imports all of it itself."""


def torchrun(
    script: Path,
    ranks: int,
    *args: str,
    module: str | None = None,
    launcher: tuple[str, ...] = (),
    **env: str,
) -> subprocess.CompletedProcess[str]:
    """Runs a script on that many ranks, by a module (or arguments, `launcher`) that runs scripts if one is given.

    Ranks are forked, with the environment that torchrun gives them; `torch_acceptance/scripts.py` has the real one.
    """
    start = [*(("-m", module) if module else launcher), str(script), *args]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **env}
    return forked(start, [environment | place for place in places(ranks)], HERE)


def by_torchrun(arguments: list[str], ranks: int, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """`torchrun ARGUMENTS...`"""
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    return subprocess.run(
        [*start, *arguments], capture_output=True, text=True, timeout=LIMIT_S, cwd=HERE, env=env, check=False
    )


def python(*arguments: str, env: dict[str, str], fresh: bool = False) -> subprocess.CompletedProcess[str]:
    """`python ARGUMENTS...` with that environment; with `fresh`, by an interpreter of its own."""
    if not fresh:
        return forked(list(arguments), [env], Path.cwd())
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def places(ranks: int) -> list[dict[str, str]]:
    """What torchrun tells each rank in its environment."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    world = {
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_WORLD_SIZE": str(ranks),
        "ROLE_NAME": "default",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "TORCHELASTIC_RUN_ID": port,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }
    return [world | {name: str(rank) for name in ("RANK", "LOCAL_RANK", "ROLE_RANK")} for rank in range(ranks)]


def forked(arguments: list[str], ranks: list[dict[str, str]], folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs `python ARGUMENTS...` once for each environment, in forks of a process that has imported torch."""
    from support import forks  # not there for the scripts that are run

    return forks.forked(IMPORTED, arguments, ranks, folder, LIMIT_S)


def end() -> None:
    """Ends a rank's process without ending its interpreter.

    A thread of gloo's that still holds a tensor when the interpreter ends aborts the process ("terminate called without
    an active exception", torch 2.15): it waits for the interpreter's lock in a destructor.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
