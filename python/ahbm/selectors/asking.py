"""One selector at work for one group, on one rank: asked, timed out, held to what an answer may be."""

from __future__ import annotations

import copy
import threading
import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ahbm.base.arguments import refused, shown
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.knobs import must_be
from ahbm.base.logs import INFO, log
from ahbm.base.request import Request
from ahbm.base.yaml_source import did_you_mean
from ahbm.config.rules import Named, Place
from ahbm.core.choice import SELECTOR, Candidates, Choice
from ahbm.errors import ConfigError, Finding, InterruptedRun, SelectorWarning
from ahbm.selectors.evidence import Fact, body, state, watched
from ahbm.selectors.patience import TooSlow, within
from ahbm.selectors.protocol import UNKNOWN, BaseSelector, Call, Comm, CostTable, Selector
from ahbm.selectors.why import Why, brief
from ahbm.source.switches import count_nodes

if TYPE_CHECKING:
    from ahbm.core.emulator import Emulator

PATIENCE_S = 10.0
"""Wall seconds that a selector may take for one choice; those that come with AHBM may take any."""
_TURN = threading.RLock()
"""Ranks that are threads share generators of random numbers: one at a time chooses, so that the state which is noted is
the one that it drew from. Who waits too long goes on without."""
KNOWN_TABLES = 1 << 12
"""Requests whose candidates are remembered."""


