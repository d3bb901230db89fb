"""The lower bounds that no run can beat on a machine, for every collective, and the cut that causes them.

The physics, whatever the algorithm: every byte that must leave a set of nodes crosses one of the links that leave it,
and every node must hear of the farthest contribution. `docs/synthesis.md` tells where the bounds come from. The ports
between a SIP's cubes and its I/O chiplet bound what leaves it, and programs that exchange messages alone are bounded by
the DMA channels and ports of their PEs: `rust/synthesis/src/ports.rs`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

from ahbm._core import Limit, Machine, Program
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.request import Request
from ahbm.base.words import NOT_TIGHTEST
from ahbm.errors import BudgetError, ConfigError, UnsupportedError

Range = tuple[int, int]
"""Nodes by number: the first, and the one after the last."""
Cut = tuple[int, list[Range], float, int, int]
"""Parts, the nodes of the only one, GB/s across, links across, shares that must cross: see `Limit.cut`."""


_Key = tuple[str, tuple[int, ...], int, int, bool]
"""Collective, SIPs, root and receiver among them, and whether it is among cubes: then without SIPs."""


class Known(NamedTuple):
    """What is known of the least time of a run."""

    ps: int | None
    reason: str
    tightest: bool


class Bound:
    """The least time of a run. It is found when somebody first asks for one of its properties."""

    def __init__(self, find: Callable[[], Known | Bound]) -> None:
        self._find = find

    @staticmethod
    def known(ps: int | None, reason: str, tightest: bool) -> Bound:
        """A bound that has been found."""
        return Bound(lambda: Known(ps, reason, tightest))

    def after(self, ps: int) -> Bound:
        """The same behind something that takes `ps` first, a launch."""
        if not ps:
            return self

        def find() -> Bound:
            later = Bound.known(None if self.ps is None else self.ps + ps, self.reason, self.tightest)
            return later.labelled(f", after a launch of {ps / 1000:,.0f} ns")

        return Bound(find)

    def labelled(self, more: str) -> Bound:
        """The same with more words behind its reason, before the doubt whether it is the tightest."""
        if not more or not self.ps:
            return self
        doubt = f", {NOT_TIGHTEST}"
        plain = self.reason.removesuffix(doubt)
        return Bound.known(self.ps, plain + more + doubt * (plain != self.reason), self.tightest)

    @cached_property
    def _found(self) -> Known:
        found = self._find()
        return found if isinstance(found, Known) else found._found

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


class Demand(NamedTuple):
    """A collective that moves no more than another one does."""

    collective: str
    nbytes: int
    """Per chunk of a rank."""
    root: int = 0
    dst: int = 0
    around: bool = False
    """It says what the root sends, or gets, and not to or from whom: of links, those of the root count alone."""


def demands(request: Request) -> list[Demand]:
    """What a request moves at least: itself, or, of unequal shares, what the busiest rank sends, the busiest gets, and
    the most that is for one, or for all."""
    kind, item = request.kind, request.element.storage.itemsize
    if request.shares is None:
        nbytes = request.count * item if kind.name != "barrier" else 0
        root = request.src if kind.paired else request.root if kind.rooted else 0
        return [Demand(kind.name, nbytes, root, request.dst if kind.paired else 0)]
    ranks, rows = range(request.world_size), request.shares
    others = max(len(ranks) - 1, 1)

    def busiest(moved: list[int], collective: str) -> Demand:
        root = max(ranks, key=moved.__getitem__)
        return Demand(collective, moved[root] * item // others, root, around=True)

    if len(rows) == 1:
        rest = [sum(rows[0]) - own for own in rows[0]]
        most = max(ranks, key=rows[0].__getitem__)
        gathers = kind.name == "all_gather"
        whole = Demand("broadcast" if gathers else "reduce", rows[0][most] * item, most)
        return _moving(busiest(rest, "gather" if gathers else "scatter"), whole)
    sent = [sum(rows[rank]) - rows[rank][rank] for rank in ranks]
    got = [sum(row[rank] for row in rows) - rows[rank][rank] for rank in ranks]
    pairs = ((i, j) for i in ranks for j in ranks if i != j)
    src, dst = max(pairs, key=lambda pair: rows[pair[0]][pair[1]], default=(0, 0))
    return _moving(
        busiest(sent, "scatter"), busiest(got, "gather"), Demand("send_recv", rows[src][dst] * item, src, dst)
    )


def _moving(*found: Demand) -> list[Demand]:
    return [demand for demand in found if demand.nbytes]


class Limits:
    """The bounds of one machine; what does not depend on the size is computed once, when it is asked for."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._known: dict[_Key, Limit | str] = {}
        """The bounds of sizes that were asked for before: a job asks for few, many times."""

    def bound(
        self,
        collective: str,
        ranks: int | Sequence[int],
        nbytes: int,
        *,
        root: int = 0,
        dst: int = 0,
        tiles: int | None = None,
        program: Program | None = None,
        own: Sequence[int] | None = None,
        around: bool = False,
    ) -> Bound:
        """Bounds a collective of `nbytes` bytes per chunk of one rank (the whole array where it has no chunks).

        `ranks` are the SIPs of the group in order, or the first so many; `root` and `dst` are numbers among them. With
        `tiles`, every SIP holds so many tiles of `nbytes`, each a contribution. With `program`, the bound is that of
        programs that have the same PEs at each rank and move their data as that one does: in messages alone, or not;
        it was made for the SIPs `own`, if not for these. `around`: see `Demand`. Raises ConfigError (AHBM-C120).
        """
        sips, cubes = self._machine.sips, self._machine.cubes
        count = ranks if isinstance(ranks, int) else len(ranks)
        for rank in (root, dst):
            if not 0 <= rank < max(count, 1):
                raise ConfigError("AHBM-C120", f"rank {rank} is not in a group of {count}")
        if count == 1 and tiles in (None, 1):
            return Bound.known(0, "a single rank", True)
        if COLLECTIVES[collective].paired and root == dst:
            return Bound.known(0, "a message to itself", True)
        if count > sips:
            return Bound.known(None, f"no bound is known for {count} ranks on {sips} SIPs", False)
        group = tuple(range(count)) if isinstance(ranks, int) else tuple(ranks)
        levels = [(group, False)] if sips > 1 else []
        if tiles == cubes and cubes > 1:
            levels.append(((), True))
        if not levels:
            return Bound.known(None, f"no bound is known for {tiles} of {cubes} cubes", False)

        def find() -> Known:
            if around:
                found = [self._around(group[root], collective == "gather", nbytes * (count - 1))]
            else:
                found = [self._bound((collective, group, root, dst, cubes), nbytes) for group, cubes in levels]
            tightest = all(bound.tightest for bound in found)
            ends = group[root], group[dst]
            by_tile = tiles is not None and collective == "all_reduce"
            engines = [self._machine.least_by_io(collective, group, nbytes, *ends)]
            if program is not None:
                made = group if own is None else tuple(own)
                engines.append(program.least_by_engines(collective, made, nbytes, made[root], made[dst], by_tile))
            for ps, reason in filter(None, engines):
                found.append(Known(ps, reason if tightest else f"{reason}, {NOT_TIGHTEST}", tightest))
            return max(found, key=lambda bound: -1 if bound.ps is None else bound.ps)

        return Bound(find)

    def limit(self, collective: str, ranks: int, *, root: int = 0, dst: int = 0) -> Limit | None:
        """The bound among the first SIPs as a function of the data; None where none is known."""
        if not 1 < ranks <= self._machine.sips or not 0 <= max(root, dst) < ranks:
            return None
        found = self._limit((collective, tuple(range(ranks)), root, dst, False))
        return None if isinstance(found, str) else found

    def _limit(self, key: _Key) -> Limit | str:
        if key not in self._known:
            collective, ranks, root, dst, cubes = key
            try:
                self._known[key] = Limit(self._machine, collective, sips=ranks, root=root, dst=dst, cubes=cubes)
            except (UnsupportedError, BudgetError) as error:
                self._known[key] = error.message
        return self._known[key]

    def _around(self, sip: int, enters: bool, nbytes: int) -> Known:
        try:
            limit = Limit.around(self._machine, sip, enters)
        except (UnsupportedError, BudgetError) as error:
            return Known(None, error.message, False)
        return Known(limit.ps(nbytes), f"{describe(limit.cut, 'sip', self._machine.sips)}, {NOT_TIGHTEST}", False)

    def _bound(self, key: _Key, nbytes: int) -> Known:
        limit = self._limit(key)
        if isinstance(limit, str):
            return Known(None, limit, False)
        name, nodes = ("cube", self._machine.cubes) if key[-1] else ("sip", self._machine.sips)
        by_cut = nbytes > 0 and limit.by_bandwidth(nbytes)
        reason = describe(limit.cut, name, nodes) if by_cut else f"the way between the farthest {name}s"
        return Known(limit.ps(nbytes), reason if limit.tightest else f"{reason}, {NOT_TIGHTEST}", limit.tightest)


COMPARED = 64
"""Groups with which another one is compared: machines that are regular have few kinds of them."""


class Places:
    """Groups of SIPs of a machine, each with the first one that is like it: their bounds are equal."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._first: dict[tuple[int, ...], list[tuple[int, ...]]] = {}

    def like(self, sips: tuple[int, ...]) -> tuple[int, ...]:
        """The first group that was asked for and is like this one, itself where there is none."""
        size = self._machine.node_size
        numbers: dict[int, int] = {}
        # Which ranks share a node, whatever the node.
        shape = tuple(numbers.setdefault(sip // size, len(numbers)) for sip in sips) if size > 1 else (len(sips),)
        known = self._first.setdefault(shape, [])
        nodes_alike = size > 1 and not self._has_faults
        for group in known[:COMPARED]:
            if nodes_alike or group == sips or self._machine.carries(list(group), list(sips)):
                return group
        known.append(sips)
        return sips

    @cached_property
    def _has_faults(self) -> bool:
        return any(key.startswith("faults.") for key, _ in self._machine.parameters)


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
