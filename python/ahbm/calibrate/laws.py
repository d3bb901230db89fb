"""Laws: the time of every row as a function of few parameters, in the terms of the machine model.

A row of n bytes takes launch + the least, over the library's algorithms and the protocols whose range holds n, of

    fixed + steps · step + crossings · crossing + volume · n / bandwidth · (1 + (ramp / n)^exponent)

`steps`, `crossings`, `volume` and `fixed` are of the algorithm and the network, and the emulator says them; the others
are free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
    """Measured rows of one or several tables, with the coefficients of the machine (algorithms x rows)."""

    n: Floats
    """Bytes of one rank's array."""
    us: Floats
    ranks: Floats
    counts: Floats
    """1; 0 for a row whose time was not measured but suggested by those around it."""
    steps: Floats
    """Messages that follow each other."""
    volume: Floats
    """Bytes over the slowest link for each byte of the array."""
    fixed: Floats
    """us of the network's own latencies."""
    crossings: Floats
    """Those of the messages that go between nodes."""

    def __len__(self) -> int:
        return len(self.n)

    def at(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> Rows:
        """Some of the rows."""
        return Rows(*(getattr(self, name)[..., index] for name in self.__dataclass_fields__))

    @property
    def shared(self) -> int:
        """Parameters that all protocols share: 0; the launch, where rows of several lengths tell it from the steps; and
        a crossing between nodes, where there are several algorithms besides."""
        if len(self.steps) > 1:
            return 2 if len(np.unique(self.ranks)) > 1 else 0
        return int(len(np.unique(self.steps)) > 1)


@dataclass(frozen=True)
class Term:
    """The free parameters of one protocol besides its step and bandwidth."""

    ramp: bool = False
    exponent: bool = False

    @property
    def free(self) -> int:
        """Number of parameters."""
        return 2 + self.ramp + self.exponent


PLAIN, RAMPED, FREE = Term(), Term(ramp=True), Term(ramp=True, exponent=True)


@dataclass(frozen=True)
class Shape:
    """Groups of protocols. In a group the quickest is taken; between groups the size decides."""

    groups: tuple[tuple[Term, ...], ...]

    @property
    def terms(self) -> tuple[Term, ...]:
        """All protocols, in order."""
        return tuple(term for group in self.groups for term in group)

    def free(self, shared: int) -> int:
        """Number of parameters, borders and what protocols share included."""
        return sum(term.free for term in self.terms) + len(self.groups) - 1 + shared


@dataclass(frozen=True)
class Spoken:
    """One protocol with its numbers."""

    step_us: float
    gbs: float
    ramp_bytes: float = 0.0
    exponent: float = 0.5

    def us(self, rows: Rows, crossing_us: float) -> Floats:
        """Time of every row without the launch, by the quickest algorithm."""
        share = 1.0 + (self.ramp_bytes / rows.n) ** self.exponent if self.ramp_bytes else 1.0
        latency = rows.fixed + rows.steps * self.step_us + rows.crossings * crossing_us
        return np.asarray(np.min(latency + rows.volume * rows.n / (1000 * self.gbs) * share, axis=0), np.float64)


@dataclass(frozen=True)
class Law:
    """Parameters of a shape: what a fit finds."""

    shape: Shape
    launch_us: float
    spoken: tuple[Spoken, ...]
    borders: tuple[int, ...] = ()
    """The first sizes of the second group and those after it, in bytes."""
    crossing_us: float = 0.0
    """Latency of a message between nodes besides its step."""

    def us(self, rows: Rows) -> Floats:
        """Time of every row."""
        found = np.full(len(rows), np.inf)
        at = 0
        of = np.searchsorted(np.asarray(self.borders, np.float64), rows.n, side="right")
        for number, group in enumerate(self.shape.groups):
            here = of == number
            for spoken in self.spoken[at : at + len(group)]:
                found[here] = np.minimum(found[here], spoken.us(rows, self.crossing_us)[here])
            at += len(group)
        return np.asarray(found + self.launch_us, np.float64)


STEP, GBS, RAMP, EXPONENT = (1e-4, 1e5), (1e-3, 1e6), (16.0, 1e12), (0.2, 0.85)
"""Bounds: us, GB/s, bytes, none. They only keep a search from numbers that no machine can have."""


def decoded(terms: Sequence[Term], point: Floats, shared: int) -> tuple[list[float], list[Spoken]]:
    """Launch, crossing and protocols of a point of the search space: logarithms; of an exponent, the logit."""
    values = np.exp(point)
    at, spoken = shared, []
    for term in terms:
        ramp = float(values[at + 2]) if term.ramp else 0.0
        exponent = float(1 / (1 + 1 / values[at + 3])) if term.exponent else 0.5
        spoken.append(Spoken(float(values[at]), float(values[at + 1]), ramp, exponent))
        at += term.free
    return [*values[:shared].tolist(), 0.0, 0.0][:2], spoken
