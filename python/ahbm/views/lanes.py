"""A run as lanes of bars: what is too short to be seen alone is merged with its neighbours, never left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

NONE = 2**32 - 1
SENT, READ, JOINED, CARRIED = 1, 2, 3, 4
"""The part of a slice in a message."""
FRAMES = 240
"""Parts of the run in which a lane of shares counts."""

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Tracks:
    """What `Timeline.tracks` and `Replayed.tracks` return, by name."""

    tracks: Sequence[tuple[str, int | None]]
    names: Sequence[str]
    origins: Sequence[str]
    track: Ints
    name: Ints
    origin: Ints
    depth: Ints
    message: Ints
    part: Ints
    start: Ints
    end: Ints

    @classmethod
    def of(cls, found: Any) -> Tracks:
        """Of what the native module returned."""
        tracks, names, origins, columns = found
        return cls(tracks, names, origins, *(column.astype(np.int64) for column in columns))

    def groups(self, track: int) -> list[str]:
        """The names of the groups that a track stands in, the outermost first, and its own."""
        name, parent = self.tracks[track]
        return [*(self.groups(parent) if parent is not None else ()), name]


@dataclass(frozen=True)
class Slices:
    """What happened on lanes: disjoint on each, in the order of lanes and times."""

    lane: Ints
    start: Ints
    end: Ints
    group: Ints
    """What the time was spent on."""
    text: Ints
    """Number of a text."""

    def __len__(self) -> int:
        return len(self.lane)

    def take(self, at: Any) -> Slices:
        """Some of them."""
        return Slices(self.lane[at], self.start[at], self.end[at], self.group[at], self.text[at])

    @classmethod
    def joined(cls, parts: Sequence[Slices]) -> Slices:
        """All of several, in order."""
        columns = ("lane", "start", "end", "group", "text")
        empty = np.zeros(0, np.int64)
        found = [np.concatenate([empty, *(getattr(part, name) for part in parts)]) for name in columns]
        whole = cls(*found)
        return whole.take(np.lexsort((whole.start, whole.lane)))


@dataclass(frozen=True)
class Bars:
    """Slices as they are drawn: alone, or merged with short neighbours."""

    slices: Slices
    """Of several that were merged, from the first start to the last end; group and text are those of the longest."""
    count: Ints
    of: Ints
    """The bar of each slice that was given."""
    shortest: int
    """Slices shorter than this (ps) are merged; 0 for none."""


def merged(slices: Slices, most: int) -> Bars:
    """About `most` bars; the shortest slices of a lane that begin in the same stretch of time are one bar."""
    count = len(slices)
    if count <= most:
        return Bars(slices, np.ones(count, np.int64), np.arange(count), 0)
    lengths = slices.end - slices.start
    rungs = [digit * 10**power for power in range(18) for digit in (1, 2, 5)]
    least, top = 0, len(rungs) - 1
    while least < top:
        middle = (least + top) // 2
        if np.count_nonzero(_firsts(slices, lengths, rungs[middle])) <= most or rungs[middle] > slices.end.max():
            top = middle
        else:
            least = middle + 1
    firsts = np.flatnonzero(_firsts(slices, lengths, rungs[least]))
    counts = np.diff(np.append(firsts, count))
    of = np.repeat(np.arange(len(firsts)), counts)
    longest = np.maximum.reduceat(lengths, firsts)
    candidates = np.flatnonzero(lengths == longest[of])
    chosen = candidates[np.flatnonzero(np.diff(of[candidates], prepend=-1))]
    shown = slices.take(chosen)
    ends = np.maximum.reduceat(slices.end, firsts)
    bars = Slices(shown.lane, slices.start[firsts], ends, shown.group, shown.text)
    return Bars(bars, counts, of, rungs[least])


def _firsts(slices: Slices, lengths: Ints, shortest: int) -> Flags:
    """True for the first slice of each bar where those shorter than this are merged."""
    short = lengths < shortest
    bucket = slices.start // shortest
    with_last = short[1:] & short[:-1] & (bucket[1:] == bucket[:-1]) & (slices.lane[1:] == slices.lane[:-1])
    return np.concatenate([[True], ~with_last])


def shares(starts: Ints, ends: Ints, latency: int, frames: int = FRAMES) -> Ints:
    """Time of intervals in each of some equal parts of the run, in ps; they may overlap."""
    borders = np.arange(frames + 1) * latency // frames
    area = _before(starts, borders) - _before(ends, borders)
    return np.diff(area)


def _before(times: Ints, borders: Ints) -> Ints:
    """Per border the sum of border - time over the times before it."""
    ordered = np.sort(times)
    sums = np.concatenate([[0], np.cumsum(ordered)])
    count = np.searchsorted(ordered, borders)
    found: Ints = count * borders - sums[count]
    return found


def outside(slices: Slices, busy: Slices) -> Slices:
    """The parts of one lane's slices in which nothing of the disjoint `busy` runs."""
    if not len(slices):
        return slices
    borders = np.unique(np.concatenate([slices.start, slices.end, busy.start, busy.end]))
    left, right = borders[:-1], borders[1:]
    of, here = _at(slices, left)
    free = here & ~_at(busy, left)[1]
    at = of[free]
    return Slices(slices.lane[at], left[free], right[free], slices.group[at], slices.text[at])


def _at(slices: Slices, times: Ints) -> tuple[Ints, Flags]:
    """Per time the slice of one lane that runs then, and whether there is any."""
    if not len(slices):
        return np.zeros(len(times), np.int64), np.zeros(len(times), bool)
    of = np.searchsorted(slices.start, times, side="right") - 1
    return of, (of >= 0) & (slices.end[of] > times)
