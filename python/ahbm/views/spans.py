"""Operations over time, as many as can be drawn: of all times and all PEs, and in words what was merged or left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ahbm._core import categories
from ahbm.views.words import time

if TYPE_CHECKING:
    from ahbm.runs.explanation import Explanation

MOST_LANES = 64
"""Agents with a row of their own, a PE may have several; of more, evenly spread ones."""

Times = NDArray[np.int64]


@dataclass(frozen=True)
class Span:
    """A bar: one operation, or neighbours on one lane that are too short to be told apart."""

    start_ps: int
    end_ps: int
    lane: int
    """Position in the lanes of the picture."""
    agent: int
    op: int
    """The longest of the operations."""
    category: str
    """Of the critical path and of waits what the time was spent on, else empty."""
    count: int
    """Operations in it."""


@dataclass(frozen=True)
class Picture:
    """Bars on lanes, from launch to end."""

    lanes: Sequence[str]
    agents: Sequence[int]
    """The first agent of each lane."""
    spans: Sequence[Span]
    left_out: str
    """The agents without a lane of their own, in words; empty for none."""
    merged: str
    """The bars that were merged, in words; empty for none."""

    @property
    def note(self) -> str:
        """Both."""
        return joined(self.left_out, self.merged)


def operations(explanation: Explanation, most: int) -> Picture:
    """The operations of the PEs, about `most` bars; the first PE and the last are among them."""
    places = names(explanation)
    chosen = evenly(len(places), MOST_LANES)
    found = [explanation.spans(agent) for agent in chosen]
    starts, ends = (_joined([times[side] for times in found]) for side in (0, 1))
    lanes = np.repeat(np.arange(len(chosen)), [len(times[0]) for times in found])
    ops = _joined([np.arange(len(times[0])) for times in found])
    merged, shortest = fitted(starts, ends, lanes, most)
    agents = np.array(chosen, np.int64)[lanes]
    spans = [
        Span(start, end, int(lanes[at]), int(agents[at]), int(ops[at]), "", count) for start, end, at, count in merged
    ]
    every = f"{len(chosen)} of {len(places)} agents" if len(chosen) < len(places) else ""
    return Picture([places[agent] for agent in chosen], chosen, spans, every, left_out("operations", shortest))


def path(explanation: Explanation, most: int) -> Picture:
    """The critical path from launch to end, about `most` bars, on a lane for each PE that it comes to; many PEs share
    lanes.
    """
    starts, ends, agents, ops, category = explanation.path
    places, kinds = names(explanation), categories()
    met, of = np.unique(agents, return_inverse=True)
    a_lane = -(-len(met) // MOST_LANES)
    lanes = of // max(a_lane, 1)
    merged, shortest = fitted(starts, ends, lanes, most)
    spans = [
        Span(start, end, int(lanes[at]), int(agents[at]), int(ops[at]), kinds[int(category[at])], count)
        for start, end, at, count in merged
    ]
    shared = f"{a_lane} agents share a lane" if a_lane > 1 else ""
    first = met[::a_lane].tolist() if len(met) else []
    return Picture([places[agent] for agent in first], first, spans, shared, left_out("stretches", shortest))


def names(explanation: Explanation) -> list[str]:
    """The place of each agent; of several at one place the others have a number too."""
    met: dict[str, int] = {}
    found = []
    for place in explanation.places:
        met[place] = met.get(place, 0) + 1
        found.append(place if met[place] == 1 else f"{place} #{met[place]}")
    return found


def evenly(count: int, most: int) -> list[int]:
    """At most `most` of `count` positions, evenly spread, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return [index * (count - 1) // (most - 1) for index in range(most)]


def _joined(columns: Sequence[Times]) -> Times:
    return np.concatenate(columns) if columns else np.zeros(0, np.int64)


def left_out(what: str, shortest: int) -> str:
    """The words of a picture in which `what` shorter than this (ps) are merged; none for 0."""
    return f"{what} shorter than {time(shortest)} merged" if shortest else ""


def joined(*notes: str) -> str:
    """The notes that there are."""
    return "; ".join(dict.fromkeys(note for note in notes if note))


def fitted(starts: Times, ends: Times, lanes: Times, most: int) -> tuple[list[tuple[int, int, int, int]], int]:
    """About `most` bars (start, end, position of the longest, number), and the length under which bars were merged."""
    if len(starts) <= most:
        every = range(len(starts))
        return sorted(zip(starts.tolist(), ends.tolist(), every, [1] * len(every), strict=True)), 0
    shortest = 1
    for shortest in _round_numbers():
        keys = _keys(starts, ends, lanes, shortest)
        if len(np.unique(keys)) <= most or shortest > ends.max():
            break
    _, of = np.unique(keys, return_inverse=True)
    # Within a bar the longest operation first.
    order = np.lexsort((starts - ends, of))
    first = np.flatnonzero(np.diff(of[order], prepend=-1))
    counts = np.diff(np.append(first, len(order)))
    merged_starts = np.minimum.reduceat(starts[order], first)
    merged_ends = np.maximum.reduceat(ends[order], first)
    columns = (merged_starts, merged_ends, order[first], counts)
    return sorted(zip(*(column.tolist() for column in columns), strict=True)), shortest


def _keys(starts: Times, ends: Times, lanes: Times, shortest: int) -> Times:
    """Equal for what is merged: short operations of one lane that begin in the same bucket of time."""
    buckets = int(ends.max()) // shortest + 1
    short = ends - starts < shortest
    merged = lanes * buckets + starts // shortest
    return np.where(short, merged, -1 - np.arange(len(starts)))


def _round_numbers() -> Iterator[int]:
    """1, 2, 5, 10, 20, 50, ..."""
    power = 1
    while True:
        yield from (power, 2 * power, 5 * power)
        power *= 10
