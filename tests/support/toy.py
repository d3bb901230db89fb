"""A toy kind of algorithm: what a new kind has to bring, in one module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ahbm._core import Machine, Plan
from ahbm.base.layout import Layout
from ahbm.base.request import Request
from ahbm.config.checks import integer, text
from ahbm.config.kinds import Kind
from ahbm.config.settings import Settings
from ahbm.source.algorithm import Algorithm, AlgorithmLoader, Lowered


@dataclass(frozen=True)
class Toy:
    """Another algorithm under a name of its own, whatever the network."""

    name: str
    options: tuple[str, int]

    collectives = ("all_reduce",)
    source = "a toy"
    is_plan = False
    anywhere = False

    @property
    def identity(self) -> tuple[str, int]:
        return self.options

    def supports(self, network: str) -> bool:
        return True

    def check(self, request: Request) -> None:
        self._inner().check(request)

    def lower(self, machine: Machine, request: Request, layout: Layout, settings: Settings) -> Lowered:
        return self._inner().lower(machine, request, layout, settings)

    def plan(
        self, machine: Machine, request: Request, settings: Settings, limits: Sequence[tuple[str, int]] = ()
    ) -> Plan:
        return self._inner().plan(machine, request, settings, limits)

    def _inner(self) -> Algorithm:
        from ahbm.config.ccl import CclConfig

        return AlgorithmLoader().load(CclConfig.load().settings(self.options[0]))


def load(settings: Settings) -> Toy:
    assert isinstance(settings.options, tuple)
    return Toy(settings.algorithm, settings.options)


KIND = Kind(
    check=text,
    example="toy: with the name of a packaged algorithm",
    options=lambda entry: (str(entry["toy"]), entry.get("turns", 1)),
    load=load,
    listed=lambda settings: (("all_reduce",), "a toy"),
    keys={"turns": integer(1)},
    defaults={"n_slots": 7},
)
