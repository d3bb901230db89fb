"""An algorithm under knobs: what they change of it, and of the machine that it runs on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ahbm._core import Machine, Plan, Protocol
from ahbm.base.knobs import Knobs
from ahbm.base.layout import Layout
from ahbm.base.request import Request
from ahbm.config.protocols import forced
from ahbm.config.settings import Settings
from ahbm.source.algorithm import Algorithm, Lowered

FULL_THREADS = 512
"""Threads of a block that do math at the machine's full rate: NCCL's blocks for the Simple protocol have so many."""
MATH = "pe.math.f16_per_ns"
MOST_PER_NS = 10**12
"""The highest finite rate of a machine; math at a higher one takes no time, whatever the threads."""


def slower_math(machine: Machine, threads: int) -> int | None:
    """The rate of the machine's math by blocks of so many threads; None where math takes no time."""
    rate = int(dict(machine.parameters)[MATH])
    return None if rate > MOST_PER_NS else max(rate * min(threads, FULL_THREADS) // FULL_THREADS, 1)


@dataclass(frozen=True, eq=False)
class WithKnobs:
    """An algorithm of the emulator under knobs."""

    base: Algorithm
    """The algorithm under those that it has itself."""
    settings: Settings
    """Those that it runs with without knobs."""
    knobs: tuple[tuple[str, str | int], ...]
    protocol: Protocol | None
    """The protocol of the machine's library that it runs with, where the knobs name one."""
    channels: int | None
    """Channels of the machine's protocols."""
    math_per_ns: int | None
    """The rate of the machine's math, where it is slower."""
    modelled: str
    """The knobs that are in the simulated time, in words; "" for none."""
    note: str
    """Which knobs are in the simulated time, and which are not."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WithKnobs) and (self.name, self.identity) == (other.name, other.identity)

    def __hash__(self) -> int:
        return hash((self.name, self.knobs))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "base":
            raise AttributeError(name)
        return getattr(self.base, name)

    @property
    def name(self) -> str:
        """That of the algorithm."""
        return self.base.name

    @property
    def collectives(self) -> tuple[str, ...]:
        """Those of the algorithm."""
        return self.base.collectives

    @property
    def source(self) -> str:
        """That of the algorithm."""
        return self.base.source

    @property
    def identity(self) -> tuple[object, ...]:
        """That of the algorithm, and the knobs: no path, so that equal runs have equal digests on every computer."""
        return ("knobs", self.base.identity, self.knobs)

    def supports(self, network: str) -> bool:
        """As the algorithm."""
        return self.base.supports(network)

    def check(self, request: Request) -> None:
        """As the algorithm."""
        self.base.check(request)

    def lower(self, machine: Machine, request: Request, layout: Layout, settings: Settings) -> Lowered:
        """As the algorithm, with the note."""
        found = self.base.lower(machine, request, layout, settings)
        return found._replace(note="; ".join(filter(None, (self.note, found.note))))

    @property
    def anywhere(self) -> bool:
        """As the algorithm."""
        return self.base.anywhere

    @property
    def takes_shares(self) -> bool:
        """As the algorithm."""
        return self.base.takes_shares

    @property
    def is_plan(self) -> bool:
        """As the algorithm."""
        return self.base.is_plan

    def plan(
        self, machine: Machine, request: Request, settings: Settings, limits: Sequence[tuple[str, int]] = ()
    ) -> Plan:
        """As the algorithm."""
        return self.base.plan(machine, request, settings, limits)


def with_knobs(
    knobs: Knobs, algorithm: Algorithm, settings: Settings, machine: Machine, nbytes: int, ranks: int
) -> WithKnobs:
    """An algorithm under knobs, for `nbytes` bytes of one rank's array among `ranks` ranks.

    A protocol is one of the machine's library, by its name, and the protocol of a plan. Channels are the algorithm's,
    or else those of the machine's protocols. Threads below `FULL_THREADS` slow the math of the machine. All else is
    what the algorithm says that it has. What nobody has changes nothing, and the note says so.

    Raises ConfigError (AHBM-C192, C210) for a protocol that the machine's library does not have for such a call.
    """
    protocol: Protocol | None = None
    channels = math_per_ns = None
    base, found = algorithm.with_knobs(knobs.knobs)
    modelled = set(found)
    if knobs.protocol is not None and machine.protocols:
        named = forced(machine, knobs.protocol, nbytes, ranks)
        if machine.protocol is None:
            protocol = named
            modelled |= {"protocol"}
    most = max((one.channels or 0 for one in machine.protocols), default=0)
    if knobs.channels is not None and "channels" not in modelled and knobs.channels <= most:
        channels = knobs.channels
        modelled |= {"channels"}
    if knobs.threads is not None and (slower := slower_math(machine, knobs.threads)) is not None:
        math_per_ns = slower if knobs.threads < FULL_THREADS else None
        modelled.add("threads")
    in_time, idle = (
        ", ".join(f"{name} {knob}" for name, knob in knobs.knobs.items() if (name in modelled) is wanted)
        for wanted in (True, False)
    )
    note = f"knobs: {in_time or 'none'} in the time" + (f"; {idle} carried, not modelled" if idle else "")
    return WithKnobs(base, settings, tuple(knobs.knobs.items()), protocol, channels, math_per_ns, in_time, note)
