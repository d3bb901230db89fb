"""What an algorithm is, whatever file or program says it: who sends whom how much, and what is added.

A plan runs once on a reference machine, on which every rank has a link to every other. Who sends how much over which
link is the algorithm's alone there, and the same for a kernel and for all files that were made of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from ahbm._core import Plan
from ahbm.errors import AhbmError
from ahbm.runs.plans import Options, default_bytes
from ahbm.runs.timed import prepare

REFERENCE = "npu_fully_connected_8"
"""The machine, with as many NPUs as the algorithm has ranks."""
PS_OF_A_BYTE = 20
"""Of a link of the reference machine: 50 GB/s."""
MOST_RANKS = 256
"""Links of the reference machine grow with the square."""
KINDS = ("ring", "tree", "direct", "halving_doubling", "topology_aware", "other")


@dataclass(frozen=True)
class Shape:
    """Transfers of an algorithm."""

    collective: str
    ranks: int
    added: Fraction
    """Additions over all ranks, in arrays."""
    sent: Mapping[tuple[int, int], Fraction]
    """By sender and receiver: what goes from one to the other, in arrays."""

    @cached_property
    def peers(self) -> list[set[int]]:
        """Whom every rank sends to."""
        found: list[set[int]] = [set() for _ in range(self.ranks)]
        for src, dst in self.sent:
            found[src].add(dst)
        return found

    @property
    def out_degree(self) -> int:
        """Most ranks that a rank sends to."""
        return max(map(len, self.peers), default=0)

    @property
    def id(self) -> str:
        """16 hex digits, the same however the ranks are numbered.

        Ranks begin alike. In each of at most as many rounds as there are ranks, while that tells more apart, a rank is
        told by what it was, and by the sorted pairs of a share and the rank at its other end, sent and received.
        Hashed are the collective, the number of ranks, the additions, and the sorted ranks.
        """
        ends: list[list[tuple[Fraction, str, int]]] = [[] for _ in range(self.ranks)]
        for (src, dst), share in self.sent.items():
            ends[src].append((share, ">", dst))
            ends[dst].append((share, "<", src))
        colours = [""] * self.ranks
        for _ in range(self.ranks):
            made = []
            for rank, colour in enumerate(colours):
                made.append(
                    _digest([colour, *sorted(f"{share}{way}{colours[other]}" for share, way, other in ends[rank])])
                )
            done = len(set(made)) == len(set(colours))
            colours = made
            if done:
                break
        return _digest([self.collective, str(self.ranks), str(self.added), *sorted(colours)])

    @property
    def kind(self) -> str:
        """One of `KINDS`, by who sends to whom, the first of these that holds:

        - ring: the pairs that send each other anything are one circle through all ranks,
        - tree: they are one tree, or as many as in two and carry at most two different shares,
        - direct: every rank sends to every other,
        - halving_doubling: every rank has as many targets as the number of ranks has binary digits,
        - topology_aware: some ranks have other targets or other shares than others,
        - other.
        """
        n, pairs = self.ranks, {frozenset(pair) for pair in self.sent}
        degrees = {sum(rank in pair for pair in pairs) for rank in range(n)}
        shares = set(self.sent.values())
        if n > 2 and self._connected and degrees == {2}:
            return "ring"
        two = len(degrees) > 1 and len(pairs) <= 2 * n - 2 and len(shares) <= 2
        if self._connected and (two or len(pairs) == n - 1):
            return "tree"
        if all(len(peers) == n - 1 for peers in self.peers):
            return "direct"
        if set(map(len, self.peers)) == {max((n - 1).bit_length(), 1)}:
            return "halving_doubling"
        own = {tuple(sorted(share for (src, _), share in self.sent.items() if src == rank)) for rank in range(n)}
        return "topology_aware" if len(own) > 1 or len(degrees) > 1 else "other"

    @property
    def _connected(self) -> bool:
        seen, waiting = {0}, [0]
        links: list[set[int]] = [set() for _ in range(self.ranks)]
        for src, dst in self.sent:
            links[src].add(dst)
            links[dst].add(src)
        while waiting:
            for other in links[waiting.pop()] - seen:
                seen.add(other)
                waiting.append(other)
        return len(seen) == self.ranks


def shape_of(plan: Plan) -> Shape | None:
    """The shape of a plan with buffers; None for another one, for one of a rank or of more than `MOST_RANKS`, and for
    one that does not run."""
    if not plan.buffers or not 1 < plan.ranks <= MOST_RANKS:
        return None
    nbytes = default_bytes(plan, "f16")
    sips = {"system.sips.count": plan.ranks, "defaults.buffer_kind": "hbm"}
    try:
        program, _, _ = prepare(plan, REFERENCE, Options(slots=None), nbytes, "f16", "sum", sips, None)
        found = program.features()
        links = program.simulate(record=False, detail=True).link_use()
    except AhbmError:
        return None
    sent = {}
    for _, name, busy, *_ in links:
        src, _, dst = name.partition("->")
        if src.startswith("sip") and dst.startswith("sip"):
            sent[int(src[3:]), int(dst[3:])] = Fraction(busy, PS_OF_A_BYTE * nbytes)
    return Shape(plan.collective, plan.ranks, Fraction(found.operations * 2, nbytes), sent)


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
