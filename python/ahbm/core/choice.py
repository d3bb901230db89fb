"""Which algorithm performs a call, with which knobs, and the rule that chose it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ahbm.base.knobs import Knobs

if TYPE_CHECKING:
    from ahbm.core.emulator import Emulator
    from ahbm.source.algorithm import Algorithm

SELECTOR, PLAN, ARGUMENT, CONFIGURED, DEFAULT = "selector", "plan", "argument", "ccl.yaml", "default"
"""The rules: a selector, a plan that was registered or executed, `algorithm=` of a run, the user's ccl.yaml or an
override, the packaged ccl.yaml."""


@dataclass(frozen=True)
class Choice(Knobs):
    """An algorithm with its knobs, and the rule that chose it. A knob that is None was not chosen."""

    rule: str
    algorithm: str | Algorithm
    """A name, or an algorithm that ccl.yaml does not name."""
    notes: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """What the reader of a result should know of how it was chosen."""
    written: str = field(default="", compare=False, repr=False)
    """`file:line` of the rule or the selector of ccl.yaml that chose it; empty for others."""
    why: Any = field(default=None, compare=False, repr=False)
    """The evidence for a selector's choice (`ahbm.selectors.why.Why`); of no meaning for whether two choices are
    equal."""

    @property
    def name(self) -> str:
        """The algorithm's."""
        return self.algorithm if isinstance(self.algorithm, str) else self.algorithm.name

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.name, self.text))) + f" (chosen by {self.rule})"


class Candidates(Mapping[str, "Algorithm"]):
    """The configured algorithms of a collective by name; each is loaded when it is asked for."""

    def __init__(self, emulator: Emulator, collective: str) -> None:
        self._emulator = emulator
        self._names = emulator.algorithms(collective)

    def __getitem__(self, name: str) -> Algorithm:
        if name not in self._names:
            raise KeyError(name)
        return self._emulator.algorithm(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
