"""The parts of a store: their names, which say all that a sweep must know of them without reading a row."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ahbm.errors import ConfigError

_NAME = re.compile(
    r"([0-9a-f]{16})\.([0-9a-f]{12})\.(\d+)-(\d+)\.(\d+)\.(\d+)\.(\d+)\.([0-9a-f]{8})\.([0-9a-f]{32})\.([0-9a-f]{16})\.parquet"
)
_OLD = re.compile(r"[0-9a-f]{24}\.(parquet|jsonl)")
_MODULUS = 1 << 128
FRESH = "0" * 8
"""The merge of a part that was never merged."""


@dataclass(frozen=True, order=True)
class Part:
    """A part. The parts of a folder are its manifest: to list two folders is to merge them."""

    space: str
    """Of what the rows were run for: 16 hex digits."""
    build: str
    """Of the emulator that made them: 12 hex digits."""
    first: int
    """The cases from `first` to below `end` of the space are in the store once this part is; none where both are 0."""
    end: int
    rows: int
    wrong: int
    """Cases from `first` to `end` whose result is wrong, wherever their rows are; rows, where it has no positions."""
    unproved: int
    """Rows that may be others on another day."""
    merge: str
    """Parts of one merge have no key twice; `FRESH` where a sweep wrote it. 8 hex digits."""
    sum: int
    """Of the keys of all cases from `first` to `end`; see `key_sum`."""
    digest: str
    """Of the keys of its rows: 16 hex digits."""

    @property
    def name(self) -> str:
        """Its file."""
        counts = f"{self.first}-{self.end}.{self.rows}.{self.wrong}.{self.unproved}"
        return f"{self.space}.{self.build}.{counts}.{self.merge}.{self.sum:032x}.{self.digest}.parquet"

    @property
    def covers(self) -> bool:
        """Whether a sweep need not look into it for the cases from `first` to `end`."""
        return self.end > self.first and not self.unproved

    @staticmethod
    def of(name: str) -> Part | None:
        """The part of a file; None for a file that is being written.

        Raises ConfigError (AHBM-C186) for a file that is no part, and for one of an older store.
        """
        found = _NAME.fullmatch(name)
        if found is not None:
            space, build, *counts, merge, keys, digest = found.groups()
            first, end, rows, wrong, unproved = map(int, counts)
            return Part(space, build, first, end, rows, wrong, unproved, merge, int(keys, 16), digest)
        if name.startswith("."):
            return None
        if _OLD.fullmatch(name):
            hint = "sweep its space.json into a new folder: rows of another build are not taken for those of this one"
            raise ConfigError("AHBM-C186", f"{name} is a part of a store as older versions wrote it", hint=hint)
        raise ConfigError("AHBM-C186", f"{name} is no part of a sweep")


def build_of(version: str) -> str:
    """The build in the name of a part."""
    return hashlib.sha256(version.encode()).hexdigest()[:12]


def key_sum(keys: Iterable[str]) -> int:
    """The sum of keys, in whatever order and in however many parts they are summed."""
    return sum(int(key[:32], 16) for key in keys) % _MODULUS


def sums(numbers: Iterable[int]) -> int:
    """The sum of sums of keys."""
    return sum(numbers) % _MODULUS


def digest_of(keys: Iterable[str]) -> str:
    """The digest of the keys of rows."""
    return f"{key_sum(keys):032x}"[:16]


Spans = Sequence[tuple[int, int]]
"""Positions from the first to below the second of each pair, ascending, apart."""


def united(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans in any order as `Spans`."""
    found: list[tuple[int, int]] = []
    for first, end in sorted(spans):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        elif end > first:
            found.append((first, end))
    return found


def missing(spans: Spans, first: int, end: int) -> list[tuple[int, int]]:
    """What is left of the positions from `first` to `end` without `spans`."""
    left, at = [], first
    for low, high in spans:
        if low > at:
            left.append((at, min(low, end)))
        at = max(at, high)
        if at >= end:
            break
    if at < end:
        left.append((at, end))
    return [(low, high) for low, high in left if low < high]


def own_covers(parts: Iterable[Part], space: str, version: str) -> list[Part]:
    """The parts of a space and of a build into which a sweep need not look."""
    own = build_of(version)
    return [part for part in parts if part.covers and part.space == space and part.build == own]


def segments(parts: Sequence[Part]) -> list[tuple[int, int]]:
    """The positions of parts, cut wherever one begins or ends."""
    ends = sorted({at for part in parts for at in (part.first, part.end)})
    spans = united((part.first, part.end) for part in parts)
    within = [(low, high) for low, high in pairwise(ends)]
    return [one for one in within if any(first <= one[0] and one[1] <= end for first, end in spans)]
