"""Which algorithm a call of ranks runs: what its ranks agreed on, else what the setup and the configuration say."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ahbm.choice.policy import Given, Policy

if TYPE_CHECKING:
    from ahbm.base.request import Request
    from ahbm.core.choice import Choice
    from ahbm.core.compiled import Compiled
    from ahbm.core.emulator import Emulator
    from ahbm.ranks.setup import Setup
    from ahbm.ranks.terms import Terms
    from ahbm.source.algorithm import Algorithm


KNOWN_CALLS = 1 << 12
"""Different calls whose algorithm is remembered."""


class By(NamedTuple):
    """The algorithm of a call, as `Emulator.compile` takes it, and the rule that chose it."""

    algorithm: str | Algorithm
    rule: str


class Choosing:
    """Chooses for the calls of a session, once their ranks have agreed on their terms."""

    def __init__(self, emulator: Emulator, setup: Setup) -> None:
        self.emulator = emulator
        asked = setup.algorithm
        given = [] if asked is None else [Given(emulator, asked, insists=True, performed=setup.performed)]
        self._policies = {selects: Policy(emulator, given, selectors=selects) for selects in (True, False)}
        self._known: dict[tuple[Request, Choice | None, bool], By] = {}

    def by(self, terms: Terms, request: Request) -> By:
        """The algorithm of a call of these terms, which became `request`. Raises as `Policy.choose`."""
        key = (request, terms.choice, terms.selects)
        known = self._known.get(key)
        if known is None:
            policy = self._policies[terms.selects]
            choice = terms.choice or policy.choose(request)
            if len(self._known) >= KNOWN_CALLS:
                self._known.clear()
            known = self._known[key] = By(policy.algorithm(request, choice), choice.rule)
        return known

    def compile(self, terms: Terms, request: Request) -> Compiled:
        """The program of such a call. Raises as `by` and `Emulator.compile`."""
        return self.emulator.compile(request, self.by(terms, request).algorithm)
