"""How one rank chooses the algorithms of its calls: its selectors, asked before a call is issued."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ahbm.core.selection import Catalogue, Choice, Selector, checked_selector, select
from ahbm.ranks.exchange import Exchange
from ahbm.ranks.groups import ProcessGroup
from ahbm.ranks.seat import Call
from ahbm.ranks.terms import with_choice

if TYPE_CHECKING:
    from ahbm.core.emulator import Emulator
    from ahbm.source.algorithm import Algorithm

Chooser = Callable[[Call, int, "Emulator"], "Choice | None"]
"""Chooses for a call of a (global) rank, on an emulator, that no selector has chosen for."""


class Selection:
    """The selectors of one rank. A rank without any has no Selection, and its calls pass by."""

    def __init__(self, rank: int, emulator: Callable[[], Emulator]) -> None:
        """Of the global `rank`. `emulator`: that of the world, or one configured as it is, asked for at a call."""
        self._rank = rank
        self._emulator = emulator
        self._selectors: dict[ProcessGroup | None, Selector] = {}
        self._catalogues: dict[str, Mapping[str, Algorithm]] = {}
        self.chooser: Chooser | None = None

    def use(self, group: ProcessGroup | None, selector: Selector) -> None:
        """`selector` chooses for `group`; None: for groups without their own. Raises ConfigError (AHBM-C129)."""
        self._selectors[group] = checked_selector(selector)

    def apply(self, call: Call) -> None:
        """Puts the choice for `call` into its terms. Sends, receives and new groups are not chosen for.

        An all_to_all is chosen for by the longest chunk that this rank sends. Raises as `select`.
        """
        if call.kind not in ("collective", "exchange") or call.terms.choice is not None:
            return
        choice = self._chosen(call)
        if choice is not None:
            call.terms = with_choice(call.group, call.terms, choice)

    def _chosen(self, call: Call) -> Choice | None:
        emulator = self._emulator()
        selector = self._selectors.get(call.group) or self._selectors.get(None)
        choice = None
        if selector is not None:
            request = call.terms.request
            if isinstance(call.buffer, Exchange):
                request = replace(request, count=Exchange.longest([call.buffer]))
            if request.collective not in self._catalogues:
                self._catalogues[request.collective] = Catalogue(emulator, request.collective)
            choice = select(selector, self._catalogues[request.collective], request)
        if choice is None and self.chooser is not None:
            choice = self.chooser(call, self._rank, emulator)
        return choice
