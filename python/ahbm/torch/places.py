"""Which place the calling thread's groups belong to, and how it gets one."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ahbm.errors import ConfigError
from ahbm.ranks.selection import Chooser
from ahbm.ranks.setup import Setup
from ahbm.torch import report
from ahbm.torch.place import Place
from ahbm.torch.processes import open_place


class Places(threading.local):
    """The open places of a thread-rank, or (`shared`) of the process."""

    def __init__(self) -> None:
        self.own: list[Place] | None = None
        """None where the thread is no rank of its own."""
        self.make: Any = None
        """The function by which the thread opens a place."""


_threads = Places()
on_open: list[Any] = []
"""Functions that are callback of each place that is opened, with torch's options, the number of ranks and the setup."""
_process: list[Place] = []
chooser: Chooser | None = None
"""Chooses for every call of this process that no selector has chosen for."""


def places() -> list[Place]:
    """The open places of the calling rank, oldest first."""
    found = _process if _threads.own is None else _threads.own
    found[:] = [place for place in found if not place.closed]
    return found


def synchronize() -> None:
    """The calling rank waits for all its calls."""
    for place in places():
        place.synchronize()


def be_rank(own: list[Place] | None, make: Any = None) -> None:
    """Makes the calling thread a rank with places of its own (or, with None, no rank)."""
    _threads.own, _threads.make = own, make


def find(opts: Any, pg_options: object) -> Place:
    """The place for a group that torch asks for with `opts`; opened where there is none yet.

    Raises ConfigError (AHBM-C127; AHBM-C141 for a report that cannot be written), and what `open_place` raises.
    """
    ranks = list(opts.global_ranks_in_group)
    for known in places() if ranks else ():
        if all(rank in known.index for rank in ranks):
            return known
    report.check()
    ranks = ranks or list(range(opts.group_size))
    if _threads.make is not None:
        place: Place = _threads.make(options(pg_options))
    else:
        place = open_place(options(pg_options).sized(len(ranks)), opts, ranks)
    for callback in on_open:
        callback(place, opts, len(ranks), options(pg_options).sized(len(ranks)))
    if chooser is not None:
        place.choose().chooser = chooser
    places().append(place)
    return place


def options(pg_options: object) -> Setup:
    """The setup that a rank asks for: `pg_options` (a Setup or a mapping of its fields), then the environment.

    Raises ConfigError (AHBM-C127).
    """
    if isinstance(pg_options, Mapping):
        unknown = sorted(set(pg_options) - set(Setup.__dataclass_fields__))
        if unknown:
            known = ", ".join(Setup.__dataclass_fields__)
            raise ConfigError("AHBM-C127", f"unknown option {unknown[0]!r} of backend ahbm", hint=f"one of {known}")
        pg_options = Setup(**pg_options)
    setup = pg_options if isinstance(pg_options, Setup) else Setup()
    accumulate = setup.accumulate or os.environ.get("AHBM_ACCUMULATE") or None
    if accumulate not in (None, "f32"):
        raise ConfigError("AHBM-C127", f"accumulate={accumulate!r} is unknown", hint="f32, or nothing")
    return replace(setup, accumulate=accumulate)
