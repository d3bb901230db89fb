"""Laws: the time of every row as a function of few parameters, in the terms of the machine model.

A row of n bytes takes launch + the least, over the protocols whose range holds n, of

    fixed + steps · step + volume · n / bandwidth · (1 + (ramp / n)^exponent)

`steps`, `volume` and `fixed` are of the algorithm and the network, and the emulator says them; the others are free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
    """Measured rows of one or several tables, with the coefficients of the machine."""

    n: Floats
    """Bytes of one rank's array."""
    us: Floats
    steps: Floats
    """Messages that follow each other."""
    volume: Floats
    """Bytes over the slowest link for each byte of the array."""
    fixed: Floats
    """us of the network's own latencies."""
    ranks: Floats

    def __len__(self) -> int:
        return len(self.n)

    def at(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> Rows:
        """Some of the rows."""
        return Rows(*(getattr(self, name)[index] for name in self.__dataclass_fields__))

    @property
    def several(self) -> bool:
        """Whether they tell the launch from the steps: their algorithms differ in length."""
        return len(np.unique(self.steps)) > 1


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

    def free(self, several: bool) -> int:
        """Number of parameters, borders and launch included."""
        return sum(term.free for term in self.terms) + len(self.groups) - 1 + several


@dataclass(frozen=True)
class Spoken:
    """One protocol with its numbers."""

    step_us: float
    gbs: float
    ramp_bytes: float = 0.0
    exponent: float = 0.5

    def us(self, rows: Rows) -> Floats:
        """Time of every row without the launch."""
        share = 1.0 + (self.ramp_bytes / rows.n) ** self.exponent if self.ramp_bytes else 1.0
        return np.asarray(
            rows.fixed + rows.steps * self.step_us + rows.volume * rows.n / (1000 * self.gbs) * share, np.float64
        )


@dataclass(frozen=True)
class Law:
    """Parameters of a shape: what a fit finds."""

    shape: Shape
    launch_us: float
    spoken: tuple[Spoken, ...]
    borders: tuple[int, ...] = ()
    """The first sizes of the second group and those after it, in bytes."""

    def us(self, rows: Rows) -> Floats:
        """Time of every row."""
        found = np.full(len(rows), np.inf)
        at = 0
        of = np.searchsorted(np.asarray(self.borders, np.float64), rows.n, side="right")
        for number, group in enumerate(self.shape.groups):
            here = of == number
            for spoken in self.spoken[at : at + len(group)]:
                found[here] = np.minimum(found[here], spoken.us(rows)[here])
            at += len(group)
        return np.asarray(found + self.launch_us, np.float64)


STEP, GBS, RAMP, EXPONENT = (1e-4, 1e5), (1e-3, 1e6), (16.0, 1e12), (0.2, 0.85)
"""Bounds: us, GB/s, bytes, none. They only keep a search from numbers that no machine can have."""


def decoded(terms: Sequence[Term], point: Floats, several: bool) -> tuple[float, list[Spoken]]:
    """Launch and protocols of a point of the search space: coordinates are logarithms; of an exponent, the logit."""
    values = np.exp(point)
    at, spoken = int(several), []
    for term in terms:
        ramp = float(values[at + 2]) if term.ramp else 0.0
        exponent = float(1 / (1 + 1 / values[at + 3])) if term.exponent else 0.5
        spoken.append(Spoken(float(values[at]), float(values[at + 1]), ramp, exponent))
        at += term.free
    return float(values[0]) if several else 0.0, spoken
