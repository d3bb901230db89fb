"""What the rows of a sweep answer: the best, what nothing beats in two ways at once, what matters, what changed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ahbm.errors import ConfigError
from ahbm.table.files import KINDS
from ahbm.table.rows import Rows

ALIASES = {"time": "latency_ns", "bandwidth": "link_gbs", "size": "bytes", "memory": "memory_bytes"}
"""Short names of columns."""
ASKED = ("job", "collective", "ranks", "bytes", "dtype", "op", "root", "seed")
"""The columns that say what was computed: rows that differ in none of them compete."""
JUDGED = (*ASKED, "algorithm", "wrong")
"""The columns, besides the goals, by which the best of what competes is found."""
CHOSEN = ("algorithm", "machine", "topology")
"""The columns that say how, besides those of overrides."""
MEASURED = (
    "latency_ns",
    "busbw_gbs",
    "percent_of_bound",
    "memory_bytes",
    "links",
    "link_gbs",
    "wrong",
    "timeline_hash",
    "code",
)
SCALE = 2.0**40
"""Logarithms of times are added up as integers in units of 1 / this."""
_BITS = 24
_LOW = (1 << _BITS) - 1
CLASSES = 16
"""Values of a key above which they are taken together by quarters."""


def column(name: str) -> str:
    """A column by its own name or one of `ALIASES`."""
    return ALIASES.get(name, name)


def overrides(rows: Rows) -> tuple[str, ...]:
    """The columns of overrides that were varied."""
    return tuple(name for name in rows.columns if name not in KINDS and name not in rows.computed)


def pareto(rows: Rows, goals: Sequence[str], places: NDArray[np.float64] | None = None) -> NDArray[np.int64]:
    """Of what was computed alike (`ASKED`), the rows that no other beats in all of `goals`, in the order of the first
    goal; of several groups that were, in the order of their first rows.

    goals: columns, or `ALIASES`, of numbers of which less is better; with `-` in front, more. Rows without one of the
    numbers, and rows whose result is wrong, do not take part; of equal ones, the first does: that of the least of
    `places`, else of the least position. n log n in rows for two goals, n times the front for more.

    Raises ConfigError (AHBM-C187) for columns that there are not or that do not hold numbers, and for no goal.
    """
    refuse_none(goals)
    signs = [-1.0 if goal.startswith("-") else 1.0 for goal in goals]
    found = [sign * rows.numbers(column(goal.removeprefix("-"))) for sign, goal in zip(signs, goals, strict=True)]
    known = np.flatnonzero(~np.isnan(sum(found)) & right(rows))
    group = _in_order(_groups(rows, ASKED)[known], known if places is None else places[known])
    points = np.stack([column[known] for column in found])
    left = _unbeaten(points, group)
    points, group, known = points[:, left], group[left], known[left]
    order = np.lexsort((known if places is None else places[known], *points[::-1], group))
    points, group = points[:, order], group[order]
    if len(goals) <= 2:
        # Every group lies below the ones before it: the least so far is the least so far of the group.
        _, last = np.unique(points[-1], return_inverse=True)
        last = last - group * (len(group) + 1)
        before = np.concatenate([[len(group) + 1], np.minimum.accumulate(last)[:-1]])
        return known[order[np.flatnonzero(last < before)]]
    front: list[int] = []
    for first, end in pairwise([*np.flatnonzero(np.diff(group, prepend=-1)).tolist(), len(group)]):
        left = np.arange(first, end)
        while len(left):
            # The first in order is beaten by none of those that are left.
            here, left = left[0], left[1:]
            front.append(int(here))
            left = left[(points[:, left] < points[:, here, None]).any(axis=0)]
    return known[order[np.array(front, dtype=np.int64)]]


def refuse_none(goals: Sequence[str]) -> None:
    """Raises ConfigError (AHBM-C187) for no goal."""
    if not goals:
        raise ConfigError("AHBM-C187", "no column to compare rows by", hint="--pareto time,links")


def right(rows: Rows) -> NDArray[np.bool_]:
    """The rows whose result is not known to be wrong: what is wrong is nobody's best."""
    return ~(rows.numbers("wrong") > 0) if "wrong" in rows.columns else np.ones(len(rows), dtype=bool)


def wrong_by(rows: Rows) -> list[str]:
    """The algorithms of which a result is wrong, in order."""
    algorithms, names = rows.classes("algorithm")
    return sorted(str(names[at]) for at in set(algorithms[~right(rows)].tolist()))