class Tables:
    """What selectors are told of requests on one emulator: cost tables before a selector has seen them, and nodes."""

    def __init__(self, emulator: Emulator) -> None:
        self.emulator = emulator
        self._known: dict[Request, CostTable] = {}
        self._nodes: dict[range | tuple[int, ...], int] = {}

    def nodes(self, ranks: range | tuple[int, ...]) -> int:
        """Nodes of the machine among which global ranks are."""
        found = self._nodes.get(ranks)
        if found is None:
            machine = self.emulator.machine
            # Ranks are PEs where they are more than the SIPs.
            each = machine.cubes * machine.pes if self.emulator.world_size > machine.sips else 1
            found = self._nodes[ranks] = count_nodes(machine, (rank // each for rank in ranks))
        return found

    def of(self, request: Request) -> CostTable:
        """A table to write into: without estimates, masked where an algorithm is known to refuse the request."""
        found = self._known.get(request)
        if found is None:
            reasons = self.emulator.refusals(request)
            names = tuple(Candidates(self.emulator, request.collective))
            found = CostTable(names, [UNKNOWN] * len(names))
            for name, reason in reasons.items():
                found.mask(name, reason)
            if len(self._known) >= KNOWN_TABLES:
                self._known.clear()
            self._known[request] = found
        return found.copy()


@dataclass(frozen=True, slots=True)
class Asked:
    """The answer to one question."""

    choice: Choice | None
    """None leaves the call to ccl.yaml."""
    why: Why

    @property
    def failure(self) -> Finding | None:
        """Why the selector could not answer."""
        return self.why.failure


class Instance:
    """A selector of its own for one group on one rank."""

    def __init__(self, selector: Selector, comm: Comm, updates: int = 0) -> None:
        """updates: how many selectors the group has had, this one included. Raises ConfigError (AHBM-C129) for a
        selector that cannot be copied."""
        # Ranks that are threads pass one object: what one learns is not for the others.
        try:
            self._selector = copy.deepcopy(selector)
        except Exception as error:
            raise refused("selector", f"one that copy.deepcopy copies ({error}), for every rank", selector) from error
        self.name = name_of(self._selector)
        self._comm = comm
        self._updates = updates
        known = self._selector
        self._fingerprint = known.fingerprint if isinstance(known, BaseSelector) and known.pure else None
        self._body = None if self._fingerprint is not None else body(self._selector)
        self._started = False
        self._broken: Exception | None = None
        own = type(self._selector)
        self.observes = own.observe is not BaseSelector.observe
        """Whether it wants to know what calls took."""
        self._sizes_chunks = own.get_chunk_size is not BaseSelector.get_chunk_size

    def ask(self, call: Call, table: CostTable) -> Asked:
        """The selector's answer. What it raises, and what takes too long, is a failure.

        Raises ConfigError (AHBM-C180) for an answer that is neither an algorithm of the table nor an algorithm.
        """
        facts: list[Fact] = [("update", self._updates)]
        if self._fingerprint is not None:
            facts.append(("table", self._fingerprint))
        try:
            if self._fingerprint is not None:
                answer = self._answer(call, table)
            else:
                facts += state(self._selector)
                seen: list[Fact] = []
                ask = partial(self._answer, call, table)
                held = _TURN.acquire(timeout=PATIENCE_S)
                try:
                    answer = within(PATIENCE_S, lambda: watched(ask, self._body, seen))
                finally:
                    if held:
                        _TURN.release()
                    facts += seen
        except InterruptedRun:
            raise
        except (Exception, TooSlow) as error:
            slow = isinstance(error, TooSlow)
            what = f"takes more than {PATIENCE_S:g} s" if slow else f"raised {type(error).__name__}: {error}"
            finding = Finding(
                "AHBM-X112",
                f"the selector {self.name} {what}",
                hint="a selector must answer, or answer None, which leaves the call to ccl.yaml",
            )
            return Asked(None, Why(self.name, call, table, tuple(facts), finding, error))
        why = Why(self.name, call, table, tuple(facts))
        choice = as_choice(answer, table, call.collective, self.name)
        if choice is None:
            return Asked(None, why)
        return Asked(replace(choice, why=why), why)

    def observe(self, call: Call, choice: Choice, time_ns: float) -> None:
        """Tells the selector what a call took; what it raises is a failure of its next answer."""
        try:
            self._selector.observe(call, choice, time_ns)
        except Exception as error:
            self._broken = error

    def close(self) -> None:
        """No call follows."""
        if self._started:
            self._started = False
            self._selector.finalize()

    def _answer(self, call: Call, table: CostTable) -> Any:
        if self._broken is not None:
            raise self._broken
        selector = self._selector
        if not self._started:
            selector.init(self._comm)
            self._started = True
        answer: Any = selector.get_coll_info(call, table)
        if answer is None and (best := table.best()) is not None:
            answer = best
        if self._sizes_chunks and isinstance(answer, Choice) and answer.chunk_bytes is None:
            answer = replace(answer, chunk_bytes=selector.get_chunk_size(call, answer))
        return answer


class Solo:
    """A selector for calls that no rank makes, because one run stands for all: an instance for each group."""

    def __init__(self, emulator: Emulator, selector: Selector, tables: Tables | None = None) -> None:
        self.name = name_of(selector)
        self._emulator = emulator
        self._selector = selector
        self._tables = tables or Tables(emulator)
        self._instances: dict[tuple[str, int], Instance] = {}
        self._numbers: dict[str, int] = {}

    def choice(self, request: Request, group: str = "") -> Choice | None:
        """The choice for a group's next call; None where the selector leaves it to ccl.yaml, and where it fails, of
        which a SelectorWarning (AHBM-X112) tells. Raises ConfigError (AHBM-C180) for its answer."""
        number = self._numbers.get(group, 0)
        self._numbers[group] = number + 1
        nodes = self._tables.nodes(request.ranks)
        instance = self._instances.get((group, request.world_size))
        if instance is None:
            comm = Comm(request.world_size, nodes, group, self._emulator)
            instance = self._instances[group, request.world_size] = Instance(self._selector, comm)
        asked = instance.ask(Call.of(request, nodes, group, number), self._tables.of(request))
        if asked.failure is not None:
            text = f"{asked.failure.code} {request.collective}: {asked.failure.message}; ccl.yaml chooses"
            warnings.warn(SelectorWarning(text), stacklevel=2)
        if asked.choice is None:
            return None
        note = brief(asked.choice)
        log("selectors", INFO, "%s", note)
        return replace(asked.choice, notes=(note,))

    def choose(self, request: Request, place: Place | None = None) -> Choice | None:
        """As `choice`, for a call of the group of a place; of calls that two ranks make it chooses nothing."""
        paired = request.collective in COLLECTIVES and request.kind.paired
        return None if paired else self.choice(request, "" if place is None else place.group)


class ConfiguredSelectors:
    """The selectors that an emulator's ccl.yaml names, for calls that no rank makes."""

    name = "selectors of ccl.yaml"

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self._tables = Tables(emulator)
        self._loaded: dict[Named, Selector] = {}
        self._solos: dict[Named, Solo] = {}
        self._known: dict[Request, Choice | None] = {}
        self.asked = set[str]()
        """Where those that were asked are written."""

    def choose(self, request: Request, place: Place | None = None) -> Choice | None:
        """The choice for a call, in a job if it has a `place`; None where ccl.yaml names no selector for it. A call
        outside of jobs is the first of its group, however often it is asked for. Raises ConfigError: AHBM-C181 for a
        selector that cannot be loaded, and as `Solo.choice`."""
        if place is not None:
            return self._choice(request, place)
        if request not in self._known:
            if len(self._known) >= KNOWN_TABLES:
                self._known.clear()
            self._solos.clear()
            self._known[request] = self._choice(request, None)
        return self._known[request]

    def _choice(self, request: Request, place: Place | None) -> Choice | None:
        from ahbm.selectors.loading import load

        named = self._emulator.ccl.selector(request.collective, request.nbytes, request.world_size, place)
        if named is None or (request.collective in COLLECTIVES and request.kind.paired):
            return None
        self.asked.add(named.place)
        if named not in self._solos:
            if named not in self._loaded:
                self._loaded[named] = load(named)
            self._solos[named] = Solo(self._emulator, self._loaded[named], self._tables)
        choice = self._solos[named].choose(request, place)
        return None if choice is None else replace(choice, written=named.place)


def name_of(selector: object) -> str:
    """What reports call a selector."""
    given = getattr(selector, "name", "")
    return given if isinstance(given, str) and given else type(selector).__name__


def as_choice(answer: Any, table: CostTable, collective: str, selector: str = "") -> Choice | None:
    """A selector's answer as a choice. Raises ConfigError (AHBM-C180)."""
    from ahbm.source.algorithm import is_algorithm

    if answer is None:
        return None
    chosen: Any = answer.algorithm if isinstance(answer, Choice) else answer
    if isinstance(chosen, str):
        if chosen not in table.algorithms:
            raise ConfigError(
                "AHBM-C180",
                f"the selector chose {chosen!r}, which is no configured algorithm of {collective}",
                hint=did_you_mean(chosen, table.algorithms),
            )
    elif not is_algorithm(chosen):
        raise ConfigError(
            "AHBM-C180",
            f"the selector for {collective} chose {shown(chosen)}, which is no algorithm",
            hint="return a name, an algorithm, a Choice or None",
        )
    if not isinstance(answer, Choice):
        return Choice(SELECTOR, chosen)
    for name, value in answer.knobs.items():
        if (wanted := must_be(name, value)) is not None:
            message = f"the selector for {collective} chose {name} {shown(value)}, which must be {wanted}"
            raise ConfigError("AHBM-C180", message)
    return answer
