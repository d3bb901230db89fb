"""Which algorithm performs a call, with which knobs, and the rule that chose it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ahbm.core.emulator import Emulator
    from ahbm.source.algorithm import Algorithm

SELECTOR, PLAN, ARGUMENT, CONFIGURED, DEFAULT = "selector", "plan", "argument", "ccl.yaml", "default"
"""The rules: a selector, a plan that was registered or executed, `algorithm=` of a run, the user's ccl.yaml or an
override, the packaged ccl.yaml."""


@dataclass(frozen=True)
class Choice:
    """An algorithm with its knobs, and the rule that chose it. A knob that is None was not chosen."""

    rule: str
    algorithm: str | Algorithm
    """A name, or an algorithm that ccl.yaml does not name."""
    protocol: str | None = None
    """"ll", "ll128" or "simple", as NCCL calls them."""
    channels: int | None = None
    """Parts that the call is cut into, each on connections of its own."""
    threads: int | None = None
    """Of one channel."""
    chunk_bytes: int | None = None
    """Longest piece that is sent at once."""
    why: Any = field(default=None, compare=False, repr=False)
    """The evidence for a selector's choice (`ahbm.selectors.why.Why`); of no meaning for whether two choices are
    equal."""

    @property
    def name(self) -> str:
        """The algorithm's."""
        return self.algorithm if isinstance(self.algorithm, str) else self.algorithm.name

    @property
    def knobs(self) -> dict[str, str | int]:
        """The knobs that were chosen, by name."""
        named = {name: getattr(self, name) for name in KNOBS}
        return {name: value for name, value in named.items() if value is not None}

    def __str__(self) -> str:
        knobs = "".join(f", {name} {value}" for name, value in self.knobs.items())
        return f"{self.name}{knobs} (chosen by {self.rule})"


KNOBS = ("protocol", "channels", "threads", "chunk_bytes")
"""The fields of a Choice that are knobs."""
MOST = {"channels": 1 << 10, "threads": 1 << 10, "chunk_bytes": 1 << 40}
"""The largest values of those that are numbers; the least is 1."""


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
