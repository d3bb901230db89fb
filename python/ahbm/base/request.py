"""One collective, as all its ranks agree on it: the only carrier of these facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ahbm._core import expected, held
from ahbm.base.collectives import COLLECTIVES, Collective
from ahbm.base.elements import Element, element
from ahbm.base.placement import DPPolicy

Shares = tuple[tuple[int, ...], ...]
Segment = tuple[int, int, tuple[tuple[int, int], ...]]
"""First element of a party's array, the end, and the contributions (party, element) that go into the first one."""


@dataclass(frozen=True)
class Request:
    """A collective to perform: everything about it but its data and its algorithm. Hashable and picklable.

    A *party* contributes one array: a rank, or each tile of a rank's device tensor. Every array has
    `chunks * count` elements in the collective's in-place layout (`ahbm.base.collectives`).
    """

    collective: str
    ranks: range | tuple[int, ...]
    """The global rank of every group rank; `range(n)` for the first n."""
    count: int
    """Elements of one chunk of a party's array."""
    dtype: str = "f16"
    """The kernels' name of the element type."""
    op: str = "sum"
    """Reduction operator; of no meaning for collectives that do not reduce."""
    root: int = 0
    """Group rank of the root; of no meaning for collectives without."""
    src: int = 0
    """Group rank of the sender of send_recv."""
    dst: int = 1
    """Group rank of the receiver of send_recv."""
    placement: DPPolicy | None = None
    """Of device tensors; None for host arrays."""
    tiles: int = 1
    """Parties of each rank: the tiles of a device tensor."""
    shares: Shares | None = None
    """Where chunks are not equally long, the elements of each that count, its first ones: of an all_to_all a row per
    rank with what it sends to each, of other collectives one row with what belongs to each. `count` is the longest."""

    def __post_init__(self) -> None:
        ranks = self.ranks
        if self.shares is not None and all(length == self.count for row in self.shares for length in row):
            object.__setattr__(self, "shares", None)
        if not isinstance(ranks, range) and ranks == tuple(range(len(ranks))):
            # One spelling per group, which is hashed in no time however many ranks it has.
            object.__setattr__(self, "ranks", range(len(ranks)))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Computed once: every call looks up under its request what it runs."""
        facts = (self.collective, self.ranks, self.count, self.dtype, self.op, self.root, self.src, self.dst)
        return hash((facts, self.placement, self.tiles, self.shares))

    def __getstate__(self) -> dict[str, object]:
        # Text hashes differ from process to process.
        return {name: value for name, value in vars(self).items() if name in self.__dataclass_fields__}

    @cached_property
    def kind(self) -> Collective:
        """Facts about the collective. Raises KeyError for an unknown one."""
        return COLLECTIVES[self.collective]

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    @cached_property
    def parties(self) -> int:
        """Number of contributions."""
        return len(self.ranks) * self.tiles

    @cached_property
    def element(self) -> Element:
        """The element type. Raises UnsupportedError (AHBM-U130)."""
        return element(self.dtype)

    @property
    def chunks(self) -> int:
        """Chunks in one party's array."""
        return self.kind.chunks(self.parties)

    @cached_property
    def size(self) -> int:
        """Elements of one party's array."""
        return self.chunks * self.count

    @property
    def nbytes(self) -> int:
        """Bytes of one party's array: the size in the sense of nccl-tests; the largest where shares differ."""
        if self.shares is None:
            return self.size * self.element.storage.itemsize
        return max(map(sum, (*self.shares, *zip(*self.shares, strict=True)))) * self.element.storage.itemsize

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one rank's buffer: elements, or (tiles, elements) of a device tensor."""
        return (self.size,) if self.placement is None else (self.tiles, self.size)

    @cached_property
    def reduces(self) -> bool:
        """True when contributions are combined."""
        return self.kind.reduces

    def lengths(self, party: int, *, received: bool) -> tuple[int, ...]:
        """Elements that count of each chunk in a party's array, when the collective begins or when it ends."""
        if self.shares is None:
            return (self.count,) * self.chunks
        if len(self.shares) == 1:
            return self.shares[0]
        return tuple(row[party] for row in self.shares) if received else self.shares[party]

    def padded(self) -> Request:
        """The same with every chunk as long as the longest."""
        return self if self.shares is None else replace(self, shares=None)

    def held(self, party: int) -> list[tuple[int, int]]:
        """The contribution of a party: first element and end of the parts of its array that count."""
        runs: list[Segment] = [(start, stop, ()) for _, start, stop, _ in self._runs(held, party)]
        return [(start, stop) for start, stop, _ in self._that_count(runs, party, received=False)]

    def expected(self, party: int) -> list[Segment]:
        """Segments that a party's array must end with, in ascending order; all else may end with anything."""
        runs = [(start, stop, tuple(whose)) for _, start, stop, whose in self._runs(expected, party)]
        return self._that_count(runs, party, received=True)

    def _that_count(self, runs: list[Segment], party: int, *, received: bool) -> list[Segment]:
        """What counts of segments."""
        if self.shares is None:
            return runs
        found: list[Segment] = []
        lengths, count = self.lengths(party, received=received), self.count
        for start, stop, whose in runs:
            for chunk in range(start // count, -(-stop // count)):
                low, high = max(start, chunk * count), min(stop, chunk * count + lengths[chunk])
                if low < high:
                    found.append((low, high, tuple((who, at + low - start) for who, at in whose)))
        return found

    def part(self, party: int) -> slice:
        """The elements of a party's array that the collective defines."""
        if party not in self._parts:
            runs = self._runs(expected, party)
            self._parts[party] = slice(runs[0][1], runs[-1][2]) if runs else slice(0, 0)
        return self._parts[party]

    @cached_property
    def _parts(self) -> dict[int, slice]:
        """Every result is compared in its part, as often as the request is performed."""
        return {}

    def _runs(self, what: Any, party: int) -> list[tuple[int, int, int, list[tuple[int, int]]]]:
        if not self.count:
            return []
        kind = self.kind
        root, (src, dst) = self.root if kind.rooted else 0, (self.src, self.dst) if kind.paired else (0, 1)
        found: list[tuple[int, int, int, list[tuple[int, int]]]]
        found = what(self.collective, self.parties, self.count, root, src, dst, rank=party)
        return found

    def among(self, ranks: Sequence[int]) -> Request:
        """The same between other ranks."""
        return replace(self, ranks=tuple(ranks))
