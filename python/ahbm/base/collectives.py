"""The collectives: what their arguments mean, their in-place layouts, and how their bandwidth is counted.

`n` is the number of elements of a chunk, `w` the number of ranks. A collective *with chunks* works on w * n elements
per rank, chunk j at [j * n, (j + 1) * n); the others on n.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import NamedTuple

from ahbm._core import collectives
from ahbm.base.yaml_source import did_you_mean
from ahbm.errors import ConfigError

OPS = ("sum", "prod", "min", "max", "avg", "band", "bor", "bxor")
"""Reduction operators."""

BITWISE = ("band", "bor", "bxor")
"""Those that only integers have."""


class Collective(NamedTuple):
    """Facts about one collective."""

    name: str
    chunked: bool = False
    """One chunk per rank."""
    reduces: bool = False
    """Takes a reduction operator."""
    rooted: bool = False
    """Takes a root rank."""
    paired: bool = False
    """Takes a source and a destination rank."""

    def chunks(self, ranks: int) -> int:
        """Chunks in one rank's buffer."""
        return ranks if self.chunked else 1

    def bus_factor(self, ranks: int) -> float:
        """busbw / algbw, as nccl-tests counts it: the share of the traffic that each link of a ring would carry."""
        if self.name == "all_reduce":
            return 2 * (ranks - 1) / ranks
        return (ranks - 1) / ranks if self.chunked else 1.0


COLLECTIVES: dict[str, Collective] = {facts[0]: Collective(*facts) for facts in collectives()}
"""Every collective by name."""


def require_collective(collective: str, hint: str | None = None) -> None:
    """Raises ConfigError (AHBM-C105) for what is no collective."""
    if collective not in COLLECTIVES:
        message = f"unknown collective {collective!r}"
        raise ConfigError("AHBM-C105", message, hint=hint or meant(collective))


def meant(name: str) -> str:
    """A hint for what is no collective: a misspelt one, or an algorithm, whose name often has its collective in it."""
    plain = _plain(name)
    by_length = sorted(COLLECTIVES, key=len, reverse=True)
    inside = next((each for each in by_length if _plain(each) in plain), None)
    if inside is None or get_close_matches(plain, map(_plain, COLLECTIVES), cutoff=0.92):
        return did_you_mean(plain, COLLECTIVES)
    return f"an algorithm is named with -a: {inside} -a {name[:40]}"


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()
