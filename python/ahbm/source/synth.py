"""Synthesized schedules as algorithms (`synth:` in ccl.yaml)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ahbm._core import Machine, Plan
from ahbm.base import codes
from ahbm.base.layout import Layout
from ahbm.base.request import Request
from ahbm.config.checks import integer, mapping, text
from ahbm.config.kinds import Kind
from ahbm.errors import ConfigError, Site, UnsupportedError
from ahbm.source.algorithm import Lowered
from ahbm.source.plan import LOWERING, PlanOptions, lower
from ahbm.source.synthesis import METHODS, QUEUES, SYNTHESIZED, WHOLE, Synthesis, synthesize

if TYPE_CHECKING:
    from ahbm.config.settings import Settings

SEARCHED, SMALL = ("arborescences",), 16
"""Methods that search for long, and the most ranks among which they are tried."""


SYNTH = "synth:"
"""Before a method: the name of a schedule that no entry of ccl.yaml has."""


@dataclass(frozen=True)
class Synth:
    """The options of finding the schedule: arguments of `ahbm.synthesize`."""

    method: str = "auto"
    chunks: int = 1
    seed: int = 0


@dataclass(frozen=True)
class SynthAlgorithm:
    """A schedule that is synthesized for the machine and the size when it is first used."""

    name: str
    synth: Synth
    how: PlanOptions

    @property
    def collectives(self) -> tuple[str, ...]:
        """The collectives that can be synthesized."""
        return SYNTHESIZED

    @property
    def source(self) -> str:
        """The origin of the algorithm, for people."""
        return f"synthesized by {self.synth.method}"

    @property
    def identity(self) -> tuple[str, Synth, PlanOptions]:
        """The values that the schedule depends on besides the machine and the request."""
        return ("synth", self.synth, self.how)

    def supports(self, network: str) -> bool:
        """True: a method that does not apply says so itself."""
        return True

    def check(self, request: Request) -> None:
        """Raises ConfigError (AHBM-C115) for a collective that is not synthesized, UnsupportedError (AHBM-U111) for
        device tensors."""
        if request.collective not in SYNTHESIZED:
            raise ConfigError(
                "AHBM-C115",
                f"{self.name}: {request.collective} is not synthesized",
                sites=(Site(self.name, "ccl.yaml"),),
                hint=f"one of {', '.join(SYNTHESIZED)}",
            )
        if request.placement is not None:
            raise UnsupportedError(
                "AHBM-U111", f"the plan {self.name} does not work on device tensors", hint="pass host arrays"
            )

    def lower(self, machine: Machine, request: Request, layout: Layout, settings: Settings) -> Lowered:
        """Synthesizes between the SIPs of the ranks' places, and lowers the plan; other SIPs relay.

        An array that is too small to be cut as the method must gets the schedule of `auto`, with a note. Where queues,
        slices or the PEs of a SIP make a schedule wait, `auto` is what is quickest with them. Raises as `synthesize`
        and `ahbm.source.plan.lower`.
        """
        sips, note = [sip for sip, _, _ in layout.places], ""
        try:
            found = self.synthesize(machine, request, sips)
            if self.synth.method == "auto" and not self._takes_its_time(found, settings):
                return self._quickest(machine, request, sips, settings)
        except UnsupportedError as error:
            if error.code != codes.UNCUT or replace(self.synth, seed=0) == Synth():
                raise
            found = replace(self, synth=Synth(seed=self.synth.seed)).synthesize(machine, request, sips)
            note = f"{self.name} is synthesized by {found.schedule.method}: {error.message}"
        lowered = lower(found.plan, machine, request, settings.queues, self.how, found.schedule.places())
        return lowered._replace(note=note)

    def _takes_its_time(self, found: Synthesis, settings: Settings) -> bool:
        """Whether what is run takes the time of the schedule."""
        whole = self.how.slice_bytes is not None and self.how.slice_bytes >= WHOLE
        return whole and settings.queues.n_slots == QUEUES.n_slots and found.matches

    def _quickest(self, machine: Machine, request: Request, sips: Sequence[int], settings: Settings) -> Lowered:
        """The schedule that is run in the least time: those of all methods in the order of their own times, as long as
        that is less than the least so far."""
        schedules = []
        for method in METHODS[1:]:
            if method in SEARCHED and len(sips) > SMALL:
                continue
            one = replace(self, synth=replace(self.synth, method=method))
            with suppress(UnsupportedError):
                schedules.append(one.synthesize(machine, request, sips))
        schedules.sort(key=lambda found: found.schedule.time_ps)
        best: tuple[int, Lowered] | None = None
        for found in schedules:
            if best is not None and found.schedule.time_ps >= best[0]:
                break
            made = lower(found.plan, machine, request, settings.queues, self.how, found.schedule.places())
            time_ps = made.program.simulate(record=False).latency_ps
            if best is None or time_ps < best[0]:
                best = time_ps, made
        assert best is not None, "`auto` has found one of them"
        return best[1]

    @property
    def anywhere(self) -> bool:
        """False: a schedule is made for the links between its ranks."""
        return False

    @property
    def by_shape(self) -> bool:
        """False: a schedule is made for the times of the links."""
        return False

    @property
    def takes_shares(self) -> bool:
        """False: its chunks are equal."""
        return False

    @property
    def is_plan(self) -> bool:
        """True."""
        return True

    def with_knobs(self, knobs: Mapping[str, str | int]) -> tuple[SynthAlgorithm, Collection[str]]:
        """The schedule under a library's knobs, and their names."""
        how, names = self.how.with_knobs(knobs)
        return replace(self, how=how), names

    def plan(
        self, machine: Machine, request: Request, settings: Settings, limits: Sequence[tuple[str, int]] = ()
    ) -> Plan:
        """The schedule for the greatest size up to the request's whose chunks are equal, between all SIPs."""
        return self.synthesize(machine, request).even().plan

    def synthesize(self, machine: Machine, request: Request, sips: Sequence[int] = ()) -> Synthesis:
        """The schedule for `request`, between all SIPs without `sips`; raises as `synthesize`."""
        return synthesize(
            request.collective,
            topology=machine,
            size=request.nbytes,
            chunks=self.synth.chunks,
            dtype=request.dtype,
            root=request.root,
            method=self.synth.method,
            seed=self.synth.seed,
            members=() if list(sips) == list(range(machine.sips)) else sips,
        )


def _options(entry: Mapping[str, Any]) -> tuple[Synth, PlanOptions]:
    return Synth(**entry["synth"]), PlanOptions.of(entry)


def load(settings: Settings) -> SynthAlgorithm:
    """The algorithm of `settings`; nothing is synthesized yet."""
    assert isinstance(settings.options, tuple)
    return SynthAlgorithm(settings.algorithm, *settings.options)


KIND = Kind(
    check=mapping(
        {"method": text, "chunks": integer(1), "seed": integer(0)},
        "a mapping with method, chunks (1 or more) and seed",
    ),
    example="synth:",
    options=_options,
    load=load,
    listed=lambda settings: ((found := load(settings)).collectives, found.source),
    keys=LOWERING,
    defaults={"n_slots": QUEUES.n_slots, "buffer_kind": QUEUES.buffer_kind, "slice_bytes": WHOLE},
    claims=lambda name: name.startswith(SYNTH),
    named=lambda name: {"method": name.removeprefix(SYNTH)},
)
