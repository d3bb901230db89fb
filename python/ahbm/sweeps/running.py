"""Runs the cases of a space, each once: hands out ranges of its positions, and follows what becomes of them."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from uuid import uuid4

from ahbm.base.arguments import refused
from ahbm.base.sizes import Resized
from ahbm.errors import ConfigError
from ahbm.sweeps import work
from ahbm.sweeps.case import Cases
from ahbm.sweeps.space import Space
from ahbm.sweeps.work import Done, Setup
from ahbm.table.build import build
from ahbm.table.columns import LOST
from ahbm.table.engine import Here, Spans, Workers, run
from ahbm.table.files import NAMES
from ahbm.table.made import refusal
from ahbm.table.parts import Part, build_of, missing, own_covers, segments, sums, united
from ahbm.table.processes import Places, dead
from ahbm.table.store import Store

LOOKED_AT = 4000
"""Cases whose keys are made together, which takes a tenth of a second."""
ALONE = 5 * LOOKED_AT
"""Cases whose keys one process makes sooner than several begin."""


@dataclass
class Progress:
    """How far a sweep is."""

    total: int
    """Cases that there are; until all were looked at, those that will turn out to be equal among them."""
    known: int = 0
    """Cases whose rows the store has."""
    done: int = 0
    """Cases that ran."""
    failed: int = 0
    """Those of `done` that did not run to their end."""
    wrong: int = 0
    """Those of `known` and `done` whose result is wrong."""
    resized: dict[Resized, None] = field(default_factory=dict)
    """Sizes that were asked for and cannot be divided, each change once."""
    began: tuple[float, int] | None = None
    """When the first rows came, and how many they were: what came before was no work."""

    def add(self, done: Done) -> None:
        """Some positions were handled."""
        self.total -= done.same
        self.known += done.known
        self.done += done.ran
        self.failed += done.failed
        self.wrong += done.wrong
        self.resized |= done.resized
        if done.ran:
            self.began = self.began or (time.monotonic(), self.done)

    def __str__(self) -> str:
        left = max(self.total - self.known - self.done, 0)
        parts = [f"{self.known + self.done:,} of {self.total:,} cases"]
        since, first = self.began or (0.0, 0)
        if self.done > first:
            rate = (self.done - first) / max(time.monotonic() - since, 1e-9)
            parts.append(f"{rate:,.0f}/s, {_span(left / rate)} left")
        parts += [f"{self.failed:,} did not run"] if self.failed else []
        parts += [f"{self.wrong:,} wrong"] if self.wrong else []
        return ", ".join(parts)


def swept(
    space: Space,
    workers: Workers,
    store: str | Path | None = None,
    *,
    share: tuple[int, int] = (1, 1),
    tell: Callable[[Progress], object] | None = None,
) -> Iterator[Done]:
    """Runs the cases of a space that the store does not have, and tells what became of positions as they are done, in
    any order. Their rows are in the store then, written by who ran them; without a store they come along.

    share: which of how many equal ranges of the space, from 1 on: whoever has the space, a share and the store needs
    nobody else. tell: is told how far it is. Raises as `ahbm.sweep`.
    """
    first, end = (space.count * number // share[1] for number in (share[0] - 1, share[0]))
    progress = Progress(end - first)
    for name in space.kinds:
        if name in NAMES:
            hint = f"write defaults.{name}"
            raise ConfigError("AHBM-C185", f"the override {name} has the name of a column", hint=hint)
    _first(tell, progress)
    # The cases of this process name what does not exist before any other process begins.
    cases = Cases(space, Places())
    setup = Setup(uuid4().hex, space, space.kinds)
    spans: Sequence[tuple[int, int]] = [(first, end)]
    if store is not None:
        kept = Store(store)
        if kept.place.one_process and not isinstance(workers, Here):
            raise refused("store", "a place that other processes see, or no other processes", str(store))
        digest = kept.begin(space.to_json(), space.count)
        parts = kept.parts()
        setup = Setup(setup.token, space, setup.kinds, str(store), digest)
        covers = [part for part in own_covers(parts, digest, build()) if part.first < end and part.end > first]
        there = list(_confirmed(setup, covers, workers, progress, (first, end)))
        own = build_of(build())
        looked = any(part.build == own and part not in there for part in parts)
        setup = Setup(setup.token, space, setup.kinds, str(store), digest, looked)
        spans = missing(united((part.first, part.end) for part in there), first, end)

    def lost(position: int, why: str) -> Done:
        case = cases.case(position)[0]
        assert case is not None
        return work.lost(setup, position, case, refusal(case, LOST, dead(why).message))

    if tell is not None:
        tell(progress)
    if spans:
        for _, done in run(Spans(spans), partial(work.work, setup), workers, lost):
            progress.add(done)
            if tell is not None:
                tell(progress)
            yield done


def _confirmed(
    setup: Setup, covers: Sequence[Part], workers: Workers, progress: Progress, within: tuple[int, int]
) -> Iterator[Part]:
    """The parts whose cases are those of today: what a case is may lie in files that were edited since. Makes the keys
    of all, reads none."""
    spans = segments(covers)
    if sum(end - first for first, end in spans) < ALONE:
        workers = Here()
    found: dict[int, list[Done]] = {}
    starts = [first for first, _ in spans]

    def lost(position: int, why: str) -> Done:
        raise dead(why)

    if spans:
        for positions, done in run(Spans(spans), partial(work.looked_at, setup), workers, lost, LOOKED_AT):
            found.setdefault(starts[bisect_right(starts, positions[0]) - 1], []).append(done)
    counted: set[int] = set()
    for part in covers:
        inside = [first for first, end in spans if part.first <= first and end <= part.end]
        if sums(done.keys for first in inside for done in found[first]) != part.sum:
            continue
        yield part
        if not counted.issuperset(inside):
            progress.wrong += part.wrong
        for first in inside:
            if first not in counted and within[0] <= first < within[1]:
                for done in found[first]:
                    progress.total -= done.same
                    progress.known += done.known
                    progress.resized |= done.resized
        counted.update(inside)


def _first(tell: Callable[[Progress], object] | None, progress: Progress) -> None:
    if tell is None:
        return
    try:
        tell(progress)
    except TypeError as error:
        raise refused("tell", "a function that takes a Progress", tell) from error


def _span(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min" if whole < 7200 else f"{whole / 3600:.1f} h"
