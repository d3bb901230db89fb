"""What to widen for some more money: of the designs that were swept, those that differ from the one that stands in one
thing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ahbm.errors import ConfigError
from ahbm.sweeps.answers import ASKED, best, overrides
from ahbm.table.rows import Rows


@dataclass(frozen=True)
class Change:
    """One thing of a design, changed."""

    key: str
    before: Any
    after: Any
    cost: tuple[float, float]
    """Before and after."""
    times: tuple[tuple[dict[str, Any], float, float, str, str], ...]
    """The evidence: what was computed, the times in ns of the quickest algorithm before and after, and these two."""

    @property
    def factor(self) -> float:
        """Geometric mean of the times after over those before; below 1 is quicker."""
        return math.exp(math.fsum(math.log(after / before) for _, before, after, _, _ in self.times) / len(self.times))

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON-serialisable data."""
        names = ("asked", "before_ns", "after_ns", "algorithm_before", "algorithm_after")
        times = [dict(zip(names, line, strict=True)) for line in self.times]
        stated = {"key": self.key, "before": self.before, "after": self.after, "factor": self.factor}
        return {**stated, "cost_before": self.cost[0], "cost_after": self.cost[1], "times": times}


@dataclass(frozen=True)
class Advice:
    """What each change buys."""

    stands: dict[str, Any]
    """The design that stands: the first of the space."""
    cost: float
    changes: tuple[Change, ...]
    """Those that cost more, and no more than is there; what is quickest first."""
    dearer: int
    """Designs that differ in one thing and cost more than is there."""


def widen(rows: Rows, cost: str, share: float) -> Advice:
    """What to change of the first design of some rows for at most `share` more of a column `cost`, such as 0.1.

    A design is a topology and the values of overrides, with the quickest of its algorithms for everything computed.
    Raises ConfigError (AHBM-C187) where the column is none of numbers, where a design has several costs, and where
    nothing ran.
    """
    prices = rows.numbers(cost)
    keys = [name for name in ("topology", *overrides(rows)) if name in rows.columns]
    columns = {name: rows.column(name) for name in keys}
    designs: dict[tuple[Any, ...], float] = {}
    for at, price in enumerate(prices.tolist()):
        design = tuple(columns[name][at] for name in keys)
        if not math.isnan(price) and designs.setdefault(design, price) != price:
            message = f"{cost} is {designs[design]:g} and {price:g} for one design"
            raise ConfigError("AHBM-C187", message, hint="what to widen is asked of a cost of machines")
    if not designs:
        raise ConfigError("AHBM-C187", f"no row has a {cost}", hint="cost: {NAME: links * 20} in the space")
    times = _times(rows, keys)
    stands = next(iter(designs))
    price = designs[stands]
    found, dearer = [], 0
    for design, mine in designs.items():
        apart = [at for at, (one, other) in enumerate(zip(stands, design, strict=True)) if one != other]
        if len(apart) != 1 or mine <= price:
            continue
        if mine > price * (1 + share) * (1 + 1e-12):
            dearer += 1
            continue
        both = [asked for asked in times.get(stands, {}) if asked in times.get(design, {})]
        if both:
            lines = []
            for asked in both:
                before, after = times[stands][asked], times[design][asked]
                what = {name: value for name, value in zip(ASKED, asked, strict=True) if value is not None}
                lines.append((what, before[0], after[0], before[1], after[1]))
            at = apart[0]
            found.append(Change(keys[at], stands[at], design[at], (price, mine), tuple(lines)))
    found.sort(key=lambda change: (change.factor, change.cost[1], change.key))
    return Advice(dict(zip(keys, stands, strict=True)), price, tuple(found), dearer)


def _times(rows: Rows, keys: Sequence[str]) -> dict[tuple[Any, ...], dict[tuple[Any, ...], tuple[float, str]]]:
    """By design and what was computed, the least time and its algorithm."""
    codes = [rows.classes(name)[0] for name in keys]
    of = np.unique(np.stack(codes), axis=1, return_inverse=True)[1] if codes else np.zeros(len(rows), np.int64)
    found: dict[tuple[Any, ...], dict[tuple[Any, ...], tuple[float, str]]] = {}
    for design in range(int(of.max(initial=-1)) + 1):
        some = rows.at(np.flatnonzero(of == design))
        for row in some.take(best(some)):
            asked = tuple(row.get(name) for name in ASKED)
            found.setdefault(tuple(row[name] for name in keys), {})[asked] = row["latency_ns"], row["algorithm"]
    return found
