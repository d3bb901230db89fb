"""Algorithms under the knobs of a communication library: every combination is an entry of a catalogue."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ahbm.base.arguments import checked, refused
from ahbm.base.knobs import KNOBS, Knobs, must_be
from ahbm.base.request import Request
from ahbm.check.case import Case
from ahbm.choose.catalogue import Catalogue, Entry
from ahbm.choose.oracle import AnyMachine
from ahbm.choose.outcomes import OTHER, Live
from ahbm.core.with_knobs import WithKnobs
from ahbm.errors import AhbmError
from ahbm.runs.measure import verify
from ahbm.table.running import outcome

PARTS = ("algorithm_id", "protocol", "channels", "threads", "chunk_size")
"""The parts of an action."""


@dataclass(frozen=True)
class LibraryKnobs:
    """The algorithms and the values of every knob; None leaves a knob as the algorithm or the machine has it."""

    base: Catalogue
    protocols: Sequence[str | None] = (None, "ll", "ll128", "simple")
    """By their names in the machine's library."""
    channels: Sequence[int | None] = (None, 2, 8)
    threads: Sequence[int | None] = (None, 128)
    chunk_sizes: Sequence[int | None] = (None, 1 << 17)
    """Bytes of the longest piece that is sent at once."""

    def __post_init__(self) -> None:
        """Raises ConfigError (AHBM-C129) for values that are none."""
        for name, values in zip(KNOBS, self.values, strict=True):
            if not isinstance(values, list | tuple) or not values or values[0] is not None:
                raise refused(name, "a list that begins with None", values)
            for value in values[1:]:
                if (wanted := must_be(name, value)) is not None:
                    raise refused(name, wanted, value)

    @property
    def values(self) -> tuple[Sequence[str | int | None], ...]:
        """Of every knob."""
        return (self.protocols, self.channels, self.threads, self.chunk_sizes)

    @property
    def axes(self) -> dict[str, list[str | int | None]]:
        """The values of an action's parts; of `algorithm_id` the ids of the entries."""
        return dict(zip(PARTS, ([entry.id for entry in self.base], *map(list, self.values)), strict=True))

    @cached_property
    def combinations(self) -> tuple[tuple[int, Knobs], ...]:
        """By entry of `catalogue`: the position in `base`, and the knobs."""
        given = [Knobs(**dict(zip(KNOBS, chosen, strict=True))) for chosen in product(*self.values)]  # type: ignore[arg-type]
        return tuple((at, knobs) for at in range(len(self.base)) for knobs in given)

    @cached_property
    def catalogue(self) -> Catalogue:
        """Every algorithm under every combination."""
        return Catalogue([self._entry(*one) for one in self.combinations], self.base.ccl, self.base.overrides)

    def _entry(self, at: int, knobs: Knobs) -> Entry:
        entry = self.base[at]
        if not knobs.knobs:
            return entry
        digest = hashlib.sha256(json.dumps([entry.id, sorted(knobs.knobs.items())]).encode()).hexdigest()[:16]
        name = "+".join([entry.name, *(f"{name}={value}" for name, value in knobs.knobs.items())])
        return replace(entry, id=digest, name=name, knobs={**entry.knobs, **knobs.knobs})

    def position(self, action: Mapping[str, int]) -> int:
        """The entry of `catalogue` of an action: positions in `axes`, by the names of `PARTS`."""
        found = action[PARTS[0]]
        for part, values in zip(PARTS[1:], self.values, strict=True):
            found = found * len(values) + action[part]
        return found


class LiveKnobs(Live):
    """Outcomes under knobs that the emulator finds when they are first asked for."""

    @checked
    def __init__(self, knobs: LibraryKnobs, machines: AnyMachine | Sequence[AnyMachine]) -> None:
        """machines: packaged names, paths or Machines; those with protocols are those where a knob `protocol` says
        something. Raises what loading them raises."""
        super().__init__(knobs.catalogue, machines)
        self.knobs = knobs

    def under(self, machine: str, request: Request, entry: int) -> WithKnobs | str:
        """What an entry performs a call by. Raises ConfigError (AHBM-C192, C210) for a protocol that the machine's
        library does not have for such a call."""
        at, knobs = self.knobs.combinations[entry]
        base = self.knobs.base[at]
        found = self.emulator(machine).with_knobs(request, base.given or base.name, knobs)
        assert isinstance(found, WithKnobs | str)
        return found

    def idle(self, machine: str, request: Request, entry: int) -> tuple[str, ...]:
        """The knobs of an entry that change nothing for a call; none where it does not run."""
        _, knobs = self.knobs.combinations[entry]
        try:
            found = self.under(machine, request, entry)
        except AhbmError:
            return ()
        modelled = found.modelled.split(", ") if isinstance(found, WithKnobs) else []
        return tuple(name for name, value in knobs.knobs.items() if f"{name} {value}" not in modelled)

    def _measured(self, machine: str, request: Request) -> tuple[list[int | None], dict[int, tuple[str, str]]]:
        emulator = self.emulator(machine)
        ps: list[int | None] = []
        refusals: dict[int, tuple[str, str]] = {}
        # Combinations that differ in knobs that change nothing take equally long.
        known: dict[tuple[int, str], int | AhbmError] = {}
        for at, (base, _) in enumerate(self.knobs.combinations):
            if self.knobs.base[base].collective != request.collective:
                refusals[at] = OTHER
                ps.append(None)
                continue
            try:
                by = self.under(machine, request, at)
                key = (base, by.modelled if isinstance(by, WithKnobs) else "")
                if key not in known:
                    case = Case(emulator, request, by)
                    run = lambda: verify(case, data=None, seed=0, mode="integers", check="result")[0].latency_ps  # noqa: B023, E731
                    known[key] = outcome(run)
                found = known[key]
            except AhbmError as error:
                found = error
            if isinstance(found, AhbmError):
                refusals[at] = (found.code, found.message)
            ps.append(None if isinstance(found, AhbmError) else found)
        emulator.forget_programs()
        return ps, refusals

    def shares(self, machine: str, request: Request, entry: int) -> NDArray[np.float64]:
        """See `Outcomes`."""
        compiled = Case(self.emulator(machine), request, self.under(machine, request, entry)).compiled()
        if compiled.program is None:
            return np.zeros(0)
        timeline = compiled.program.simulate(record=False, detail=True)
        shares: NDArray[np.float64] = timeline.chunks_ps() / max(timeline.latency_ps, 1)
        return shares
