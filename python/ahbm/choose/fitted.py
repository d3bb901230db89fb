"""NCCL on machines that were fitted to measurements of it: what it takes by itself, and what a line makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import inf

from ahbm._core import Machine
from ahbm.base.knobs import Knobs
from ahbm.base.rules import Rule, Span
from ahbm.choose.measured import Forced, Measurements
from ahbm.choose.names import NCCL
from ahbm.choose.oracle import OracleTable
from ahbm.choose.outcomes import request_of
from ahbm.choose.regret import Point
from ahbm.config.ccl import CclConfig
from ahbm.core.compiled import Cost
from ahbm.core.emulator import Emulator
from ahbm.runs import bands
from ahbm.selectors.nccl_model import PROTOCOLS, NcclModel
from ahbm.selectors.protocol import Call

REPEATS = 0.05
"""By which runs of one cluster differ where no band of the machine says it."""
_MOST = 1 << 40
"""Sizes above are as this one."""


@dataclass(frozen=True)
class Verdict:
    """A line of a file at a point, beside what NCCL takes by itself."""

    us: float
    own_us: float
    spread: float | None
    """By which the time of NCCL itself is uncertain, as a share; None: nobody knows."""
    measured: Forced | None = None
    """What ran, where both times were measured; else the line's time is by NCCL's own model, from what NCCL takes by
    itself."""

    @property
    def gain(self) -> float:
        """What the line takes less than NCCL by itself, as a share of the line's time."""
        return self.own_us / self.us - 1

    @property
    def helps(self) -> bool:
        """Whether it gains beyond the spread."""
        return self.spread is not None and self.gain > self.spread

    @property
    def harms(self) -> bool:
        """Whether it loses, by measurements where there are both, beyond what runs differ by; else by NCCL's own
        model."""
        return self.us > self.own_us * (1 + (1e-9 if self.measured is None else REPEATS))

    @property
    def loss_at_worst(self) -> float:
        """What the line loses where NCCL by itself is as quick as the spread lets it be."""
        return max(0.0, self.us * (1 + (self.spread or 0.0)) / self.own_us - 1)


def fitted_in(table: OracleTable, measured: Measurements) -> dict[str, Fitted]:
    """NCCL on the machines of a table that were fitted to measurements, by their names there."""
    catalogue = table.catalogue
    config = CclConfig.load(catalogue.ccl, catalogue.overrides)
    known = {name: machine for name, machine in table.machines.items() if machine.bands is not None}
    return {name: Fitted(Emulator(machine, config), measured) for name, machine in known.items()}


