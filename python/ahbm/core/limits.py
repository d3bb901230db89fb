"""The lower bounds that no run can beat on a machine, for every collective, and the cut that causes them.

The physics, whatever the algorithm: every byte that must leave a set of nodes crosses one of the links that leave it,
and every node must hear of the farthest contribution. `docs/synthesis.md` tells where the bounds come from. An
all-reduce among PEs that exchange messages alone has a further bound, by their ports: `rust/synthesis/src/ports.rs`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

from ahbm._core import Limit, Machine, Program
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.words import NOT_TIGHTEST
from ahbm.errors import BudgetError, ConfigError, UnsupportedError

Range = tuple[int, int]
"""Nodes by number: the first, and the one after the last."""
Cut = tuple[int, list[Range], float, int, int]
"""Parts, the nodes of the only one, GB/s across, links across, shares that must cross: see `Limit.cut`."""


class Known(NamedTuple):
    """What is known of the least time of a run."""

    ps: int | None
    reason: str
    tightest: bool


class Bound:
    """The least time of a run. It is found when somebody first asks for one of its properties."""

    def __init__(self, find: Callable[[], Known]) -> None:
        self._find = find

    @staticmethod
    def known(ps: int | None, reason: str, tightest: bool) -> Bound:
        """A bound that has been found."""
        return Bound(lambda: Known(ps, reason, tightest))

    @cached_property
    def _found(self) -> Known:
        return self._find()

    @property
    def ps(self) -> int | None:
        """None where none is known; then `reason` says why."""
        return self._found.ps

    @property
    def reason(self) -> str:
        """The tight cut or the longest way, for people."""
        return self._found.reason

    @property
    def tightest(self) -> bool:
        """Whether no cut of the machine is tighter and no way longer; False where that is not known."""
        return self._found.tightest

    def __reduce__(self) -> tuple[Callable[[int | None, str, bool], Bound], tuple[int | None, str, bool]]:
        return Bound.known, (self.ps, self.reason, self.tightest)


class Limits:
    """The bounds of one machine; what does not depend on the size is computed once, when it is asked for."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._known: dict[tuple[str, int, int, int, bool], Limit | str] = {}
        """The bounds of sizes that were asked for before: a job asks for few, many times."""

    def bound(
        self,
        collective: str,
        ranks: int,
        nbytes: int,
        *,
        root: int = 0,
        dst: int = 0,
        tiles: int | None = None,
        program: Program | None = None,
    ) -> Bound:
        """Bounds a collective of `nbytes` bytes per chunk of one rank (the whole array where it has no chunks).

        Ranks are the first SIPs; with `tiles`, every SIP holds so many tiles of `nbytes`, each a contribution. With
        `program`, the bound is that of programs that move their data as that one does: in messages alone, or not.
        Raises ConfigError (AHBM-C120).
        """
        sips, cubes = self._machine.sips, self._machine.cubes
        for rank in (root, dst):
            if not 0 <= rank < max(ranks, 1):
                raise ConfigError("AHBM-C120", f"rank {rank} is not in a group of {ranks}")
        if ranks == 1 and tiles in (None, 1):
            return Bound.known(0, "a single rank", True)
        if COLLECTIVES[collective].paired and root == dst:
            return Bound.known(0, "a message to itself", True)
        if ranks > sips:
            return Bound.known(None, f"no bound is known for {ranks} ranks on {sips} SIPs", False)
        levels = [(ranks, False)] if sips > 1 else []
        if tiles == cubes and cubes > 1:
            levels.append((0, True))
        if not levels:
            return Bound.known(None, f"no bound is known for {tiles} of {cubes} cubes", False)

        by_ports = program if tiles is not None and collective == "all_reduce" else None

        def find() -> Known:
            found = [self._bound(collective, nbytes, ranks, root, dst, cubes=cubes) for ranks, cubes in levels]
            if by_ports is not None:
                found.append(_by_ports(by_ports, ranks * (tiles or 1), nbytes, all(bound.tightest for bound in found)))
            return max(found, key=lambda bound: -1 if bound.ps is None else bound.ps)

        return Bound(find)

    def limit(self, collective: str, ranks: int, *, root: int = 0, dst: int = 0) -> Limit | None:
        """The bound among the first SIPs as a function of the data; None where none is known."""
        if not 1 < ranks <= self._machine.sips or not 0 <= max(root, dst) < ranks:
            return None
        found = self._limit((collective, ranks, root, dst, False))
        return None if isinstance(found, str) else found

    def _limit(self, key: tuple[str, int, int, int, bool]) -> Limit | str:
        if key not in self._known:
            collective, ranks, root, dst, cubes = key
            try:
                self._known[key] = Limit(self._machine, collective, ranks=ranks, root=root, dst=dst, cubes=cubes)
            except (UnsupportedError, BudgetError) as error:
                self._known[key] = error.message
        return self._known[key]

    def _bound(self, collective: str, nbytes: int, ranks: int, root: int, dst: int, *, cubes: bool) -> Known:
        limit = self._limit((collective, ranks, root, dst, cubes))
        if isinstance(limit, str):
            return Known(None, limit, False)
        name, nodes = ("cube", self._machine.cubes) if cubes else ("sip", self._machine.sips)
        by_cut = nbytes > 0 and limit.by_bandwidth(nbytes)
        reason = describe(limit.cut, name, nodes) if by_cut else f"the way between the farthest {name}s"
        return Known(limit.ps(nbytes), reason if limit.tightest else f"{reason}, {NOT_TIGHTEST}", limit.tightest)


def _by_ports(program: Program, parties: int, nbytes: int, tightest: bool) -> Known:
    """What the ports of the PEs allow a program; `tightest`: whether nothing else of the machine is tighter."""
    found = program.least_by_ports(parties, nbytes)
    if found is None:
        return Known(None, "PEs do not exchange messages alone", False)
    ps, out, memory = found
    reason = f"one DMA write channel per PE, {out:g} GB/s to the others and {memory:g} GB/s to its memory"
    return Known(ps, reason if tightest else f"{reason}, {NOT_TIGHTEST}", tightest)


def describe(cut: Cut, name: str, nodes: int) -> str:
    """A cut for people, e.g. "out of sip0-sip31 over 8 links of 400 GB/s"; `nodes` are named `name`0, `name`1, ..."""
    parts, inside, gbs, links, _ = cut
    across = f"{links} link{'s' * (links != 1)}, {gbs:g} GB/s"
    if parts != 1:
        return f"between {parts} parts over {across}"
    # A node more than there are names for stands for all else.
    starts, ends = [0, *(end for _, end in inside)], [*(first for first, _ in inside), nodes]
    outside = [(first, end) for first, end in zip(starts, ends, strict=True) if first < end]
    # The smaller side is the shorter name.
    if _size(outside) < _size(inside):
        return f"into {_ranges(outside, name) or 'the other SIPs'} over {across}"
    return f"out of {_ranges(inside, name)} over {across}"


def _size(ranges: list[Range]) -> int:
    return sum(end - first for first, end in ranges)


def _ranges(ranges: list[Range], name: str) -> str:
    shown = [f"{name}{a}" if a + 1 == end else f"{name}{a}-{name}{end - 1}" for a, end in ranges]
    return ", ".join(shown[:4]) + (f" and {len(shown) - 4} more" if len(shown) > 4 else "")
