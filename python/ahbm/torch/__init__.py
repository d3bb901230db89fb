"""The emulator behind the real torch.distributed: `dist.init_process_group("ahbm")`.

Importing this module registers the backend; torch 2.14 and later find it without the import. The only package that
imports torch.

May import `ranks`, `job`, `front` and below.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ahbm.ranks.setup import Setup as Options
    from ahbm.torch.alone import init_alone as init_alone
    from ahbm.torch.recording import record as record
    from ahbm.torch.threads import spawn as spawn

__all__ = ["Options", "init_alone", "record", "register", "spawn", "step"]

on_step: list[Callable[[], None]] = []
"""Functions that `step` calls."""


def step() -> None:
    """Says that an iteration of the script has ended. Where a script says so, nothing else is an iteration, neither in
    the answer nor for the `--steps` of `python -m ahbm.torch --device cuda`. Elsewhere it does nothing."""
    for function in on_step:
        function()


def register() -> None:
    """Registers backend "ahbm" with torch.distributed; again is harmless."""
    import torch.distributed as dist

    if "AHBM" not in dist.Backend._plugins:
        dist.Backend.register_backend("ahbm", create, extended_api=True, devices=["cpu"])


def create(opts: Any, pg_options: object) -> Any:
    """The function that torch calls for every group of the backend."""
    from ahbm.torch import backend, hazards
    from ahbm.torch.places import find, options

    place = find(opts, pg_options)
    ranks = [place.index[rank] for rank in opts.global_ranks_in_group] or list(range(len(place.index)))
    name = "WORLD" if len(ranks) == len(place.index) and not opts.global_ranks_in_group else str(opts.group_id)
    members = place.group(name, ranks)
    if place.root is None:
        place.root = members
        hazards.attach(place, opts.store)
        backend.agree_on_groups()
    selector = options(pg_options).selector
    if selector is not None:
        # That of the default group is for the groups that have none.
        place.choose().use(None if members is place.root else members, selector)
    return _kind(backend.ProcessGroup)(place, members, opts.timeout, opts.store)


def _kind(usual: Any) -> Any:
    """The class of groups: the `usual` one, unless they are recorded or may leave calls to another backend."""
    recording = sys.modules.get(f"{__name__}.recording")  # which made the recorder, if there is one
    if recording is not None and recording.current() is not None:
        return recording.Emulated
    if os.environ.get("AHBM_FALLBACK"):
        from ahbm.torch import fallback

        if fallback.wanted():
            return fallback.ProcessGroup
    return usual


_LAZY = {
    "Options": ("ahbm.ranks.setup", "Setup"),
    "init_alone": ("ahbm.torch.alone", "init_alone"),
    "record": ("ahbm.torch.recording", "record"),
    "spawn": ("ahbm.torch.threads", "spawn"),
}
"""The places of the public names, which are imported at their first use."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'ahbm.torch' has no attribute {name!r}")
    module, attribute = _LAZY[name]
    globals()[name] = value = getattr(importlib.import_module(module), attribute)
    return value


register()
