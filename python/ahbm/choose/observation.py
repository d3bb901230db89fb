"""What a selector that learns sees: numbers of the call, the machine and the candidates, none of which takes a run.

Logarithms are rounded to 32 bits, in which the mathematical libraries of all platforms agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ahbm._core import AlgorithmFeatures
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.request import Request
from ahbm.choose.catalogue import Entry
from ahbm.choose.outcomes import Outcomes
from ahbm.core.emulator import Emulator
from ahbm.errors import AhbmError, InterruptedRun

CALL = (
    "bytes of one rank's array",
    "ranks",
    "bytes of an element",
    "a computation runs beside it",
    "tensors are merged before it",
    "something waits for a chunk of it",
    *(f"it is {name}" for name in COLLECTIVES),
)
"""The numbers of a call: the first three binary logarithms, the others 1 or 0."""
MACHINE = (
    "SIPs",
    "ns of a link's latency, the median",
    "GB/s of a link, the median",
    "links out of a SIP, the fewest",
    "links of the diameter",
    "links across the bisection",
    "dimensions + 1",
    "ns of the bound of one element",
    "bytes whose bound is twice that",
)
"""The numbers of a machine, the last two for the call's collective and ranks: binary logarithms."""
CANDIDATE = (
    "it performs the collective",
    "estimate / bound",
    "latency of the estimate / bound",
    "bandwidth of the estimate / bound",
    "chunks of the longest chain",
    "chunks of a rank",
)
"""The numbers of a candidate: the first 1 or 0, the others binary logarithms.

The estimate is `latency + bytes * bandwidth`, through the larger of the time of the program's longest chain and that of
its busiest link (`path_ns` and `link_ns` of `ahbm features`) at the two sizes of `LOOKED_AT`."""
LOOKED_AT = (1 << 12, 1 << 20)
"""Bytes of one rank's array at which the program of a candidate is lowered and looked at, once for each machine."""
LARGE = 1 << 30
"""Bytes whose bound is bandwidth alone."""
MOST = 64.0
"""No number of an observation is larger: the logarithm of any 64-bit number is less."""

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Asked:
    """A call that somebody is to choose an algorithm for, and what a job says of it."""

    request: Request
    pipelined: bool = False
    """Some computation runs beside it."""
    fused: bool = False
    """Tensors are merged before it."""
    overlap_capable: bool = False
    """Something waits for a chunk of it."""


class Observer:
    """Makes observations; what does not depend on the size is found once."""

    def __init__(self, outcomes: Outcomes, entries: Sequence[int]) -> None:
        """entries: positions in the catalogue of the candidates that are shown, in order."""
        self._outcomes = outcomes
        self._entries = [outcomes.catalogue[at] for at in entries]
        self._shapes: dict[tuple[str, str, object], list[_Shape | None]] = {}
        self._networks: dict[tuple[str, str, object], Floats] = {}

    def call(self, asked: Asked) -> Floats:
        """The numbers `CALL`: shape (len(CALL),)."""
        request = asked.request
        flags = (asked.pipelined, asked.fused, asked.overlap_capable)
        kinds = [float(name == request.collective) for name in COLLECTIVES]
        sizes = [_log(request.nbytes), _log(request.world_size), _log(request.element.storage.itemsize)]
        return _frozen([*sizes, *map(float, flags), *kinds])

    def machine(self, name: str, request: Request) -> Floats:
        """The numbers `MACHINE`: shape (len(MACHINE),)."""
        key = (name, request.collective, request.ranks)
        if key not in self._networks:
            found = self._outcomes.machine(name).features()
            alpha, beta = self._terms(name, request)
            counts = (found.least_degree, found.diameter, found.bisection_links, len(found.dimensions) + 1)
            links = (found.latency_ns[1], found.bandwidth_gbs[1])
            numbers = (found.ranks, *links, *counts, alpha / 1000, alpha / beta)
            self._networks[key] = _frozen([_log(number) for number in numbers])
        return self._networks[key]

    def candidates(self, name: str, request: Request) -> Floats:
        """The numbers `CANDIDATE` of every candidate: shape (candidates, len(CANDIDATE)); 0 for one whose program
        cannot be looked at."""
        bound = self._outcomes.bound(name, request)
        rows = []
        for shape in self._looked_at(name, request):
            if shape is None:
                rows.append([0.0] * len(CANDIDATE))
                continue
            times = (shape.ps + shape.ps_per_byte * request.nbytes, shape.ps, shape.ps_per_byte * request.nbytes)
            counts = (shape.depth, shape.chunks / request.world_size)
            rows.append([1.0, *(_log(ps / bound) for ps in times), *map(_log, counts)])
        return _frozen(rows)

    def _terms(self, name: str, request: Request) -> tuple[float, float]:
        """The bound of one element and what the bound grows by per byte of one rank's array, in ps."""
        large = _of_bytes(request, LARGE)
        alpha = self._outcomes.bound(name, _of_bytes(request, 1))
        return float(alpha), self._outcomes.bound(name, large) / large.nbytes

    def _looked_at(self, name: str, request: Request) -> list[_Shape | None]:
        key = (name, request.collective, request.ranks)
        if key not in self._shapes:
            emulator = self._outcomes.emulator(name)
            self._shapes[key] = [_shape(emulator, entry, request) for entry in self._entries]
            emulator.forget_programs()
        return self._shapes[key]


@dataclass(frozen=True)
class _Shape:
    """What an entry's programs have in common."""

    ps: float
    ps_per_byte: float
    depth: int
    chunks: int


def _shape(emulator: Emulator, entry: Entry, request: Request) -> _Shape | None:
    """The shape of an entry for calls like `request`; None where it does not run at both sizes."""
    if entry.collective != request.collective:
        return None
    found: list[tuple[int, AlgorithmFeatures]] = []
    for nbytes in LOOKED_AT:
        asked = _of_bytes(request, nbytes)
        try:
            program = emulator.compile_timed(asked, entry.given or entry.name).program
            features = None if program is None else program.features()
        except InterruptedRun:
            raise
        except AhbmError:
            features = None
        if features is None:
            return None
        found.append((asked.nbytes, features))
    (small, first), (large, last) = found
    at_small, at_large = (1000 * max(features.path_ns, features.link_ns) for features in (first, last))
    slope = max(at_large - at_small, 0.0) / (large - small)
    return _Shape(max(at_small - slope * small, 0.0), slope, last.dependency_depth, last.chunk_count)


def _of_bytes(request: Request, nbytes: int) -> Request:
    """A call like `request` of another size, at least one element of every chunk."""
    one = replace(request, count=1)
    return replace(request, count=max(nbytes // one.nbytes, 1))


def _log(number: float) -> float:
    """Binary logarithm; of what is less than 2^-20, -20."""
    return math.log2(number) if number > 2**-20 else -20.0


def _frozen(numbers: object) -> Floats:
    found = np.array(numbers, dtype=np.float32)
    found.flags.writeable = False
    return found


def log_share(ps: int, bound_ps: int) -> float:
    """The natural logarithm of a time over a bound, rounded to 32 bits."""
    return float(np.float32(math.log(ps / bound_ps)))
