"""Environment variables of MSCCL++ that mean something here."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ahbm.dsl.compat import VERSIONS
from ahbm.errors import ConfigError

OPERATIONS = ("allgather", "allreduce", "broadcast", "reducescatter")
"""The collectives that plans and selectors are asked for."""


@dataclass(frozen=True)
class Env:
    """What the environment says, as `mscclpp.env()` tells it."""

    cache_dir: str
    """Folder of compiled plans."""
    force_nccl_fallback_operation: str
    nccl_shared_lib_path: str
    disable_nvls: bool
    debug: str
    hostid: str
    socket_ifname: str


def env() -> Env:
    """The environment now."""
    of = os.environ.get
    return Env(
        str(cache_folder()),
        of("MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION", ""),
        of("MSCCLPP_NCCL_LIB_PATH", ""),
        of("MSCCLPP_FORCE_DISABLE_NVLS", "0") not in ("", "0", "false", "FALSE"),
        of("MSCCLPP_DEBUG", ""),
        of("MSCCLPP_HOSTID", ""),
        of("MSCCLPP_SOCKET_IFNAME", ""),
    )


def cache_folder() -> Path:
    """MSCCLPP_EXECUTION_PLAN_DIR, else MSCCLPP_CACHE_DIR, else ~/.cache/mscclpp."""
    for name in ("MSCCLPP_EXECUTION_PLAN_DIR", "MSCCLPP_CACHE_DIR"):
        if os.environ.get(name):
            return Path(os.environ[name])
    return Path.home() / ".cache" / "mscclpp"


def forced(operation: str) -> bool:
    """Whether MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION leaves `operation` to the default algorithm.

    Raises ConfigError (AHBM-C127) for an operation that it does not know.
    """
    text = os.environ.get("MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION", "")
    if not text:
        return False
    named = [name.strip() for name in text.split(",") if name.strip()]
    for name in named:
        if name not in (*OPERATIONS, "all"):
            raise ConfigError(
                "AHBM-C127",
                f"MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION={text!r}: {name!r} is unknown",
                hint=f"all, or some of {', '.join(OPERATIONS)}",
            )
    return operation in named or "all" in named


def ranks_per_node(ranks: int) -> int:
    """Ranks of a group of `ranks` that share a host: LOCAL_WORLD_SIZE where torchrun sets it, else all."""
    return min(ranks, int(os.environ.get("LOCAL_WORLD_SIZE") or ranks))


version = {"version": VERSIONS["mscclpp"], "ahbm": True}


def is_nvls_supported() -> bool:
    """Whether switches reduce: plans that ask for it run on every machine, unless MSCCLPP_FORCE_DISABLE_NVLS is set."""
    return not env().disable_nvls


def is_bulk_supported() -> bool:
    """False: there is no GPU."""
    return False
