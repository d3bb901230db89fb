"""The settings that one algorithm runs with."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from ahbm.config.checks import AUTO

AUTO_TIERS = ("tcm", "hbm")
"""Memories of queue slots that `buffer_kind: auto` tries, the quickest first."""


class Queues(NamedTuple):
    """The set-up of an algorithm's queues."""

    buffer_kind: str
    """Memory tier of the slots; "auto": the first of `AUTO_TIERS` that holds them."""
    n_slots: int
    """Messages a queue holds; 0: what a plan's protocol has."""
    slot_size: int | None
    """Bytes a slot holds; None sizes each queue to its largest message."""
    ipcq_credit_size_bytes: int
    """Size of a credit message."""

    def tiers(self, known: Sequence[str]) -> tuple[str, ...]:
        """The memory tiers to try for the slots, in order, on a machine that has the tiers `known`."""
        if self.buffer_kind != AUTO:
            return (self.buffer_kind,)
        return tuple(tier for tier in AUTO_TIERS if tier in known) or tuple(known[:1])


@dataclass(frozen=True)
class Settings:
    """The settings of one algorithm: its entry of ccl.yaml over the defaults. Hashable: equal settings run the same."""

    algorithm: str
    """Name of the entry, or the module's text where there is no entry."""
    kind: str
    """A key of `KINDS`."""
    options: Hashable
    """The keys that only entries of this kind have, as `Kind.options` gives them."""
    folder: Path
    """The folder that a relative path of the entry starts from."""
    n_elem: int
    """Elements per tile where a run does not say how many."""
    queues: Queues
    world_size: int | None
    """Number of ranks; None is the number of SIPs, more than that is the legacy mode (a rank is a PE)."""
    op_budget: int
    """`tl` calls one kernel may make."""
    event_budget: int
    """Events one simulation may take."""
    all_ops: int = 1 << 32
    """`tl` calls that all ranks may make together."""
    own_slots: bool = False
    """Whether the entry itself says how many messages a queue holds."""
    parameters: tuple[tuple[str, Hashable], ...] = ()
    """The algorithm's own parameters: further keys of the entry, by name; a list is a tuple."""

    written: str = field(default="", compare=False)
    """The file and line of the entry; empty where there is none."""

    def in_tier(self, tier: str) -> Settings:
        """These settings with the queue slots in one memory tier."""
        return replace(self, queues=self.queues._replace(buffer_kind=tier))
