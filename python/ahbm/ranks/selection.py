"""How one rank chooses the algorithms of its calls: its selectors, asked before a call is issued."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from ahbm.base.arguments import refused
from ahbm.config.rules import Named, Place
from ahbm.core.choice import Choice
from ahbm.ranks.exchange import Exchange
from ahbm.ranks.groups import ProcessGroup
from ahbm.ranks.seat import Call
from ahbm.ranks.terms import with_choice
from ahbm.ranks.ticket import Ticket

if TYPE_CHECKING:
    from ahbm.core.emulator import Emulator
    from ahbm.selectors import protocol
    from ahbm.selectors.asking import Instance, Tables

Chooser = Callable[[Call, int, "Emulator"], "Choice | None"]
"""Chooses for a call of a (global) rank, on an emulator, that no selector has chosen for."""


@dataclass
class _Own:
    """The state of one group's selection."""

    number: int = 0
    """Calls of the group so far."""
    instances: dict[object, Instance] = field(default_factory=dict)
    """By the selector that each is one of."""
    waiting: deque[tuple[Instance, protocol.Call, Choice, Ticket]] = field(default_factory=deque)
    """Calls whose time their selector is to learn, in order."""


class _Update(NamedTuple):
    """A selector that chooses from a call of a group on."""

    selector: protocol.Selector | None
    at: int | None
    """Number of the call; None: the next one of each group."""
    since: Mapping[ProcessGroup, int]
    """By group, the number of the call that was next when it was set."""

    def begins(self, group: ProcessGroup) -> int:
        """Number of the first call of a group that it chooses for."""
        return self.since.get(group, 0) if self.at is None else self.at


class Selection:
    """The selectors of one rank, which counts the calls of each group."""

    def __init__(self, rank: int, emulator: Callable[[], Emulator]) -> None:
        """Of the global `rank`. `emulator`: that of the world, or one configured as it is, asked for at a call."""
        self._rank = rank
        self._emulator = emulator
        self._tables: Tables | None = None
        self._updates: dict[ProcessGroup | None, list[_Update]] = {}
        self._own: dict[ProcessGroup, _Own] = {}
        self._latest: tuple[_Own, Instance, protocol.Call, Choice] | None = None
        self.chooser: Chooser | None = None

    def use(self, group: ProcessGroup | None, selector: protocol.AnySelector, at: int | None = None) -> None:
        """`selector` chooses for `group` from its call number `at` on (default: the next one); None: for groups without
        their own. A selector that is None leaves the calls to ccl.yaml again.

        Raises ConfigError: AHBM-C129 for what is no selector, and for a call that has been made already; AHBM-C181.
        """
        from ahbm.selectors.loading import as_selector

        made = as_selector(selector)
        updates = self._updates.setdefault(group, [])
        since = {known: own.number for known, own in self._own.items() if group is None or known is group}
        least = max(since.values(), default=0)
        if updates and updates[-1].at is not None:
            least = max(least, updates[-1].at)
        if at is not None and at < least:
            raise refused("at", f"a call to come, and no earlier than what was set before: {least} or later", at)
        updates.append(_Update(made, at, since))

    def apply(self, call: Call, *, issues: bool = True) -> None:
        """Puts the choice for `call` into its terms; with `issues`, it is the group's next call. Sends, receives and
        new groups are not chosen for.

        An all_to_all is chosen for by the longest chunk that this rank sends. Raises ConfigError: AHBM-C180 for an
        answer that is no algorithm, AHBM-C181 for a selector of ccl.yaml that cannot be loaded.
        """
        self._latest = None
        if call.kind not in ("collective", "exchange"):
            return
        own = self._own.setdefault(call.group, _Own())
        number = own.number
        own.number += issues
        if call.terms.choice is not None or not (self._updates or self.chooser or self._emulator().ccl.has_selectors):
            return
        choice = self._chosen(call, own, number)
        if choice is not None:
            call.terms = with_choice(call.group, call.terms, choice)

    def issued(self, ticket: Ticket) -> None:
        """The call that was applied last has this ticket; who asks for it learns its time before the group's next call
        after the rank has waited for it."""
        if self._latest is not None:
            own, instance, call, choice = self._latest
            own.waiting.append((instance, call, choice, ticket))

    def close(self) -> None:
        """No call follows: ends all selectors."""
        for own in self._own.values():
            for instance in own.instances.values():
                instance.close()

    def _chosen(self, call: Call, own: _Own, number: int) -> Choice | None:
        emulator = self._emulator()
        choice = None
        request = call.terms.request
        if isinstance(call.buffer, Exchange):
            request = replace(request, count=Exchange.longest([call.buffer]))
        selector, updates = self._selector(call.group, number)
        named: Named | None = None
        if selector is None and not updates and emulator.ccl.has_selectors:
            name = "" if call.group.name == "WORLD" else call.group.name
            named = emulator.ccl.selector(request.collective, request.nbytes, request.world_size, Place(name, ""))
        if selector is not None or named is not None:
            from ahbm.selectors import protocol
            from ahbm.selectors.asking import Instance, Tables
            from ahbm.selectors.loading import load

            if self._tables is None:
                self._tables = Tables(emulator)
            nodes = self._tables.nodes(request.ranks)
            key = updates if named is None else named
            if key not in own.instances:
                comm = protocol.Comm(call.group.size(), nodes, call.group.name, emulator)
                made = selector if named is None else load(named)
                assert made is not None
                own.instances[key] = Instance(made, comm, updates)
            asked = protocol.Call.of(request, nodes, call.group.name, number)
            choice = self._asked(call, own, own.instances[key], asked)
        if choice is None and self.chooser is not None and (call.why is None or call.why.failure is None):
            choice = self.chooser(call, self._rank, emulator)
        return choice

    def _asked(self, call: Call, own: _Own, instance: Instance, asked: protocol.Call) -> Choice | None:
        self._observe(own)
        assert self._tables is not None and asked.request is not None
        answer = instance.ask(asked, self._tables.of(asked.request))
        call.why = answer.why
        if instance.observes and answer.choice is not None:
            self._latest = (own, instance, asked, answer.choice)
        return answer.choice

    def _observe(self, own: _Own) -> None:
        """Tells selectors of the calls that this rank has waited for: at the same place of every rank's program."""
        while own.waiting and own.waiting[0][-1].waited:
            instance, call, choice, _ = own.waiting.popleft()
            assert call.request is not None
            emulator = self._emulator()
            algorithm = emulator.with_knobs(call.request, choice.algorithm, choice.alone)
            compiled = emulator.compile_timed(call.request, algorithm)
            instance.observe(call, choice, compiled.latency_ps / 1000)

    def _selector(self, group: ProcessGroup, number: int) -> tuple[protocol.Selector | None, int]:
        """The selector of a group's call, and how many the group has had by then; None and 0 where ccl.yaml holds."""
        for key in (group, None):
            begun = [update for update in self._updates.get(key, ()) if update.begins(group) <= number]
            if begun:
                return begun[-1].selector, len(begun)
        return None, 0
