"""Laws: the time of every row as a function of few parameters, in the terms of the machine model.

A row of n bytes takes launch + the least, over the library's algorithms and the protocols whose range holds n, of

    fixed + (steps + (nic_steps - 1) · crossings) · step + volume · n / bandwidth · (1 + (ramp / n)^exponent)

`steps`, `crossings`, `volume` and `fixed` are of the algorithm and the network, and the emulator says them; the others
are free. A message between nodes takes `nic_steps` steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ahbm.calibrate.tables import Floats


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
    """us of the network's own latencies; infinite where the algorithm is not used."""
    crossings: Floats
    """Those of the messages that go between nodes."""

    def __len__(self) -> int:
        return len(self.n)

    def at(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> Rows:
        """Some of the rows."""
        return Rows(*(getattr(self, name)[..., index] for name in self.__dataclass_fields__))

    @cached_property
    def shared(self) -> tuple[str, ...]:
        """What all protocols share, by the fields of a law: the launch, where rows of several lengths tell it from the
        steps; the steps of a message between nodes, where there are several algorithms, or rows of a single node and
        of more."""
        if len(self.steps) > 1:
            return ("nic_steps",)
        if len(np.unique(self.crossings)) > 1:
            return ("launch_us", "nic_steps")
        return ("launch_us",) if len(np.unique(self.steps)) > 1 else ()

    def bordered(self, chunk_bytes: int | None) -> Rows:
        """The rows of a library that uses the last algorithm where an array by the ranks has as many bytes, and the
        others elsewhere; of one that uses the quickest for None."""
        if chunk_bytes is None:
            return self
        large = self.n // self.ranks >= chunk_bytes
        return replace(self, fixed=np.where([*[large] * (len(self.fixed) - 1), ~large], np.inf, self.fixed))


@dataclass(frozen=True)
class Term:
    """The free parameters of one protocol besides its step and bandwidth."""

    ramp: bool = False
    exponent: bool = False
    way: int | None = None
    """The algorithm that it goes with, as rows number them; None: the quickest of all."""
    step_of: int | None = None
    """The term whose step it has; None: it has its own."""
    gbs_of: int | None = None
    """The term whose bandwidth it has; None: it has its own."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Its own parameters, by the fields of `ProtocolLaw`, in the order of a point of the search space."""
        own = {
            "step_us": self.step_of is None,
            "gbs": self.gbs_of is None,
            "ramp_bytes": self.ramp,
            "exponent": self.exponent,
        }
        return tuple(key for key, has in own.items() if has)

    @property
    def free(self) -> int:
        """Number of parameters."""
        return len(self.keys)

    @property
    def ways(self) -> slice:
        """Of rows by algorithm, those that it goes with."""
        return slice(None) if self.way is None else slice(self.way, self.way + 1)


PLAIN, RAMPED, FREE = Term(), Term(ramp=True), Term(ramp=True, exponent=True)


def columns(terms: Sequence[Term], shared: Sequence[str]) -> list[tuple[int, int]]:
    """Of every term, the places of step and bandwidth in a point of the search space; a ramp follows its bandwidth."""
    found: list[tuple[int, int]] = []
    at = len(shared)
    for term in terms:
        step = at if term.step_of is None else found[term.step_of][0]
        gbs = at + (term.step_of is None) if term.gbs_of is None else found[term.gbs_of][1]
        found.append((step, gbs))
        at += term.free
    return found


@dataclass(frozen=True)
class Shape:
    """Groups of protocols. In a group the quickest is taken; between groups the size decides."""

    groups: tuple[tuple[Term, ...], ...]

    @property
    def terms(self) -> tuple[Term, ...]:
        """All protocols, in order."""
        return tuple(term for group in self.groups for term in group)

    @property
    def bordered(self) -> bool:
        """Whether the library chooses its algorithm by the bytes of a chunk."""
        return any(term.way is not None for term in self.terms)

    def free(self, shared: int) -> int:
        """Number of parameters, borders and what protocols share included."""
        return sum(term.free for term in self.terms) + len(self.groups) - 1 + self.bordered + shared


@dataclass(frozen=True)
class ProtocolLaw:
    """One protocol with its numbers."""

    step_us: float
    gbs: float
    ramp_bytes: float = 0.0
    exponent: float = 0.5

    def us(self, rows: Rows, term: Term, nic_steps: float) -> Floats:
        """Time of every row without the launch, by the quickest algorithm of a term."""
        latency = rows.fixed + (rows.steps + (nic_steps - 1) * rows.crossings) * self.step_us
        every = latency + self.wire_us(rows, rows.volume)
        return np.asarray(np.min(every[term.ways], axis=0), np.float64)

    def wire_us(self, rows: Rows, volume: Floats | float) -> Floats:
        """Time of the bytes of every row."""
        share = 1.0 + (self.ramp_bytes / rows.n) ** self.exponent if self.ramp_bytes else 1.0
        return np.asarray(volume * rows.n / (1000 * self.gbs) * share, np.float64)


@dataclass(frozen=True)
class Law:
    """Parameters of a shape: what a fit finds."""

    shape: Shape
    launch_us: float
    protocols: tuple[ProtocolLaw, ...]
    borders: tuple[int, ...] = ()
    """The first sizes of the second group and those after it, in bytes."""
    nic_steps: float = 1.0
    """Steps that a message between nodes takes."""
    chunk_bytes: int | None = None
    """Bytes of an array by the ranks from which on the last algorithm alone is used; None: the quickest is."""

    @property
    def few(self) -> int:
        """How many of the first protocols are none of the library's: with fewer channels and threads, calls of few
        bytes take less, and their bandwidth is far below that of any protocol."""
        if self.shape.bordered or len(self.protocols) < 2:
            return 0
        return int(self.protocols[0].gbs * LEAST < max(protocol.gbs for protocol in self.protocols))

    def with_shared(self, values: Mapping[str, float]) -> Law:
        """The law with other values of what its protocols share."""
        return replace(
            self,
            launch_us=values.get("launch_us", self.launch_us),
            nic_steps=values.get("nic_steps", self.nic_steps),
        )

    def with_part(self, number: int, key: str, value: float) -> Law:
        """The law with another `step_us`, `gbs`, `ramp_bytes` or `exponent` of a term, and of those that are tied to
        it."""
        protocols = list(self.protocols)
        for at, term in enumerate(self.shape.terms):
            if number in (at, {"step_us": term.step_of, "gbs": term.gbs_of}.get(key)):
                protocols[at] = replace(protocols[at], **{key: value})
        return replace(self, protocols=tuple(protocols))

    def each(self, rows: Rows) -> list[Floats]:
        """Time of every row by every protocol, without the launch; infinite where the library does not use it."""
        rows = rows.bordered(self.chunk_bytes)
        return [
            protocol.us(rows, term, self.nic_steps)
            for protocol, term in zip(self.protocols, self.shape.terms, strict=True)
        ]

    def us(self, rows: Rows) -> Floats:
        """Time of every row."""
        return np.asarray(np.min(self._allowed(rows), axis=0) + self.launch_us, np.float64)

    def used(self, rows: Rows) -> NDArray[np.intp]:
        """The protocol of every row."""
        return np.asarray(np.argmin(self._allowed(rows), axis=0), np.intp)

    def _allowed(self, rows: Rows) -> Floats:
        """As `each`, where the range of a protocol holds the size; infinite elsewhere."""
        group = np.array([number for number, group in enumerate(self.shape.groups) for _ in group])
        of = np.searchsorted(np.asarray(self.borders, np.float64), rows.n, side="right")
        return np.where(group[:, None] == of, np.array(self.each(rows)), np.inf)


LEAST = 32
"""The part of the largest bandwidth below which none is a protocol's: NCCL's LL has 1/18 or more."""
BOUNDS = {
    "launch_us": (1e-4, 1e5),
    "nic_steps": (1e-2, 1e3),
    "step_us": (1e-4, 1e5),
    "gbs": (1e-3, 1e6),
    "ramp_bytes": (16.0, 1e12),
    "exponent": (0.2, 0.85),
}
"""Of every parameter. They only keep a search from numbers that no machine can have."""


def encoded(law: Law, shared: Sequence[str]) -> Floats:
    """The point of the search space of a law."""
    values = [float(getattr(law, field)) for field in shared]
    for term, protocol in zip(law.shape.terms, law.protocols, strict=True):
        own = [float(getattr(protocol, key)) for key in term.keys]
        values += [*own[:-1], protocol.exponent / (1 - protocol.exponent)] if term.exponent else own
    return np.log(np.maximum(values, 1e-12))


def decoded(terms: Sequence[Term], point: Floats, shared: Sequence[str]) -> list[ProtocolLaw]:
    """Protocols of a point of the search space: logarithms; of an exponent, the logit."""
    values = np.exp(point)
    protocols = []
    for term, (step, gbs) in zip(terms, columns(terms, shared), strict=True):
        ramp = float(values[gbs + 1]) if term.ramp else 0.0
        exponent = float(1 / (1 + 1 / values[gbs + 2])) if term.exponent else 0.5
        protocols.append(ProtocolLaw(float(values[step]), float(values[gbs]), ramp, exponent))
    return protocols