def _unbeaten(points: NDArray[np.float64], group: NDArray[np.int64]) -> NDArray[np.int64]:
    """The points that a good one of their group does not beat: few are left to be sorted. A row of `points` is a
    goal."""
    if not points.size:
        return np.arange(0)
    spread = np.ptp(points, axis=1)
    score = sum(goal / (width or 1.0) for goal, width in zip(points, spread, strict=True))
    least = np.full(int(group.max()) + 1, np.inf)
    np.minimum.at(least, group, score)
    at = np.flatnonzero(score == least[group])
    less, same = np.zeros(len(group), dtype=bool), np.ones(len(group), dtype=bool)
    for goal in points:
        good = np.full(len(least), np.inf)
        good[group[at]] = goal[at]
        less |= goal < good[group]
        same &= goal == good[group]
    return np.flatnonzero(less | same)


def best(rows: Rows) -> NDArray[np.int64]:
    """Of what was computed alike (`ASKED`) the quickest row, the first of equals, in the order of the groups."""
    return pareto(rows, ["time"])


def _groups(rows: Rows, names: Sequence[str]) -> NDArray[np.int64]:
    """A number for each row, equal where the values of all columns are."""
    group, most = np.zeros(len(rows), dtype=np.int64), 1
    for name in names:
        codes, values = rows.classes(name) if name in rows.columns else (group, [None])
        if len(values) > 1:
            if most * len(values) >= 1 << 62:
                group, most = _ranked(group, most), len(rows)
            group, most = group * len(values) + codes, most * len(values)
    return _ranked(group, most)


def _in_order(group: NDArray[np.int64], places: NDArray[np.int64] | NDArray[np.float64]) -> NDArray[np.int64]:
    """The groups numbered by the least place of each."""
    first = np.full(int(group.max(initial=-1)) + 1, np.inf)
    np.minimum.at(first, group, places)
    return np.asarray(np.argsort(np.argsort(first, kind="stable"))[group], dtype=np.int64)


