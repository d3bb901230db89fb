"""From requests to results and time: capture once, simulate once, replay the data of every call."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ahbm._core import Machine, Plan
from ahbm.base import layout as layouts
from ahbm.base.arguments import checked, refused
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.layout import Layout
from ahbm.base.logs import DEBUG, INFO, log
from ahbm.base.request import Request
from ahbm.base.yaml_source import did_you_mean
from ahbm.config.ccl import CclConfig, split_overrides
from ahbm.config.protocols import Protocol, chosen, forced, spoken_with, striped, usable
from ahbm.config.settings import Settings
from ahbm.config.topology import load_machine
from ahbm.core import library
from ahbm.core.buffers import check_buffers, check_request
from ahbm.core.compiled import Compiled, Cost, Refusal, Spares
from ahbm.core.fitting import fitting
from ahbm.core.least import least
from ahbm.core.limits import Bound, Limits, Stripes
from ahbm.core.lowerings import Lowerings
from ahbm.core.selection import Choice
from ahbm.core.turned import TurnedAlgorithm, turned
from ahbm.errors import AhbmError, ConfigError, DataError, UnsupportedError
from ahbm.source.algorithm import PADDED, Algorithm, AlgorithmLoader, Lowered, listed
from ahbm.source.module import ModuleAlgorithm, needs_switch

CACHED_OPS = 50_000_000
"""Operations in the programs that an emulator keeps; the least recently used ones go first."""
CACHED_CALLS = 4096
"""Requests whose program an emulator finds at once."""
COMPARED_PES = 1024
"""PEs of one group among which the quickest of several algorithms is found by simulating each."""
MODERATE_OPS = 1 << 27
"""Among more of them, the first of several algorithms runs that takes no more operations than this."""
SPOKEN = 256
"""Machines that an emulator keeps for its protocols: each has the programs of the sizes that find it."""
TOO_MANY_CALLS = "AHBM-B126"

_LISTING = threading.RLock()
"""Modules are parsed for a list: two threads of CPython 3.11 must not do so at once."""


class Emulator:
    """A machine and a configuration, ready to run collectives. Thread-safe; keeps what it has compiled."""

    @checked
    def __init__(self, machine: Machine, ccl: CclConfig, lowerings: Lowerings | None = None) -> None:
        """lowerings: where programs are kept for machines of the same shape; None keeps none."""
        self.machine = machine
        self.ccl = ccl
        self._loader = AlgorithmLoader()
        self._lowerings = lowerings
        self._lock = threading.RLock()
        self._compiled: OrderedDict[tuple[Request, Settings], Compiled] = OrderedDict()
        self._kept_ops = 0
        """Operations in the programs of `_compiled`."""
        self._moderate: dict[tuple[Request, Settings], bool] = {}
        self._known: dict[tuple[Request, str | Algorithm | None, bool], Compiled] = {}
        self._spares = Spares()
        self._protocol = chosen(machine)
        self._spoken: OrderedDict[tuple[tuple[str, str], ...], Emulator] = OrderedDict()
        """By their overrides, the machines that calls of some size find with a protocol."""
        self.is_spoken = False
        """Whether the machine is one of those."""
        self._turned: dict[tuple[Choice, int, int], TurnedAlgorithm] = {}
        self._selectors: Any = None
        """Those that ccl.yaml names, once one is asked."""
        self._listed: dict[str, tuple[str, ...]] = {}
        """The collectives of every configured algorithm."""
        self.limits = Limits(machine)
        self.stripes = Stripes(machine, self.limits)

    @staticmethod
    @checked
    def load(
        topology: str | Path | Machine | None = None,
        ccl: str | Path | None = None,
        overrides: Mapping[str, object] | None = None,
    ) -> Emulator:
        """Finds topology and ccl.yaml (see `load_machine`, `CclConfig.load`) and applies dotted overrides to both.

        Raises TopologyError, ConfigError, UnsupportedError.
        """
        for_topology, for_ccl = split_overrides(overrides)
        return Emulator(load_machine(topology, for_topology), CclConfig.load(ccl, for_ccl))

    def on(self, machine: Machine) -> Emulator:
        """The same configuration, with the algorithms that are loaded already, on another machine."""
        other = Emulator(machine, self.ccl, self._lowerings)
        other._loader = self._loader
        return other

    @property
    def world_size(self) -> int:
        """Number of ranks: `world_size` of the default algorithm's entry, else of the defaults, else all SIPs."""
        return self.settings().world_size or self.machine.sips

    @checked
    def settings(self, algorithm: str | Algorithm | None = None) -> Settings:
        """The settings that `algorithm` (default: the configured one) runs with."""
        if algorithm is None or isinstance(algorithm, str):
            return self.ccl.settings(algorithm or self.ccl.default_algorithm)
        if isinstance(algorithm, TurnedAlgorithm):
            return replace(algorithm.settings, options=algorithm.identity)
        return self.ccl.unnamed(algorithm.name, "plan" if algorithm.is_plan else "module", algorithm.identity)

    @checked
    def algorithm(self, name: str | Algorithm) -> Algorithm:
        """The algorithm `name`. Raises what loading an entry of its kind raises."""
        return self._loader.load(self.ccl.settings(name)) if isinstance(name, str) else name

    @checked
    def choice(self, collective: str, nbytes: int) -> str:
        """The algorithm that runs `nbytes` bytes of one rank's tensor among all ranks.

        Raises ConfigError as `CclConfig.candidates` and as loading an algorithm.
        """
        candidates = self.candidates(collective, nbytes, self.world_size)
        return self._choose(candidates, self.machine.topology)[0].algorithm

    @checked
    def candidates(self, collective: str, nbytes: int, ranks: int) -> tuple[str, ...]:
        """The algorithms for `nbytes` bytes of one rank's tensor among `ranks` ranks. As `library.candidates`."""
        return library.candidates(self.machine, self.ccl, collective, nbytes, ranks)

    @checked
    def runs_anywhere(self, compiled: Compiled) -> bool:
        """Whether the program of `compiled` is that of any other group of as many ranks, but for their places."""
        if not isinstance(compiled, Compiled):
            raise refused("compiled", "a Compiled", compiled)
        legacy = (self.settings(compiled.by).world_size or self.world_size) > self.machine.sips
        return not legacy and bool(getattr(self.algorithm(compiled.by), "anywhere", False))

    @checked
    def algorithms(self, collective: str) -> list[str]:
        """Names of the configured algorithms that compute `collective`, sorted; without those for a switch that reduces
        where no switch of the machine does. Raises as `algorithm`."""
        with _LISTING:
            if not self._listed:
                # A script says what it computes only when it has run.
                self._listed = {
                    name: listed(settings)[0] or self._loader.load(settings).collectives
                    for name in self.ccl.algorithms
                    for settings in [self.ccl.settings(name)]
                    if self.machine.reduces([0]) or not needs_switch(settings)
                }
            return [name for name, collectives in self._listed.items() if collective in collectives]

    @checked
    def default(self, request: Request) -> str:
        """The algorithm of a request where no ccl.yaml but the packaged one is asked."""
        candidates = CclConfig.packaged().candidates(
            request.collective, request.tiles * request.nbytes, request.world_size
        )
        layout = self._layout(request, self.world_size)
        return self._quickest(request, candidates, layout)[0].algorithm

    @checked
    def unselected(self, request: Request) -> str:
        """The algorithm of a request by ccl.yaml without its selectors. Raises as `CclConfig.candidates`."""
        nbytes = request.tiles * request.nbytes
        candidates = self.candidates(request.collective, nbytes, request.world_size)
        layout = self._layout(request, self.ccl.settings(candidates[0]).world_size or self.world_size)
        return self._quickest(request, candidates, layout)[0].algorithm

    @checked
    def selected(self, request: Request) -> Choice | None:
        """The choice of the selector that ccl.yaml names for a request; None where it names none, and where that leaves
        the request to ccl.yaml. Raises what loading and asking it raises."""
        if not self.ccl.has_selectors:
            return None
        with self._lock:
            if self._selectors is None:
                # Selectors emulate, so they stand on a higher floor; they are looked up by name.
                self._selectors = import_module("ahbm.selectors.asking").ConfiguredSelectors(self)
        choice: Choice | None = self._selectors.first(request)
        return choice

    @checked
    def by_choice(self, request: Request, choice: Choice) -> str | Algorithm:
        """The algorithm of a choice for a request, under its knobs. Raises as loading it, and ConfigError (AHBM-C192,
        C210) for a protocol that the machine's library does not have for such a call."""
        if not choice.knobs:
            return choice.algorithm
        nbytes = request.tiles * request.nbytes
        key = (choice, nbytes, request.world_size)
        if key not in self._turned:
            if len(self._turned) >= CACHED_CALLS:
                self._turned.clear()
            algorithm, settings = self.algorithm(choice.algorithm), self.settings(choice.algorithm)
            self._turned[key] = turned(choice, algorithm, settings, self.machine, nbytes, request.world_size)
        return self._turned[key]

    @checked
    def network(self, request: Request) -> str:
        """Name of the network between the ranks of a request, as algorithms see it."""
        return self._layout(request, self.world_size).network.topology

    @checked
    def refusals(self, request: Request) -> dict[str, str]:
        """Why configured algorithms of a request's collective cannot perform it, by name, as far as that is known
        before they are compiled."""
        network = self.network(request)
        found = {}
        for name in self.algorithms(request.collective):
            try:
                algorithm = self.algorithm(name)
                if not algorithm.supports(network):
                    found[name] = f"does not know the network {network}"
                    continue
                self._check(algorithm, request)
            except AhbmError as error:
                found[name] = error.message
        return found

    def compile(self, request: Request, algorithm: str | Algorithm | None = None) -> Compiled:
        """The program of a request, by `algorithm` (default: the one that ccl.yaml, or a selector that it names,
        chooses); needs no arrays.

        `algorithm`: a name, or an algorithm that ccl.yaml does not name, such as a plan in memory.

        Raises ConfigError, DataError (AHBM-V101) for tiles that do not fit the placement, UnsupportedError (AHBM-U233
        for an algorithm that says how many bytes travel and not which), KernelError, LintError, BudgetError.
        """
        found = self.compile_timed(request, algorithm)
        if found.timed:
            raise UnsupportedError(
                "AHBM-U233",
                f"only the time of {found.algorithm} is known: there is no data to run it on",
                hint="it performs calls of jobs, which run for their time; ahbm run FILE does so alone",
            )
        return found

    def compile_timed(
        self, request: Request, algorithm: str | Algorithm | None = None, *, compare: bool = True
    ) -> Compiled:
        """As `compile`, of which only the time is asked for: the algorithm need not say which bytes travel. Without
        `compare`, the first algorithm of a list that knows the network runs, not the quickest."""
        key = (request, algorithm, compare)
        try:
            known = self._known.get(key)
        except TypeError as error:
            raise refused("request", "a Request", request) from error
        if known is None:
            known = self._compile(request, algorithm, compare)
            if len(self._known) >= CACHED_CALLS:
                self._known.clear()
            self._known[key] = known
        return known

    @checked
    def cost(self, request: Request, algorithm: str | Algorithm | None = None) -> Cost | Refusal:
        """The cost of a request, or the reason why it cannot be performed; needs no arrays and raises no AhbmError."""
        try:
            compiled = self.compile(request, algorithm)
            return Cost(
                compiled.algorithm,
                compiled.latency_ps,
                compiled.messages,
                compiled.bytes,
                self.bound(request, compiled),
                compiled.notes,
            )
        except AhbmError as error:
            return Refusal(error.findings)

    @checked
    def plan(
        self, request: Request, algorithm: str | Algorithm | None = None, limits: Sequence[tuple[str, int]] = ()
    ) -> Plan:
        """The plan that states what `algorithm` (default: the one that ccl.yaml chooses) does for a request, in chunks.

        limits: as in `ahbm.config.reading.Reading`. Raises UnsupportedError (AHBM-U294) for a kernel that no plan can
        express, BudgetError, and as `compile`.
        """
        chosen = algorithm or self.compile_timed(request).by
        found = self.algorithm(chosen)
        self._check(found, request)
        return found.plan(self.machine, request, self.settings(chosen), limits)

    @checked
    def bound(self, request: Request, compiled: Compiled | None = None) -> Bound:
        """The least time that any algorithm could take for a request, behind the launch, with the quickest protocol for
        its size; with `compiled`, any that has its PEs and moves its data as that does: in messages alone, or not."""
        algorithm = None if compiled is None else compiled.by
        if (self.settings(algorithm).world_size or self.world_size) > self.machine.sips:
            return Bound.known(None, f"no bound is known for {request.world_size} ranks that are PEs", False)
        return self.least(request, request.ranks, compiled).after(self.machine.launch_ps)

    @checked
    def least(self, request: Request, sips: Sequence[int], compiled: Compiled | None = None) -> Bound:
        """As `bound`, without the launch, and for a request that runs on `sips`, its ranks in order."""
        return least(self, request, sips, compiled)

    @checked
    def perform(
        self,
        request: Request,
        buffers: Sequence[NDArray[Any]],
        algorithm: str | Algorithm | None = None,
        *,
        verify: Callable[[Compiled], object] | None = None,
    ) -> Compiled:
        """Performs a request in place on `buffers` and returns what it ran.

        `buffers[i]` belongs to group rank i: contiguous, writable, of `request.shape`, in the collective's in-place
        layout (`ahbm.base.collectives`). `verify` is called before the first data of a program move; its errors are
        raised, and the program stays unverified.

        Raises as `compile`, DeadlockError, and DataError (AHBM-V101) for unfit buffers.
        """
        compiled = self.compile(request, algorithm)
        check_buffers(request, buffers)
        if verify is not None:
            compiled.verify_once(verify)
        timeline = compiled.timeline(record=True)
        if timeline is None or compiled.program is None:
            return compiled
        recipe = compiled.recipe(timeline)
        if recipe is None or not recipe.run(buffers):
            memory = self._spares.take(compiled, compiled.program)
            memory.run(timeline, buffers, compiled.operands, compiled.results)
            self._spares.put(compiled, memory)
        return compiled

    def is_known(self, request: Request, algorithm: str | Algorithm | None = None) -> bool:
        """Whether `perform` has only data to move."""
        try:
            known = self._known.get((request, algorithm, True))
        except TypeError as error:
            raise refused("request", "a Request", request) from error
        return known is not None and known.is_recorded

    def forget_programs(self) -> None:
        """Lets all programs go: who measures many requests once each needs none of them again."""
        with self._lock:
            self._compiled.clear()
            self._known.clear()
            self._moderate.clear()
            self._kept_ops = 0
            for spoken in self._spoken.values():
                spoken.forget_programs()

    def forget_timelines(self) -> None:
        """Lets all timelines go: the next run of every program simulates it again."""
        for compiled in self._compiled.values():
            compiled.forget()
        for spoken in self._spoken.values():
            spoken.forget_timelines()

    @checked
    def _compile(self, request: Request, algorithm: str | Algorithm | None, compare: bool) -> Compiled:
        name = request.collective
        if name not in COLLECTIVES:
            raise ConfigError("AHBM-C105", f"unknown collective {name!r}", hint=did_you_mean(name, COLLECTIVES))
        nbytes = request.tiles * request.nbytes
        notes = self.ccl.of_other_ranks(name, nbytes, request.world_size) if algorithm is None else ()
        if algorithm is None and (selected := self.selected(request)) is not None:
            notes = (*notes, import_module("ahbm.selectors.why").brief(selected))
            algorithm = self.by_choice(request, selected)
        named = algorithm.protocol if isinstance(algorithm, TurnedAlgorithm) else ""
        if not named and not self.is_spoken and (protocols := usable(self.machine, nbytes, request.world_size)):
            best = self._spoken_best(protocols, request, algorithm, compare)
            return replace(best, notes=(*notes, *best.notes)) if notes else best
        given = None if algorithm is None or isinstance(algorithm, str) else algorithm
        if given is not None:
            candidates: tuple[str, ...] = (given.name,)
            settings = self.settings(given)
        else:
            candidates = (str(algorithm),) if algorithm else self.candidates(name, nbytes, request.world_size)
            settings = self.ccl.settings(candidates[0])
        world = settings.world_size or self.world_size
        layouts.check_ranks(self.machine, request.ranks, world)
        check_request(request)
        layout = self._layout(request, world)
        if given is not None:
            found: Algorithm = given
        else:
            choose = self._quickest if compare else self._first
            settings, told = choose(request, candidates, layout)
            notes = (*notes, *told)
            found = self._loader.load(settings)
        self._check(found, request)
        if not layout.count:
            return Compiled(request, settings.algorithm, notes=notes, given=given)
        if self._protocol is not None:
            settings = self._protocol.applied(settings)
        key = (request, settings)
        with self._lock:
            if key not in self._compiled:
                log("emulator", INFO, "%s of %d B is compiled by %s", name, nbytes, settings.algorithm)
                self._compiled[key] = self._lower(request, found, settings, layout)
                self._compiled[key].given = given
                self._compiled[key].protocol = named
                self._kept_ops += self._compiled[key].ops
                for note in (*notes, *self._compiled[key].notes):
                    log("emulator", INFO, "%s", note)
            else:
                log("emulator", DEBUG, "%s of %d B by %s is compiled already", name, nbytes, settings.algorithm)
            self._compiled.move_to_end(key)
            while len(self._compiled) > 1 and self._kept_ops > CACHED_OPS:
                self._kept_ops -= self._compiled.popitem(last=False)[1].ops
                self._known.clear()
            compiled = self._compiled[key]
            # The same program and timelines, whoever chose the algorithm.
            return replace(compiled, notes=(*notes, *compiled.notes)) if notes else compiled

    def _spoken_best(
        self,
        protocols: Sequence[Protocol],
        request: Request,
        algorithm: str | Algorithm | None,
        compare: bool,
    ) -> Compiled:
        """The quickest of the protocols for a request; raises the error of the first where none runs it."""
        best: tuple[int, Protocol, Compiled] | None = None
        refused: AhbmError | None = None
        nbytes = request.tiles * request.nbytes
        if algorithm is None:
            names = self.candidates(request.collective, nbytes, request.world_size)
        else:
            names = (algorithm if isinstance(algorithm, str) else algorithm.name,)
        said = {name: self._said(name if algorithm is None else algorithm) for name in names}
        free = [name for name in names if said[name] is None]
        pairs = spoken_with(self.machine, protocols, free, self.ccl.algorithms) if free else []
        ways = [(protocol, way) for protocol, own in pairs for way in ([algorithm] if len(own) == len(names) else own)]
        for name, protocol_name in said.items():
            if protocol_name is not None:
                ways.append((forced(self.machine, protocol_name, nbytes, request.world_size), algorithm or name))
        for protocol, way in ways:
            try:
                found = self.speaking(protocol, nbytes).compile_timed(request, way, compare=compare)
            except AhbmError as error:
                refused = refused or error
                continue
            if best is None or found.latency_ps < best[0]:
                best = found.latency_ps, protocol, found
        if best is None:
            assert refused is not None, "there is a protocol, so one of them was tried"
            raise refused
        _, protocol, found = best
        tried = len({protocol.name for protocol, _ in ways})
        note = f"protocol {protocol.name}" + (f", the quickest of {tried}" if tried > 1 else "")
        return replace(found, protocol=protocol.name, notes=(*found.notes, note))

    def _said(self, algorithm: str | Algorithm) -> str | None:
        """The protocol that a plan asks for; None for no plan."""
        if isinstance(algorithm, str) and self.ccl.settings(algorithm).kind != "plan":
            return None
        return library.stated_protocol(self.algorithm(algorithm))

    @checked
    def speaking(self, protocol: Protocol, nbytes: int) -> Emulator:
        """The emulator on the machine that calls of `nbytes` bytes of one rank's array find with a protocol."""
        key = protocol.on(nbytes)
        with self._lock:
            if key not in self._spoken:
                self._spoken[key] = self.on(self.machine.for_calls(key, nbytes))
                self._spoken[key].is_spoken = True
                while len(self._spoken) > SPOKEN:
                    self._spoken.popitem(last=False)
            self._spoken.move_to_end(key)
            return self._spoken[key]

    def _lower(self, request: Request, algorithm: Algorithm, settings: Settings, layout: Layout) -> Compiled:
        wanted = request if getattr(algorithm, "takes_shares", False) else request.padded()
        machine = self._machine_of(wanted, algorithm)

        def make() -> tuple[Lowered, str]:
            return fitting(machine, settings, lambda chosen: algorithm.lower(machine, wanted, layout, chosen))

        if self._lowerings is None or not getattr(algorithm, "by_shape", False):
            lowered, note = make()
        else:
            lowered, note = self._lowerings.lowered(machine, (wanted, settings, algorithm.identity), make)
        return Compiled(
            request,
            settings.algorithm,
            lowered.program,
            lowered.operands,
            lowered.results,
            settings.event_budget,
            lowered.covered,
            lowered.timed,
            tuple(filter(None, (lowered.note, note, "" if wanted is request else PADDED))),
        )

    def _machine_of(self, request: Request, algorithm: Algorithm) -> Machine:
        """The machine as messages of a request by an algorithm find it: with their network interfaces."""
        more = striped(self.machine, request.ranks, request.collective, algorithm.is_plan, request.shares)
        return self.stripes.on(more)[0]

    def _quickest(self, request: Request, names: Sequence[str], layout: Layout) -> tuple[Settings, tuple[str, ...]]:
        """The settings of the quickest of the `names` that know the network, simulated once per request; the first
        of equals. As `_first` for more than `COMPARED_PES` PEs, and where none can perform the request."""
        known = self._known_of(names, layout.network.topology)
        if len(known) < 2 or _pes(request, self.machine) > COMPARED_PES or not request.count:
            return self._first(request, names, layout)
        costs = {name: self.cost(request, name) for name in known}
        times = {name: cost.ps for name, cost in costs.items() if isinstance(cost, Cost)}
        if not times:
            return self._first(request, names, layout)
        best = min(times, key=lambda name: times[name])
        for name, cost in costs.items():
            told = f"takes {cost.ps / 1000:,.2f} ns" if isinstance(cost, Cost) else f"does not do: {cost.message}"
            log("emulator", INFO, "%s %s", name, told)
        note = f"{best} runs: the quickest of {len(times)} that were simulated"
        log("emulator", INFO, "%s", note)
        return self.ccl.settings(best), (note,)

    def _first(self, request: Request, candidates: Sequence[str], layout: Layout) -> tuple[Settings, tuple[str, ...]]:
        """As `_choose`; among more than `COMPARED_PES` PEs without those that take more than `MODERATE_OPS`, and with a
        note."""
        if len(candidates) < 2 or _pes(request, self.machine) <= COMPARED_PES or not request.count:
            return self._choose(candidates, layout.network.topology)
        known = self._known_of(candidates, layout.network.topology)
        if len(known) < 2:
            return self._choose(candidates, layout.network.topology)
        at = next((at for at, name in enumerate(known) if self._is_moderate(request, name, layout)), 0)
        why = f"of {len(known)} the first, as none are compared among more than {COMPARED_PES} PEs"
        if at:
            why = f"{' and '.join(known[:at])} would make more than {MODERATE_OPS} tl calls"
        return self.ccl.settings(known[at]), (f"{known[at]} runs: {why}",)

    def _check(self, algorithm: Algorithm, request: Request) -> None:
        """Raises what the algorithm finds wrong with the request, or with the request on the machine."""
        algorithm.check(request)
        if isinstance(algorithm, ModuleAlgorithm):
            algorithm.check_machine(self.machine, request)

    def _known_of(self, candidates: Sequence[str], network: str) -> list[str]:
        return [name for name in candidates if self._loader.load(self.ccl.settings(name)).supports(network)]

    def _is_moderate(self, request: Request, name: str, layout: Layout) -> bool:
        """Whether an algorithm performs the request in at most `MODERATE_OPS` operations, found once; then it is
        compiled. What fails otherwise is moderate: whoever compiles it raises the error."""
        settings = self.ccl.settings(name)
        key = (request, settings)
        with self._lock:
            if key not in self._moderate:
                self._moderate[key] = True
                try:
                    algorithm = self._loader.load(settings)
                    self._check(algorithm, request)
                    if layout.count and key not in self._compiled:
                        within = replace(settings, all_ops=MODERATE_OPS)
                        self._compiled[key] = self._lower(request, algorithm, within, layout)
                        self._kept_ops += self._compiled[key].ops
                except AhbmError as error:
                    log("emulator", INFO, "%s does not do: %s", name, error.message)
                    self._moderate[key] = error.code != TOO_MANY_CALLS
            return self._moderate[key]

    def _choose(self, candidates: Sequence[str], network: str) -> tuple[Settings, tuple[str, ...]]:
        """The settings of the first of the `candidates` that knows the network, the first where none does; a note where
        it is another than the first."""
        for name in candidates if len(candidates) > 1 else ():
            settings = self.ccl.settings(name)
            if self._loader.load(settings).supports(network):
                passed = candidates[: candidates.index(name)]
                know = "does not know" if len(passed) == 1 else "do not know"
                note = f"{name} runs: {' and '.join(passed)} {know} the network {network}"
                return settings, (note,) if passed else ()
        return self.ccl.settings(candidates[0]), ()

    def _layout(self, request: Request, world: int) -> Layout:
        legacy = world > self.machine.sips
        if request.placement is not None:
            if legacy or request.collective != "all_reduce":
                what = "the legacy mode" if legacy else request.collective
                raise UnsupportedError(
                    "AHBM-U111",
                    f"{what} does not work on device tensors",
                    hint="use host arrays (no --device, no placement), or all_reduce with a rank per SIP",
                )
            cubes = request.placement.cubes(self.machine.cubes)
            if request.tiles != cubes:
                raise DataError(
                    "AHBM-V101", f"a tensor of {request.tiles} tiles does not fit {request.placement}: it has {cubes}"
                )
            return layouts.tiles(self.machine, request.ranks, cubes, request.count)
        arrange = layouts.flat if legacy else layouts.lanes
        return arrange(self.machine, request.ranks, request.chunks, request.count)


def _pes(request: Request, machine: Machine) -> int:
    return request.world_size * (machine.cubes if request.placement is None else request.tiles)
