"""Who is asked for the algorithm of a call, in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from ahbm.base.request import Request
from ahbm.choice.configured import Configured
from ahbm.config.rules import Place
from ahbm.core.choice import ARGUMENT, Choice
from ahbm.core.compiled import Compiled
from ahbm.core.emulator import Emulator

if TYPE_CHECKING:
    from ahbm.selectors.asking import ConfiguredSelectors
    from ahbm.selectors.protocol import AnySelector
    from ahbm.source.algorithm import Algorithm


class Chooser(Protocol):
    """One of those who are asked."""

    name: str
    """What it is called in words."""

    def choose(self, request: Request, place: Place | None = None) -> Choice | None:
        """The choice for a call, in a job or a process group if it has a `place`; None leaves it to the next."""


class Given:
    """The algorithm that was asked for performs the collectives that it can."""

    name = "algorithm="

    def __init__(
        self,
        emulator: Emulator,
        algorithm: str | Algorithm,
        insists: bool = False,
        performed: set[str] | None = None,
    ) -> None:
        """insists: an all_reduce is its own even where it does not perform one: it refuses then. performed: takes the
        collectives for which it was taken."""
        self._emulator = emulator
        self._insists = insists
        self.algorithm = algorithm
        self.performed = set[str]() if performed is None else performed

    def performs(self, collective: str) -> bool:
        """Whether it performs a collective, or refuses to."""
        if self._insists and collective == "all_reduce":
            return True
        return collective in self._emulator.algorithm(self.algorithm).collectives

    def choose(self, request: Request, place: Place | None = None) -> Choice | None:
        """See `Chooser`."""
        if not self.performs(request.collective):
            return None
        self.performed.add(request.collective)
        return Choice(ARGUMENT, self.algorithm)


class Policy:
    """Choosers that are asked in order, the last of which always chooses."""

    def __init__(self, emulator: Emulator, choosers: Sequence[Chooser] = (), *, selectors: bool = True) -> None:
        """choosers: asked before the selectors of ccl.yaml, unless `selectors` leaves those out, and its rules."""
        self.emulator = emulator
        self._selectors: ConfiguredSelectors | None = None
        self._rules = set[str]()
        if selectors and emulator.ccl.has_selectors:
            from ahbm.selectors.asking import ConfiguredSelectors

            self._selectors = ConfiguredSelectors(emulator)
        configured = [] if self._selectors is None else [self._selectors]
        self.choosers: tuple[Chooser, ...] = (*choosers, *configured, Configured(emulator))

    @staticmethod
    def of(emulator: Emulator) -> Policy:
        """The one of a call of which nothing but its request is said, for as long as the emulator lives."""
        found = emulator.kept.get("policy")
        if not isinstance(found, Policy):
            found = emulator.kept["policy"] = Policy(emulator)
        return found

    @property
    def met(self) -> set[str]:
        """Where the rules and selectors of ccl.yaml that are for calls which were made are written."""
        return self._rules if self._selectors is None else self._rules | self._selectors.asked

    def choose(self, request: Request, place: Place | None = None) -> Choice:
        """The choice for a call. Raises what the choosers raise."""
        for chooser in self.choosers:
            choice = chooser.choose(request, place)
            if choice is not None:
                if choice.written:
                    self._rules.add(choice.written)
                return choice
        raise AssertionError("the rules of ccl.yaml choose, or raise an error")

    def algorithm(self, request: Request, choice: Choice) -> str | Algorithm:
        """What `Emulator.compile` takes for a choice. Raises as `Emulator.with_knobs`."""
        return self.emulator.with_knobs(request, choice.algorithm, choice.alone)

    def compile(self, request: Request, place: Place | None = None, *, timed: bool = False) -> Compiled:
        """The program of a call by the algorithm that is chosen for it, with notes on the choice; with `timed`, as
        `Emulator.compile_timed`. Raises as `choose` and `Emulator.compile`."""
        choice = self.choose(request, place)
        compile = self.emulator.compile_timed if timed else self.emulator.compile
        compiled = compile(request, self.algorithm(request, choice))
        return replace(compiled, notes=(*choice.notes, *compiled.notes)) if choice.notes else compiled


def asked(emulator: Emulator, *selectors: AnySelector) -> list[Chooser]:
    """Choosers of the selectors that are given. Raises as `as_selector`."""
    from ahbm.selectors.asking import Solo
    from ahbm.selectors.loading import as_selector

    made = (as_selector(one) for one in selectors)
    return [Solo(emulator, one) for one in made if one is not None]