def _ranked(numbers: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Numbers below `most` as 0, 1, 2, ... in their order; without sorting them unless `most` is large."""
    if most > 4 * len(numbers):
        return np.asarray(np.unique(numbers, return_inverse=True)[1], dtype=np.int64)
    seen = np.zeros(most, dtype=np.int64)
    seen[numbers] = 1
    return np.asarray((np.cumsum(seen) - 1)[numbers], dtype=np.int64)


@dataclass(frozen=True)
class Effect:
    """What a key does to the time."""

    key: str
    factor: float
    """Geometric mean of the times of the slowest value over that of the quickest, each time as a share of the mean of
    what was computed alike."""
    values: tuple[tuple[str, float], ...]
    """Each value, or range of values, and its mean time as a share of that of all: below 1 is quicker."""

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON-serialisable data."""
        return {"key": self.key, "factor": self.factor, "values": [list(pair) for pair in self.values]}


@dataclass(frozen=True)
class Tally:
    """The times of the values of a key, added up."""

    lines: Sequence[tuple[Any, Any, int, int]]
    """What was computed alike, a value, the sum of the logarithms of its times in units of 1 / `SCALE`, how many."""
    labels: Sequence[str] | None = None
    """Of values that are numbers of these."""


def sensitivity(rows: Rows) -> list[Effect]:
    """The keys in which rows differ, the one that matters most first."""
    times = rows.numbers("latency_ns")
    known = np.flatnonzero((times > 0) & right(rows))
    if not len(known):
        return []
    logs = np.rint(np.log(times[known]) * SCALE).astype(np.int64)
    group = _groups(rows, ASKED)[known]
    found = {}
    for name in keys([name for name in rows.columns if name not in rows.computed]):
        codes, values = rows.classes(name)
        codes, labels = codes[known], None
        if len(values) > CLASSES and (numbers := _numbers(rows, name)) is not None:
            labels, edges = quarters(numbers[known])
            here = numbers[known]
            codes = np.where(np.isnan(here), 4, np.clip(np.searchsorted(edges, here, "right") - 1, 0, 3))
            values = list(range(len(labels)))
        pairs, places = np.unique(group * len(values) + codes, return_inverse=True)
        # Sums of integers: they are the same in whatever order they are added, here and by a database.
        low = np.bincount(places, logs & _LOW).astype(np.int64).tolist()
        high = np.bincount(places, logs >> _BITS).astype(np.int64).tolist()
        sums = [(upper << _BITS) + lower for upper, lower in zip(high, low, strict=True)]
        asked, of = (part.tolist() for part in np.divmod(pairs, len(values)))
        lines = zip(asked, (values[at] for at in of), sums, np.bincount(places).tolist(), strict=True)
        found[name] = Tally(list(lines), labels)
    return effects(found)


def keys(columns: Sequence[str]) -> list[str]:
    """The columns that may matter: a machine is its overrides, where there are some."""
    varied = [name for name in columns if name not in KINDS]
    return [name for name in CHOSEN if name in columns and not (name == "machine" and varied)] + varied


def effects(tallies: Mapping[str, Tally]) -> list[Effect]:
    """What keys do to the time, the one that matters most first; of those with several values."""
    found = []
    for name, tally in tallies.items():
        groups, values = dict[Any, list[int]](), dict[Any, list[tuple[Any, int, int]]]()
        for group, value, logs, count in tally.lines:
            of = groups.setdefault(group, [0, 0])
            of[0], of[1] = of[0] + logs, of[1] + count
            values.setdefault(value, []).append((group, logs, count))
        means = {group: logs / count for group, (logs, count) in groups.items()}
        seen = []
        for value in sorted(values, key=_place):
            apart = math.fsum(logs - count * means[group] for group, logs, count in values[value])
            share = math.exp(apart / sum(count for _, _, count in values[value]) / SCALE)
            label = "-" if value is None else str(value) if tally.labels is None else tally.labels[value]
            seen.append((label, share))
        if len(seen) > 1:
            each = [share for _, share in seen]
            found.append(Effect(name, max(each) / min(each), tuple(seen)))
    return sorted(found, key=lambda effect: (-effect.factor, effect.key))


def _place(value: Any) -> tuple[int, Any]:
    """Where a value stands among others: numbers, then texts, then none."""
    return (2, 0) if value is None else (1, value) if isinstance(value, str) else (0, value)


def quarters(numbers: NDArray[np.float64]) -> tuple[list[str], list[float]]:
    """The ranges of the quarters of numbers, in words, and one for none; and where they begin and end."""
    edges = np.nanquantile(numbers, [0, 0.25, 0.5, 0.75, 1]).tolist()
    return [*(f"{low:g} to {high:g}" for low, high in pairwise(edges)), "-"], edges


def _numbers(rows: Rows, name: str) -> NDArray[np.float64] | None:
    try:
        return rows.numbers(name)
    except ConfigError:
        return None


@dataclass(frozen=True)
class Change:
    """A case of two sweeps."""

    what: dict[str, Any]
    """The columns that say what ran."""
    before: dict[str, Any] | None
    """`MEASURED`, None where the sweep does not have the case."""
    after: dict[str, Any] | None

    @property
    def ratio(self) -> float | None:
        """Time after over time before; None where one of them is not known."""
        times = [side["latency_ns"] if side else None for side in (self.before, self.after)]
        return times[1] / times[0] if times[0] and times[1] is not None else None

    def to_json(self) -> dict[str, Any]:
        """The change as JSON-serialisable data."""
        return {**self.what, "before": self.before, "after": self.after, "ratio": self.ratio}


def changes(before: Rows, after: Rows) -> tuple[list[Change], int]:
    """What two sweeps say differently of a case, in the order of the first and then of the second; and how many cases
    they say the same of. A case is what runs (`ASKED`, `CHOSEN` and overrides), whatever its version."""
    names = [name for name in (*ASKED, *CHOSEN) if name not in ("ranks", "topology")]
    names += sorted({*overrides(before), *overrides(after)})
    old, new = _by_case(before, names), _by_case(after, names)
    found, same = [], 0
    for case in [*old, *(case for case in new if case not in old)]:
        sides = old.get(case), new.get(case)
        if sides[0] == sides[1]:
            same += 1
        else:
            found.append(Change({name: v for name, v in zip(names, case, strict=True) if v is not None}, *sides))
    return found, same


def _by_case(rows: Rows, names: Sequence[str]) -> dict[tuple[Any, ...], dict[str, Any]]:
    def listed(name: str) -> list[Any]:
        return rows.column(name) if name in rows.columns else [None] * len(rows)

    cases = zip(*map(listed, names), strict=True)
    measured = zip(*map(listed, MEASURED), strict=True)
    return {case: dict(zip(MEASURED, values, strict=True)) for case, values in zip(cases, measured, strict=True)}
