"""Which part of what a device was given is an iteration.

Marks divide a rank's journal: `ahbm.torch.step()`, else steps of optimizers, else those of a profiler. Several
optimizers make one iteration: it ends with the last step before the optimizer that stepped first returns. Where nothing
marks, the kernels' names do: the pattern that repeats over the most of them is the iteration. A call of a module or of
backward is one part of the pattern, so layers that are alike are no iterations. Where no pattern repeats over half of
them, as with evaluations between, an iteration ends with a call of backward if most of these iterations are alike.

An iteration that is the usual one and something more in one place is the usual one, and the rest lies beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

USER, OPTIMIZER, PROFILER = range(3)
"""Who marks; a smaller number wins."""
LEAST = 3
"""Repetitions that make a pattern."""
CANDIDATES = 8
"""Lengths of patterns that are tried, of those that a part, two parts, four parts, ... return after."""
WAITS = 32
"""Steps of one optimizer after which others that have not stepped are no longer waited for."""

Range = tuple[int, int]


class Mark(NamedTuple):
    """An end of something, before node `at` of the journal."""

    source: int
    who: int
    at: int
    skipped: bool = False
    """Whether a scaler kept the optimizer from its step."""


@dataclass
class Found:
    """The iterations of a journal."""

    whole: list[Range] = field(default_factory=list)
    """All that have ended, by their first node and the one after the last; the first one has what went before."""
    looked: dict[int, list[Range]] = field(default_factory=dict)
    """Those that are like the usual one: by their number, the nodes that belong to it."""
    beside: dict[int, Range] = field(default_factory=dict)
    """By the number of the iteration, what lies in it and is not of it."""


def rounds(who: Sequence[int], *, over: bool) -> list[int]:
    """How many steps of optimizers each iteration has that has ended; `over`: no step follows.

    >>> rounds([0, 0, 0], over=False)
    [1, 1, 1]
    >>> rounds([0, 0, 1, 0, 0, 1, 0], over=False)
    [3, 3]
    """
    if not who:
        return []
    leader = who[0]
    several = any(one != leader for one in who)
    returns = [at for at in range(1, len(who)) if who[at] == leader and (not several or who[at - 1] != leader)]
    run = next((at for at, one in enumerate(who) if one != leader), len(who))
    if several and not returns and len(set(who)) < len(who) and (over or len(who) - run > WAITS):
        return [1] * len(who)  # one after the other, each for a part of the script
    starts = [0, *returns]
    found = [end - start for start, end in zip(starts, [*returns, len(who)], strict=True)]
    last = list(who[starts[-1] :])
    before = list(who[starts[-2] : starts[-1]]) if returns else None
    if several and last != before and not (over and before is None):
        found.pop()
    return found


def divided(marks: Sequence[Mark], *, over: bool) -> list[Range]:
    """The iterations between marks, by those of the source that wins."""
    if not marks:
        return []
    best = min(mark.source for mark in marks)
    used = [mark for mark in marks if mark.source == best]
    counts = rounds([mark.who for mark in used], over=over) if best == OPTIMIZER else [1] * len(used)
    found, start, at = list[Range](), 0, 0
    for count in counts:
        at += count
        found.append((start, used[at - 1].at))
        start = used[at - 1].at
    return found


def compared(whole: Sequence[Range], names: Sequence[Hashable], skipped: Sequence[int] = ()) -> Found:
    """Which iterations are like the usual one, the first left aside. `skipped`: nodes before which an optimizer's step
    was skipped.

    The usual one is that of which there are most; among those, that which most others are with something more; among
    those, the first.
    """
    found = Found(list(whole))
    lacking = set(skipped)
    rows = {
        number: (*names[start:end], *(("skipped",) for at in lacking if start < at <= end))
        for number, (start, end) in enumerate(whole)
        if number
    }
    if not rows:
        found.looked = {number: [part] for number, part in enumerate(whole)}
        return found
    counts = Counter(rows.values())
    most = max(counts.values())
    kinds = [kind for kind in counts if counts[kind] == most]
    split = {kind: {at: _more(row, kind) for at, row in rows.items() if row != kind} for kind in kinds}
    usual = max(kinds, key=lambda kind: sum(part is not None for part in split[kind].values()))
    parts = split[usual]
    if 2 * (most + sum(part is not None for part in parts.values())) < len(rows) or (
        most == 1 and not any(parts.values())
    ):
        found.looked = {number: [whole[number]] for number in rows}
        return found
    for number in rows:
        start, end = whole[number]
        if number not in parts:
            found.looked[number] = [(start, end)]
        elif (part := parts[number]) is not None:
            left, right = start + part[0], start + part[1]
            found.looked[number] = [one for one in ((start, left), (right, end)) if one[0] < one[1]]
            found.beside[number] = (left, right)
    return found


def alike(whole: Sequence[Range], names: Sequence[Hashable]) -> list[Range]:
    """The iterations if most of them are like the usual one, the first left aside; else none.

    >>> alike([(0, 3), (3, 5), (5, 7), (7, 10), (10, 12)], "xababababeab")
    [(0, 3), (3, 5), (5, 7), (7, 10), (10, 12)]
    >>> alike([(0, 2), (2, 4), (4, 5), (5, 7), (7, 8)], "ababcabc")
    []
    """
    if len(whole) <= LEAST:
        return []
    usual = Counter(tuple(names[start:end]) for start, end in whole[1:]).most_common(1)[0][0]
    like = sum(
        _more(names[start:end], usual) is not None or tuple(names[start:end]) == usual for start, end in whole[1:]
    )
    return list(whole) if 2 * like > len(whole) - 1 and len(usual) > 1 else []


def _more(row: Sequence[Hashable], usual: Sequence[Hashable]) -> Range | None:
    """What `row` has more than `usual`, in one place, as early as the rest allows; None: it is something else."""
    if len(row) <= len(usual):
        return None
    last = 0
    while last < len(usual) and row[-1 - last] == usual[-1 - last]:
        last += 1
    first = len(usual) - last
    return (first, len(row) - last) if tuple(row[:first]) == tuple(usual[:first]) else None


def repeated(names: Sequence[Hashable], calls: Sequence[Range], quiet: Container[Hashable] = ()) -> list[Range]:
    """The iterations of a journal without marks; empty where nothing repeats over half of it. `calls`: the nodes of
    modules and of backward, whose parts are none; where there are any, an iteration has one. `quiet`: names of which
    alone there is none."""
    units, known = list[Range](), dict[Hashable, int]()
    at, opened = 0, list[int]()
    for start, end in [*calls, (len(names), len(names))]:
        if start < at or end > len(names):
            continue
        units += ((number, number + 1) for number in range(at, start))
        if end > start:
            opened.append(len(units))
            units.append((start, end))
        at = end
    if len(units) < LEAST:
        return []
    kinds = [known.setdefault(tuple(names[start:end]), len(known)) for start, end in units]
    ends = np.array([0, *(end for _, end in units)])
    found = _pattern(np.array(kinds), ends)
    if found is None:
        return []
    start, period, count = found
    begins = next((unit for unit in opened if start <= unit < start + period), start)
    busy = any(name not in quiet for name in names[int(ends[start]) : int(ends[start + period])])
    if not busy or (opened and begins not in opened):
        return []
    if begins > start:
        count -= 1
    edges = [int(ends[begins + number * period]) for number in range(count + 1)]
    return list(pairwise(edges))


def _pattern(kinds: NDArray[np.int64], ends: NDArray[np.int64]) -> tuple[int, int, int] | None:
    """Start, length and number of the repetitions that cover most; `ends`: nodes before each part."""
    likely, grams, long = set[int](), kinds, 1
    while len(grams) > 1:  # longer and longer sequences of parts, of which each is at last once in an iteration
        order = np.argsort(grams, kind="stable")
        same = grams[order][1:] == grams[order][:-1]
        periods, times = np.unique((order[1:] - order[:-1])[same], return_counts=True)
        likely |= {int(one) for one in periods[np.argsort(-(periods * times), kind="stable")[:CANDIDATES]]}
        grams = np.unique(grams[:-long] * (int(grams.max()) + 1) + grams[long:], return_inverse=True)[1]
        long *= 2
        if not len(periods):
            break
    tried = []
    for period in sorted(likely):
        equal = np.flatnonzero(np.diff(np.concatenate(([0], kinds[:-period] == kinds[period:], [0]))))
        runs = equal.reshape(-1, 2)
        if not len(runs):
            continue
        start, end = (int(one) for one in runs[np.argmax(runs[:, 1] - runs[:, 0])])
        count = (end - start + period) // period
        if count >= LEAST:
            tried.append((int(ends[start + count * period] - ends[start]), start, period, count))
    if not tried:
        return None
    most = max(covers for covers, *_ in tried)
    if 2 * most < int(ends[-1]):
        return None
    _, start, period, count = next(one for one in tried if 10 * one[0] >= 9 * most)
    return start, period, count


class Count:
    """How many iterations have ended, while a script runs: all of them, whatever is written down."""

    def __init__(self) -> None:
        self.ended = 0
        self.sure = True
        """Whether no optimizer that has not stepped yet may still belong to an iteration."""
        self.made = 0
        """How many optimizers there are."""
        self.by_script = False
        """Whether the script is expected to mark iterations itself."""
        self._source = PROFILER + 1
        self._who: set[int] = set()
        self._steps = 0
        self._leader = -1
        self._now: list[int] = []
        """The optimizers of the iteration that has begun."""
        self._before: list[int] | None = None
        self._counted = False
        """Whether that iteration is held to have ended."""

    def mark(self, source: int, who: int) -> None:
        """A mark."""
        if source < self._source:
            self._source, self.ended = source, 0
        if source != self._source:
            return
        if source != OPTIMIZER:
            self.ended, self.sure = self.ended + 1, source == USER or not self.by_script
            return
        alone = len(self._who) < 2
        self._steps += 1
        self._who.add(who)
        self.sure = self.made <= len(self._who) or self._steps > WAITS
        if self.by_script:
            self.sure = self._steps > WAITS * WAITS
        if alone and len(self._who) == 2 and 1 < self._steps <= WAITS:  # what were iterations is a part of one
            first = next(one for one in self._who if one != who)
            self.ended, self._before, self._now, self._counted = 0, None, [first] * (self._steps - 1), False
        if self._now and who == self._leader and (len(self._who) < 2 or self._now[-1] != who):
            self.ended += not self._counted
            self._before, self._now, self._counted = self._now, [], False
        if not self._now:
            self._leader = who
        self._now.append(who)
        whole = self._now == self._before or (self._before is None and self.made == len(self._who))
        if whole and not self._counted:
            self.ended, self._counted = self.ended + 1, True
        if len(self._now) > WAITS and len(self._who) > 1 and set(self._now[-WAITS:]) == {who}:
            self.ended += WAITS  # the first one has had its part of the script
            self._who, self._leader, self._before, self._now, self._counted = {who}, who, [who], [who], True
