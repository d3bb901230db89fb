"""A model names a few candidates, the emulator decides: nearly the true optimum, for a few simulations per shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ahbm.base.quickest import quickest
from ahbm.base.request import Request
from ahbm.core.choice import SELECTOR, Choice
from ahbm.core.compiled import Cost
from ahbm.errors import ConfigError
from ahbm.selectors.protocol import BaseSelector, Call, Comm, CostTable, Selector

if TYPE_CHECKING:
    from ahbm.core.emulator import Emulator

Model = Callable[[Call, CostTable], Mapping[str, float]]
"""Predicted us of some candidates of a call, by name."""
KNOWN = 1 << 12
"""Requests whose choice is remembered."""


class Shortlist(BaseSelector):
    """The quickest of the `k` candidates that a model names, as the emulator times them. The same request is decided
    once."""

    name = "shortlist"

    def __init__(self, model: Selector | Model | None = None, k: int = 3) -> None:
        """model: a selector that writes estimates into the table, a function of call and table, or None: all
        candidates are equal to it, and the first `k` of the table are tried. Raises ConfigError (AHBM-C181)."""
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise ConfigError("AHBM-C181", f"a shortlist has at least one candidate, not k = {k!r}")
        self._model = model
        self._k = k
        self._known: dict[Request, Choice | None] = {}
        self._estimates: dict[Request, list[float]] = {}
        self._emulator: Emulator | None = None
        self.name = f"shortlist of {k}" if model is None else f"shortlist of {k} by {_name(model)}"
        self.pure = model is None or getattr(model, "pure", False)

    @property
    def fingerprint(self) -> str:
        """Of its model."""
        return str(getattr(self._model, "fingerprint", ""))

    def init(self, comm: Comm) -> None:
        """See `Selector`."""
        if comm.emulator is None:
            raise ConfigError("AHBM-C181", "a shortlist needs an emulator that decides")
        self._emulator = comm.emulator
        if isinstance(self._model, Selector):
            self._model.init(comm)

    def get_coll_info(self, call: Call, table: CostTable) -> Choice | None:
        """See `Selector`. Writes the emulated times of the candidates into the table. None where none of them runs."""
        request = call.request
        assert request is not None
        if request not in self._known:
            if len(self._known) >= KNOWN:
                self._known.clear()
                self._estimates.clear()
            self._known[request] = self._decide(call, table)
            self._estimates[request] = table.us[:]
        table.us[:] = self._estimates[request]
        return self._known[request]

    def _decide(self, call: Call, table: CostTable) -> Choice | None:
        assert self._emulator is not None and call.request is not None
        named = self._named(call, table)
        times: dict[str, int] = {}
        for name in named:
            cost = self._emulator.cost(call.request, name)
            if isinstance(cost, Cost):
                times[name] = cost.ps
                table.us[table.algorithms.index(name)] = cost.ps / 1e6
                if len(times) == self._k:
                    break
            else:
                table.mask(name, cost.message)
        best = quickest(times)
        return None if best is None else Choice(SELECTOR, best)

    def _named(self, call: Call, table: CostTable) -> list[str]:
        """The candidates in the order in which they are tried."""
        allowed = [name for name in table.algorithms if table.allows(name)]
        if self._model is None:
            return allowed
        if isinstance(self._model, Selector):
            guess = table.copy()
            self._model.get_coll_info(call, guess)
            costs = dict(zip(guess.algorithms, guess.us, strict=True))
        else:
            costs = dict(self._model(call, table))
        # Those without an estimate come last.
        return sorted(allowed, key=lambda name: (costs.get(name, float("inf")), name))


def _name(model: object) -> str:
    given = getattr(model, "name", "") or getattr(model, "__name__", "")
    return str(given or type(model).__name__)
