"""Knobs: how a library runs an algorithm, beside which algorithm it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Knobs:
    """How a library runs an algorithm; None leaves a knob as the algorithm or the machine has it."""

    protocol: str | None = None
    """"ll", "ll128" or "simple", as NCCL calls them, or another of the machine's library."""
    channels: int | None = None
    """Parts that the call is cut into, each on connections of its own."""
    threads: int | None = None
    """Of one channel."""
    chunk_bytes: int | None = None
    """Longest piece that is sent at once."""

    @property
    def knobs(self) -> dict[str, Any]:
        """Those that are set, by name."""
        named = {name: getattr(self, name) for name in KNOBS}
        return {name: value for name, value in named.items() if value is not None}

    @property
    def alone(self) -> Knobs:
        """The knobs of a choice or a rule without the rest of it."""
        return Knobs(**{name: getattr(self, name) for name in KNOBS})

    @property
    def text(self) -> str:
        """Those that are set, in words."""
        return ", ".join(f"{name} {value}" for name, value in self.knobs.items())


KNOBS = ("protocol", "channels", "threads", "chunk_bytes")
"""The knobs by name, in the order in which they are told."""
MOST = {"channels": 1 << 10, "threads": 1 << 10, "chunk_bytes": 1 << 40}
"""The largest values of those that are numbers; the least is 1."""


def must_be(name: str, value: object) -> str | None:
    """What the value of a knob must be, where it is not; None where it is good."""
    if name == "protocol":
        return None if isinstance(value, str) else "a name"
    good = type(value) is int and 1 <= value <= MOST[name]
    return None if good else f"an integer from 1 to {MOST[name]}"
