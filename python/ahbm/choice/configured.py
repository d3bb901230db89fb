"""The choice of the configuration: ccl.yaml, else the machine's library, else the packaged ccl.yaml."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ahbm.base.logs import INFO, log
from ahbm.base.quickest import quickest
from ahbm.base.request import Request
from ahbm.base.yaml_source import did_you_mean
from ahbm.config.ccl import CclConfig
from ahbm.config.rules import Place
from ahbm.core.choice import CONFIGURED, DEFAULT, Choice
from ahbm.core.compiled import Cost
from ahbm.core.emulator import Emulator
from ahbm.errors import AhbmError, ConfigError

COMPARED_PES = 1024
"""PEs of one group among which the quickest of several algorithms is found by simulating each."""
MODERATE_OPS = 1 << 27
"""Among more of them, the first of several algorithms is taken that makes no more `tl` calls than this."""
RIVAL_PES = 8192
"""Among no more PEs it is compared with those that make no more calls than..."""
FEW_OPS = 1 << 20
"""... these, and end within..."""
FEW_EVENTS = 1 << 23
"""... so many events of the simulation."""
KNOWN_CALLS = 4096
"""Kinds of calls whose choice is remembered."""


def candidates(emulator: Emulator, collective: str, nbytes: int, ranks: int) -> tuple[str, ...]:
    """The algorithms for `nbytes` bytes of one rank's tensor in a group of `ranks` ranks, of which the quickest runs.

    They are what the user's ccl.yaml says, else those of the machine's library, else the packaged ones.

    Raises as `CclConfig.candidates`, and ConfigError (AHBM-C194) for a library of algorithms that ccl.yaml does not
    name: a topology is data, and names no code.
    """
    ccl = emulator.ccl
    own = dict(emulator.machine.library).get(collective)
    if not own or ccl.is_own(collective):
        return ccl.candidates(collective, nbytes, ranks)
    if unknown := [name for name in own if name not in ccl.algorithms]:
        raise ConfigError(
            "AHBM-C194",
            f"the machine's library runs {unknown[0]} for {collective}, which ccl.yaml does not name",
            hint=did_you_mean(unknown[0], ccl.algorithms),
        )
    return tuple(own)


def likely(emulator: Emulator, collective: str, nbytes: int) -> str:
    """The first of the candidates for `nbytes` bytes of one rank's tensor among all ranks that knows the network: what
    is told of a call that cannot be made, or is not known yet. Raises as `candidates` and as loading an algorithm."""
    names = candidates(emulator, collective, nbytes, emulator.world_size)
    return _first_that_knows(emulator, names, emulator.machine.topology)[0]


class _Picked(NamedTuple):
    ranks: Sequence[int]
    name: str
    notes: tuple[str, ...]


class Configured:
    """Chooses by ccl.yaml without its selectors. Of several algorithms the one runs that is quickest alone."""

    name = "ccl.yaml"

    def __init__(self, emulator: Emulator, rules: CclConfig | None = None) -> None:
        """rules: a configuration that chooses in place of the emulator's and the machine's library."""
        self._emulator = emulator
        self._rules = rules
        self._known: dict[tuple[Request, tuple[str, ...]], list[_Picked]] = {}

    def choose(self, request: Request, place: Place | None = None) -> Choice:
        """See `Chooser`; it always chooses. Raises as `candidates`, and what loading algorithms raises."""
        emulator, name, world = self._emulator, request.collective, request.world_size
        nbytes = request.tiles * request.nbytes
        if self._rules is not None:
            picked = self._picked(request, self._rules.candidates(name, nbytes, world))
            return Choice(DEFAULT, picked.name, picked.notes)
        if place is not None and (rule := emulator.ccl.placed(name, request.nbytes, world, place)) is not None:
            return Choice(CONFIGURED, rule[1], written=rule[0])
        notes = emulator.ccl.of_other_ranks(name, nbytes, world)
        picked = self._picked(request, candidates(emulator, name, nbytes, world))
        by = CONFIGURED if emulator.ccl.is_own(name) else DEFAULT
        return Choice(by, picked.name, (*notes, *picked.notes))

    def _picked(self, request: Request, names: tuple[str, ...]) -> _Picked:
        """The best of the names for a request, or for one that is alike on ranks that the machine cannot tell from its
        own."""
        if len(names) == 1:
            return _Picked(request.ranks, names[0], ())
        key = (replace(request, ranks=range(request.world_size)), names)
        known, ranks = self._known.setdefault(key, []), list(request.ranks)
        anywhere = bool(known) and all(map(self._emulator.runs_anywhere, names))
        for picked in known:
            alike = picked.ranks == request.ranks
            if alike or (anywhere and self._emulator.machine.carries(list(picked.ranks), ranks)):
                return picked
        if len(self._known) > KNOWN_CALLS:
            self._known.clear()
        found = _Picked(request.ranks, *best(self._emulator, request, names))
        self._known.setdefault(key, []).append(found)
        return found


def best(emulator: Emulator, request: Request, names: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The quickest of the algorithms that know the network, simulated once per request, and a note that says so; the
    first of equals.

    Among more than `COMPARED_PES` PEs it is the first that makes at most `MODERATE_OPS` `tl` calls; among up to
    `RIVAL_PES` those are simulated besides that make at most `FEW_OPS` calls and take at most `FEW_EVENTS`. Where none
    can perform the request, it is the first that knows the network, whose error is then raised by who compiles it.
    """
    layout = emulator.layout(request, emulator.ccl.settings(names[0]).world_size)
    network = layout.network.topology
    known = [name for name in names if emulator.algorithm(name).supports(network)]
    if len(known) < 2 or not request.count:
        return _first_that_knows(emulator, names, network)
    ways = emulator.protocols(request, known)
    if ways:
        # The library has no protocol for the others at this size.
        known = [name for name in known if any(name in own for _, own in ways)]
        if len(known) == 1:
            return known[0], ()
    pes = request.world_size * (emulator.machine.cubes if request.placement is None else request.tiles)
    # What an algorithm takes by a protocol of its own is known when it has run.
    differ = any(len(own) < len(known) for _, own in ways)
    if pes <= COMPARED_PES or differ:
        return _simulated(emulator, request, known) or _first_that_knows(emulator, names, network)
    protocol = ways[0][0] if ways else None
    rivals: list[str] = []
    if pes <= RIVAL_PES:
        # Once it is compiled, anything is affordable; what cannot perform the request is, too, and is no rival.
        rivals = [name for name in known if emulator.affords(request, name, FEW_OPS, protocol)]
    first = next((name for name in known if emulator.affords(request, name, MODERATE_OPS, protocol)), known[0])
    rivals = [name for name in rivals if name != first and _is_short(emulator, request, name)]
    if rivals and (found := _simulated(emulator, request, [first, *rivals])) is not None:
        return found
    why = f"of {len(known)} the first, as none are compared among more than {RIVAL_PES} PEs"
    if pes <= RIVAL_PES:
        why = f"of {len(known)} the first, as no other is simulated with few calls and events"
    if before := known[: known.index(first)]:
        why = f"{' and '.join(before)} would make more than {MODERATE_OPS} tl calls"
    return first, (f"{first} runs: {why}",)


