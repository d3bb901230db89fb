"""The algorithms of a table under the knobs that a rule of a file names."""

from __future__ import annotations

from typing import NamedTuple

from ahbm.base import codes
from ahbm.base.knobs import MOST, Knobs
from ahbm.check.case import Case
from ahbm.choose.catalogue import Entry
from ahbm.choose.names import PROTOCOLS
from ahbm.choose.oracle import OracleTable
from ahbm.choose.outcomes import request_of
from ahbm.choose.regret import Point
from ahbm.config.ccl import CclConfig
from ahbm.config.protocols import usable, used_with
from ahbm.core.emulator import Emulator
from ahbm.errors import AhbmError
from ahbm.runs.measure import verify

PROTOCOL = "simple"
"""Written where a file must name a protocol and the machine has none of NCCL's."""


def stated(entry: Entry) -> Knobs:
    """The knobs that an algorithm's own entry states, as files of libraries have them."""
    protocol, channels, chunk = (entry.knobs.get(key) for key in ("protocol", "channels", "chunk_bytes"))
    return Knobs(
        protocol=str(protocol).lower() if protocol else None,
        channels=channels if isinstance(channels, int) and channels > 1 else None,
        chunk_bytes=chunk if isinstance(chunk, int) and chunk <= MOST["chunk_bytes"] else None,
    )


class Turned(NamedTuple):
    """An algorithm at a point under knobs."""

    ps: int | None
    """None where there are no knobs, or it does not run under them."""
    notes: tuple[str, ...] = ()
    """What the knobs did."""
    refused: bool = False
    """Whether it is not to be named: the machine's library does not have the protocol for such a call, or the result
    is not known to be right under the knobs."""
    wrong: bool = False
    """Whether the result is wrong under the knobs."""


class Turning:
    """Times algorithms under knobs, each once."""

    def __init__(self, table: OracleTable) -> None:
        self._table = table
        self._emulators: dict[str, Emulator] = {}
        self._known: dict[tuple[Point, str, Knobs], Turned] = {}

    def at(self, point: Point, algorithm: str, knobs: Knobs) -> Turned:
        """What an algorithm takes at a point under knobs."""
        asked = (point, algorithm, knobs)
        if asked not in self._known:
            self._known[asked] = self._run(*asked)
        return self._known[asked]

    def ps(self, point: Point, algorithm: str, knobs: Knobs) -> int:
        """The same as simulated ps; where it does not run under the knobs, what it takes without."""
        answer = self.at(point, algorithm, knobs)
        return self._table.times(point.machine, point.nbytes)[algorithm] if answer.ps is None else answer.ps

    def protocols(self, point: Point, algorithm: str) -> list[str]:
        """The protocols of NCCL that the machine's library uses for an algorithm at a point; `PROTOCOL` for none."""
        emulator = self._emulator(point)
        machine = emulator.machine
        try:
            fit = usable(machine, point.nbytes, point.ranks)
            found = [one for one, _ in used_with(machine, fit, [algorithm], emulator.ccl.algorithms)]
        except AhbmError:  # the algorithm's own row says why
            found = []
        return [one.name.lower() for one in found if one.name.lower() in PROTOCOLS] or [PROTOCOL]

    def _run(self, point: Point, algorithm: str, knobs: Knobs) -> Turned:
        own = self._table.catalogue.entry(algorithm).given or algorithm
        if not knobs.knobs:
            return Turned(None)
        emulator = self._emulator(point)
        request = request_of(point.collective, point.nbytes, point.ranks, point.dtype)
        try:
            case = Case(emulator, request, emulator.with_knobs(request, own, knobs))
            # Knobs make another program of it: that is the one to be right.
            ran = verify(case, data=None, seed=0, mode="integers", check="result", quick=True)[0]
            return Turned(ran.latency_ps, tuple(note for note in ran.notes if note.startswith("knobs:")))
        except AhbmError as error:
            wrong = codes.says_wrong(error.code)
            if wrong or error.code == codes.RESULT_UNDECIDED:
                message = "gives a wrong result" if wrong else "is not known to be right"
                return Turned(None, (f"{algorithm} {message} with {knobs.text}: {error.message}",), True, wrong)
            what = f"{algorithm} does not run with {knobs.text}, and is timed without: {error.message}"
            return Turned(None, (what,), error.code in ("AHBM-C192", "AHBM-C210"))

    def _emulator(self, point: Point) -> Emulator:
        if point.machine not in self._emulators:
            catalogue = self._table.catalogue
            config = CclConfig.load(catalogue.ccl, catalogue.overrides)
            self._emulators[point.machine] = Emulator(self._table.machines[point.machine], config)
        return self._emulators[point.machine]
