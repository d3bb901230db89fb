"""The protocol that every kind of algorithm keeps, and the loader that makes an algorithm of an entry."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from ahbm._core import Machine, Plan, Program
from ahbm.base.layout import Layout
from ahbm.base.request import Request
from ahbm.config.kinds import kind

if TYPE_CHECKING:
    from ahbm.config.settings import Settings

Piece = tuple[int, int, int, int]
"""Buffer, first byte in the array, first byte in the buffer, bytes: a row of what `Memory.run` takes."""


class Lowered(NamedTuple):
    """An algorithm as a program for one request, and where every rank's array goes."""

    program: Program
    operands: list[NDArray[np.int64]]
    """Per group rank, the pieces that are copied from its array before the run."""
    results: list[NDArray[np.int64]]
    """Per group rank, the pieces that are copied into its array after the run."""
    covered: bool = False
    """Whether the operands fill all of its buffers, so that nothing of an earlier run remains."""
    timed: bool = False
    """Whether it says how many bytes travel and not which: it has a time, and moves no data."""
    note: str = ""
    """The choice that the algorithm made other than asked for; empty without one."""
    moved: Callable[[], Lowered] | None = None
    """What moves the data of a program that only says how long it takes; None where the program itself does."""


def rows(pieces: Sequence[Sequence[Piece]]) -> list[NDArray[np.int64]]:
    """Lists of pieces as arrays of shape (pieces, 4)."""
    return [np.array(list_, np.int64).reshape(-1, 4) for list_ in pieces]


class Algorithm(Protocol):
    """An algorithm that ccl.yaml names. A new kind is one module with such a class, and one line of `KINDS`."""

    @property
    def name(self) -> str:
        """The entry's name."""

    @property
    def collectives(self) -> tuple[str, ...]:
        """The collectives that it computes."""

    @property
    def source(self) -> str:
        """The origin of the algorithm, for people."""

    @property
    def identity(self) -> Hashable:
        """The value that tells it from another of the same name: equal identities lower to equal programs."""

    def supports(self, network: str) -> bool:
        """Whether it knows a network between SIPs."""

    def check(self, request: Request) -> None:
        """Raises ConfigError or UnsupportedError for a request that it cannot serve."""

    def lower(self, machine: Machine, request: Request, layout: Layout, settings: Settings) -> Lowered:
        """The program for `request`, whose tensors lie as `layout` says. Raises what is wrong with it."""

    @property
    def anywhere(self) -> bool:
        """Whether its program depends on the number of ranks and not on which SIPs they are, but for the places of its
        agents; on all SIPs of the machine it may be another one."""

    @property
    def by_shape(self) -> bool:
        """Whether its program depends on the machine's shape and memories, and neither on its times nor on its
        bandwidths."""

    @property
    def takes_shares(self) -> bool:
        """Whether chunks of a request may differ in length (`Request.shares`); else every chunk is padded to the
        longest."""

    @property
    def is_plan(self) -> bool:
        """Whether it is a plan whatever the request, and no code."""

    def with_knobs(self, knobs: Mapping[str, str | int]) -> tuple[Algorithm, Collection[str]]:
        """The algorithm under those of a library's knobs (`ahbm.base.knobs.KNOBS`) that it has, and their names."""

    def plan(
        self, machine: Machine, request: Request, settings: Settings, limits: Sequence[tuple[str, int]] = ()
    ) -> Plan:
        """The plan that such a file holds, for `request`; `limits` as in `ahbm.config.reading.Reading`.

        Raises UnsupportedError (AHBM-U294) for a kernel that no plan can express, and as `lower`."""


PADDED = "the shares of the ranks differ, and each is sent as if it were the longest: the algorithm has no `shares`"
"""The note of a program of an algorithm without `takes_shares`."""


def is_algorithm(value: object) -> TypeGuard[Algorithm]:
    """Whether a value has what tells an algorithm from everything else."""
    return not isinstance(value, type) and all(
        hasattr(value, name) for name in ("name", "identity", "lower", "collectives")
    )


def listed(settings: Settings) -> tuple[tuple[str, ...], str]:
    """Collectives and source of an entry, for a list: no code is executed for it.

    Raises what reading the entry's file raises.
    """
    return kind(settings.kind).listed(settings)


class AlgorithmLoader:
    """Loads the algorithms of one ccl.yaml, each once, whatever becomes of its file later. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._loaded: dict[str, Any] = {}

    def load(self, settings: Settings) -> Algorithm:
        """The algorithm of `settings`. Raises what its kind raises."""
        with self._lock:
            if settings.algorithm not in self._loaded:
                self._loaded[settings.algorithm] = kind(settings.kind).load(settings)
            found: Algorithm = self._loaded[settings.algorithm]
            return found


def stated_protocol(plan: Algorithm) -> str | None:
    """The protocol of a machine's library that a plan asks for: that of its entry, or its own, unless that is Simple,
    which plans are of that choose none. None for no plan."""
    how = getattr(plan, "how", None)
    if how is None or not plan.is_plan:
        return None
    own = getattr(getattr(plan, "read", None), "protocol", None)
    name: str | None = how.protocol or (None if own == "Simple" else own)
    return name