class Fitted:
    """NCCL on one machine."""

    def __init__(self, emulator: Emulator, measured: Measurements) -> None:
        self.machine: Machine = emulator.machine
        self._emulator, self._measured = emulator, measured
        self._own: dict[Point, float | None] = {}

    @cached_property
    def model(self) -> NcclModel | None:
        """NCCL's own model with the machine's constants; None for an accelerator that NCCL does not know."""
        return NcclModel.of(self.machine)

    def own(self, point: Point, nodes: int) -> tuple[str, str] | None:
        """What NCCL takes by itself, by its model; None where that is not known."""
        return None if self.model is None else self.model.own(point.collective, point.nbytes, point.ranks, nodes)

    def own_us(self, point: Point, nodes: int) -> float | None:
        """The time of NCCL by itself: measured, else that of the machine, which was fitted to it. None where the
        machine's library does not run the collective."""
        measured = self._measured.us(point, nodes)
        if measured is not None:
            return measured
        if point not in self._own:
            request = request_of(point.collective, point.nbytes, point.ranks, point.dtype)
            names = dict(self.machine.library).get(point.collective, ())
            costs = [self._emulator.cost(request, name) for name in names]
            self._own[point] = min((cost.ps / 1e6 for cost in costs if isinstance(cost, Cost)), default=None)
        return self._own[point]

    def spread(self, point: Point, nodes: int) -> float | None:
        """By which the time of NCCL itself is uncertain: the band of the machine there. None where nobody knows."""
        names = dict(self.machine.library).get(point.collective, ())
        found = [bands.band(self.machine, point.collective, name, point.ranks, point.nbytes) for name in names]
        known = [band.percent / 100 for band in found if band is not None]
        if known:
            return max(known)
        return None if self._measured.us(point, nodes) is None else REPEATS

    def verdict(
        self, point: Point, nodes: int, algorithm: str, protocol: str | None, channels: int | None = None
    ) -> Verdict | None:
        """A line at a point; without a protocol, by the one that NCCL takes. None where neither measurements nor NCCL's
        own model say what it takes."""
        own_us, spread = self.own_us(point, nodes), self.spread(point, nodes)
        if own_us is None:
            return None
        if protocol is not None and self._measured.us(point, nodes) is not None:
            measured = self._measured.quickest(point, nodes, algorithm, protocol, channels)
            if measured is not None:
                return Verdict(measured[0], own_us, spread, measured[1])
        if (ratio := self._ratio(point, nodes, algorithm, protocol)) is None:
            return None
        return Verdict(own_us * ratio, own_us, spread)

    def _ratio(self, point: Point, nodes: int, algorithm: str, protocol: str | None) -> float | None:
        """What a line takes over what NCCL takes by itself, by its own model; 1 at the least."""
        own = self.own(point, nodes)
        if own is None or self.model is None:
            return None
        call = Call(point.collective, point.nbytes, point.ranks, nodes)
        us = self.model.best(algorithm, call)[0] if protocol is None else self.model.time_us(algorithm, protocol, call)
        return None if us == inf else us / self.model.time_us(*own, call)

    def candidates(self, point: Point, nodes: int, given: Knobs) -> Iterator[tuple[str, Knobs, Verdict]]:
        """All that NCCL could be made to run at a point, with its verdict; of knobs those that are given, else as it
        was measured, or as NCCL itself."""
        for algorithm in (NCCL.algorithms or {}).get(point.collective, {}):
            for protocol in PROTOCOLS if given.protocol is None else (given.protocol,):
                if NCCL.lacks(point.collective, algorithm, protocol, nodes, point.ranks / nodes) is not None:
                    continue
                found = self.verdict(point, nodes, algorithm, protocol, given.channels)
                if found is not None:
                    own = None if found.measured is None else found.measured.channels
                    yield algorithm, Knobs(protocol=protocol, channels=given.channels or own), found

    def kept(self, collective: str, sizes: Span, ranks: int, nodes: int) -> Iterator[Rule]:
        """Lines for sizes that a file leaves to NCCL: what it takes by itself, with its own channels. NCCL's example
        plugin gives one channel to sizes without a line."""
        if self.model is None:
            return
        least, most = sizes.least, _MOST if sizes.most is None else sizes.most
        while least <= most:
            taken = self.model.own(collective, least, ranks, nodes)
            if taken is None:
                return
            last = self._last(collective, taken, least, most, ranks, nodes)
            end = None if sizes.most is None and last >= most else last
            yield Rule(
                collective,
                taken[0],
                Span(least, end),
                Span(ranks, ranks),
                Span(nodes, nodes),
                protocol=taken[1],
            )
            least = last + 1

    def _last(self, collective: str, taken: tuple[str, str], least: int, most: int, ranks: int, nodes: int) -> int:
        """The last size of those from `least` on for which NCCL takes the same, before a multiple of the ranks."""
        assert self.model is not None
        low, step = least // ranks, 1
        end = most // ranks
        while low + step <= end and self.model.own(collective, (low + step) * ranks, ranks, nodes) == taken:
            low, step = low + step, step * 2 if step < low // 4 else max(low // 4, 1)
        high = min(low + step, end + 1)
        while high - low > 1:
            middle = (low + high) // 2
            same = self.model.own(collective, middle * ranks, ranks, nodes) == taken
            low, high = (middle, high) if same else (low, middle)
        return min((low + 1) * ranks - 1, most)