def _is_short(emulator: Emulator, request: Request, name: str) -> bool:
    try:
        return emulator.compile(request, name).ends_within(FEW_EVENTS)
    except AhbmError as error:
        log("emulator", INFO, "%s does not do: %s", name, error.message)
        return False


def _simulated(emulator: Emulator, request: Request, names: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    """The quickest, and a note that says so; None where none of them performs the request."""
    costs = {name: emulator.cost(request, name) for name in names}
    for name, cost in costs.items():
        message = f"takes {cost.ps / 1000:,.2f} ns" if isinstance(cost, Cost) else f"does not do: {cost.message}"
        log("emulator", INFO, "%s %s", name, message)
    times = {name: cost.ps for name, cost in costs.items() if isinstance(cost, Cost)}
    winner = quickest(times)
    if winner is None:
        return None
    note = f"{winner} runs: the quickest of {len(times)} that were simulated"
    log("emulator", INFO, "%s", note)
    return winner, (note,)


def _first_that_knows(emulator: Emulator, names: Sequence[str], network: str) -> tuple[str, tuple[str, ...]]:
    """The first of the names that knows the network, the first where none does; a note where it is another than the
    first."""
    for at, name in enumerate(names if len(names) > 1 else ()):
        if emulator.algorithm(name).supports(network):
            know = "does not know" if at == 1 else "do not know"
            note = f"{name} runs: {' and '.join(names[:at])} {know} the network {network}"
            return name, (note,) if at else ()
    return names[0], ()
