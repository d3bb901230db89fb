"""The lower bounds that no run can beat on a machine, for every collective, and the cut that causes them.

The physics, whatever the algorithm: every byte that must leave a set of nodes crosses one of the links that leave it,
and every node must hear of the farthest contribution. `docs/synthesis.md` tells where the bounds come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ahbm._core import Limit, Machine
from ahbm.errors import BudgetError, ConfigError, UnsupportedError

Cut = tuple[list[list[int]], float, int, int]
"""Parts, GB/s across, links across, shares that must cross: see `Limit.cut`."""


@dataclass(frozen=True)
class Bound:
    """The least time of a run."""

    ps: int | None
    """None where none is known; then `reason` says why."""
    reason: str
    """The tight cut or the longest way, for people."""


KEPT = 4096
"""Bounds that are kept."""


class Limits:
    """The bounds of one machine; what does not depend on the size is computed once."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._known: dict[tuple[str, int, int, int, bool], Limit | str] = {}
        self._bounds: dict[tuple[str, int, int, int, bool, int], Bound] = {}
        """The bounds of sizes that were asked for before: a job asks for few, many times."""

    def bound(
        self, collective: str, ranks: int, nbytes: int, *, root: int = 0, dst: int = 0, tiles: int | None = None
    ) -> Bound:
        """Bounds a collective of `nbytes` bytes per chunk of one rank (the whole array where it has no chunks).

        Ranks are the first SIPs; with `tiles`, every SIP holds so many tiles of `nbytes`, each a contribution.
        Raises ConfigError (AHBM-C120).
        """
        sips, cubes = self._machine.sips, self._machine.cubes
        for rank in (root, dst):
            if not 0 <= rank < max(ranks, 1):
                raise ConfigError("AHBM-C120", f"rank {rank} is not in a group of {ranks}")
        if ranks == 1 and tiles in (None, 1):
            return Bound(0, "a single rank")
        if ranks > sips:
            return Bound(None, f"no bound is known for {ranks} ranks on {sips} SIPs")
        found = []
        if sips > 1:
            found.append(self._bound(collective, nbytes, ranks, root, dst, cubes=False))
        if tiles == cubes and cubes > 1:
            found.append(self._bound(collective, nbytes, 0, root, dst, cubes=True))
        if not found:
            return Bound(None, f"no bound is known for {tiles} of {cubes} cubes")
        return max(found, key=lambda bound: -1 if bound.ps is None else bound.ps)

    def _bound(self, collective: str, nbytes: int, ranks: int, root: int, dst: int, *, cubes: bool) -> Bound:
        key = (collective, ranks, root, dst, cubes)
        if key not in self._known:
            try:
                self._known[key] = Limit(self._machine, collective, ranks=ranks, root=root, dst=dst, cubes=cubes)
            except (UnsupportedError, BudgetError) as error:
                self._known[key] = error.message
        limit = self._known[key]
        if isinstance(limit, str):
            return Bound(None, limit)
        known = self._bounds.get((*key, nbytes))
        if known is not None:
            return known
        name, nodes = ("cube", self._machine.cubes) if cubes else ("sip", self._machine.sips)
        by_cut = nbytes > 0 and limit.by_bandwidth(nbytes)
        reason = describe(limit.cut, name, nodes) if by_cut else f"the way between the farthest {name}s"
        if len(self._bounds) >= KEPT:
            self._bounds.clear()
        self._bounds[(*key, nbytes)] = bound = Bound(limit.ps(nbytes), reason)
        return bound


def describe(cut: Cut, name: str, nodes: int) -> str:
    """A cut for people, e.g. "out of sip0-sip31 over 8 links of 400 GB/s"; `nodes` are named `name`0, `name`1, ..."""
    parts, gbs, links, _ = cut
    across = f"{links} link{'s' * (links != 1)}, {gbs:g} GB/s"
    if len(parts) != 1:
        return f"between {len(parts)} parts over {across}"
    inside = parts[0]
    outside = sorted(set(range(nodes)) - set(inside))
    # The smaller side is the shorter name.
    if len(outside) < len(inside):
        return f"into {_ranges(outside, name) or 'the other SIPs'} over {across}"
    return f"out of {_ranges(inside, name)} over {across}"


def _ranges(numbers: Sequence[int], name: str) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = [f"{name}{a}" if a == b else f"{name}{a}-{name}{b}" for a, b in runs]
    return ", ".join(shown[:4]) + (f" and {len(shown) - 4} more" if len(shown) > 4 else "")
