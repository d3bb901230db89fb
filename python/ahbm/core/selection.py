"""Which algorithm performs a call, and the rule that chose it: what selectors see and answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ahbm.base.arguments import refused, shown
from ahbm.base.request import Request
from ahbm.errors import ConfigError

if TYPE_CHECKING:
    from ahbm.core.emulator import Emulator
    from ahbm.source.algorithm import Algorithm

SELECTOR, PLAN, ARGUMENT, CONFIGURED, DEFAULT = "selector", "plan", "argument", "ccl.yaml", "default"
"""The rules: a selector, a plan that was registered or executed, `algorithm=` of a run, the user's ccl.yaml or an
override, the packaged ccl.yaml."""

Selector = Callable[[Mapping[str, "Algorithm"], Request], "str | Algorithm | None"]
"""Of the configured algorithms of a request's collective, by name, the one to perform it by, or its name. None leaves
the choice to ccl.yaml. It must answer the same on every rank of a group."""


@dataclass(frozen=True)
class Choice:
    """An algorithm, and the rule that chose it."""

    rule: str
    algorithm: str | Algorithm
    """A name, or an algorithm that ccl.yaml does not name."""

    @property
    def name(self) -> str:
        """The algorithm's."""
        return self.algorithm if isinstance(self.algorithm, str) else self.algorithm.name

    def __str__(self) -> str:
        return f"{self.name} (chosen by {self.rule})"


class Catalogue(Mapping[str, "Algorithm"]):
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


def checked_selector(selector: object) -> Selector:
    """`selector`. Raises ConfigError (AHBM-C129) for what is no function."""
    if not callable(selector):
        raise refused("selector", "a function of algorithms and request", selector)
    return selector


def select(selector: Selector, algorithms: Mapping[str, Algorithm], request: Request) -> Choice | None:
    """The choice of `selector` among `algorithms`; None where it leaves the choice.

    Raises ConfigError (AHBM-C180) for an answer that is neither one of their names nor an algorithm, and what
    `selector` raises.
    """
    from ahbm.base.yaml_source import did_you_mean
    from ahbm.source.algorithm import is_algorithm

    answer: object = selector(algorithms, request)
    if answer is None:
        return None
    if isinstance(answer, str):
        if answer in algorithms:
            return Choice(SELECTOR, answer)
        raise ConfigError(
            "AHBM-C180",
            f"the selector chose {answer!r}, which is no configured algorithm of {request.collective}",
            hint=did_you_mean(answer, algorithms),
        )
    if not is_algorithm(answer):
        raise ConfigError(
            "AHBM-C180",
            f"the selector for {request.collective} chose {shown(answer)}, which is no algorithm",
            hint="return a name, an algorithm or None",
        )
    named = answer.name in algorithms and algorithms[answer.name] is answer
    return Choice(SELECTOR, answer.name if named else answer)
