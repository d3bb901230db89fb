"""From requests to results and time: capture once, simulate once, replay the data of every call."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ahbm._core import Machine, Plan, Protocol
from ahbm.base import layout as layouts
from ahbm.base.arguments import checked, refused
from ahbm.base.collectives import require_collective
from ahbm.base.knobs import Knobs
from ahbm.base.layout import Layout
from ahbm.base.logs import DEBUG, INFO, log
from ahbm.base.quickest import quickest
from ahbm.base.request import Request
from ahbm.config.ccl import CclConfig, split_overrides
from ahbm.config.protocols import CallCosts, applied, chosen, crossing, forced, usable, used_with
from ahbm.config.settings import Settings
from ahbm.config.topology import load_machine
from ahbm.core.buffers import check_buffers, check_request
from ahbm.core.compiled import Compiled, Cost, Refusal, Spares
from ahbm.core.fitting import fitting
from ahbm.core.least import least
from ahbm.core.limits import Bound, Limits
from ahbm.core.lowerings import Lowerings
from ahbm.core.with_knobs import WithKnobs, with_knobs
from ahbm.errors import AhbmError, DataError, UnsupportedError
from ahbm.source.algorithm import PADDED, Algorithm, AlgorithmLoader, Lowered, listed, stated_protocol
from ahbm.source.module import ModuleAlgorithm, needs_switch

CACHED_OPS = 50_000_000
"""Operations in the programs that an emulator keeps; the least recently used ones go first."""
CACHED_CALLS = 4096
"""Requests whose program an emulator finds at once."""
PRICED = 256
"""Costs of calls for which an emulator keeps the machine and its bounds."""
TOO_MANY_CALLS = "AHBM-B126"

_Key = tuple[Request, Settings, str]
"""With the name of the protocol, "" for none to choose."""
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
        self._compiled: OrderedDict[_Key, Compiled] = OrderedDict()
        self._kept_ops = 0
        """Operations in the programs of `_compiled`."""
        self._affordable: dict[tuple[_Key, int], bool] = {}
        self._known: dict[tuple[Request, str | Algorithm], Compiled] = {}
        self._spares = Spares()
        self._protocol = chosen(machine)
        self._priced: OrderedDict[CallCosts, tuple[Machine, Limits]] = OrderedDict()
        self._with_knobs: dict[tuple[str | Algorithm, Knobs, int, int], WithKnobs] = {}
        self.kept: dict[str, object] = {}
        """What other rooms remember of this emulator, by their own names."""
        self._listed: dict[str, tuple[str, ...]] = {}
        """The collectives of every configured algorithm."""
        self.limits = Limits(machine)

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
        if isinstance(algorithm, WithKnobs):
            return replace(algorithm.settings, options=algorithm.identity)
        return self.ccl.unnamed(algorithm.name, "plan" if algorithm.is_plan else "module", algorithm.identity)

    @checked
    def algorithm(self, name: str | Algorithm) -> Algorithm:
        """The algorithm `name`. Raises what loading an entry of its kind raises."""
        return self._loader.load(self.ccl.settings(name)) if isinstance(name, str) else name

    @checked
    def runs_anywhere(self, algorithm: str | Algorithm) -> bool:
        """Whether an algorithm's program for one group is that of any other of as many ranks, but for their places."""
        legacy = (self.settings(algorithm).world_size or self.world_size) > self.machine.sips
        return not legacy and bool(getattr(self.algorithm(algorithm), "anywhere", False))

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
    def with_knobs(self, request: Request, algorithm: str | Algorithm, knobs: Knobs) -> str | Algorithm:
        """An algorithm for a request under knobs: itself without any. Raises as loading it, and ConfigError
        (AHBM-C192, C210) for a protocol that the machine's library does not have for such a call."""
        if not knobs.knobs:
            return algorithm
        nbytes = request.tiles * request.nbytes
        key = (algorithm, knobs, nbytes, request.world_size)
        if key not in self._with_knobs:
            if len(self._with_knobs) >= CACHED_CALLS:
                self._with_knobs.clear()
            settings = self.settings(algorithm)
            self._with_knobs[key] = with_knobs(
                knobs, self.algorithm(algorithm), settings, self.machine, nbytes, request.world_size
            )
        return self._with_knobs[key]

    @checked
    def network(self, request: Request) -> str:
        """Name of the network between the ranks of a request, as algorithms see it."""
        return self.layout(request).network.topology

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
                self.check(algorithm, request)
            except AhbmError as error:
                found[name] = error.message
        return found

    def compile(self, request: Request, algorithm: str | Algorithm) -> Compiled:
        """The program of a request by an algorithm; needs no arrays.

        `algorithm`: a name, or an algorithm that ccl.yaml does not name, such as a plan in memory. `ahbm.choice` says
        which one is configured.

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

    def compile_timed(self, request: Request, algorithm: str | Algorithm) -> Compiled:
        """As `compile`, of which only the time is asked for: the algorithm need not say which bytes travel."""
        key = (request, algorithm)
        try:
            known = self._known.get(key)
        except TypeError as error:
            raise refused("request", "a Request", request) from error
        if known is None:
            known = self._compile(request, algorithm)
            if len(self._known) >= CACHED_CALLS:
                self._known.clear()
            self._known[key] = known
        return known

    @checked
    def cost(self, request: Request, algorithm: str | Algorithm) -> Cost | Refusal:
        """The cost of a request by an algorithm, or the reason why it cannot be performed; needs no arrays, and raises
        no AhbmError."""
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
    def plan(self, request: Request, algorithm: str | Algorithm, limits: Sequence[tuple[str, int]] = ()) -> Plan:
        """The plan that states what `algorithm` does for a request, in chunks.

        limits: as in `ahbm.config.reading.Reading`. Raises UnsupportedError (AHBM-U294) for a kernel that no plan can
        express, BudgetError, and as `compile`.
        """
        found = self.algorithm(algorithm)
        self.check(found, request)
        return found.plan(self.machine, request, self.settings(algorithm), limits)

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
        algorithm: str | Algorithm,
        *,
        verify: Callable[[Compiled], object] | None = None,
    ) -> Compiled:
        """Performs a request by an algorithm in place on `buffers` and returns what it ran.

        `buffers[i]` belongs to group rank i: contiguous, writable, of `request.shape`, in the collective's in-place
        layout (`ahbm.base.collectives`). `verify` is called before the first data of a program move; its errors are
        raised, and the program stays unverified.

        Raises as `compile`, DeadlockError, and DataError (AHBM-V101) for unfit buffers.
        """
        compiled = self.compile(request, algorithm)
        check_buffers(request, buffers)
        if verify is not None:
            compiled.verify_once(verify)
        moving = compiled.moving
        timeline = moving.timeline(record=True)
        if timeline is None or moving.program is None:
            return compiled
        recipe = moving.recipe(timeline)
        if recipe is None or not recipe.run(buffers):
            memory = self._spares.take(moving, moving.program)
            memory.run(timeline, buffers, moving.operands, moving.results)
            self._spares.put(moving, memory)
        return compiled

    def is_known(self, request: Request, algorithm: str | Algorithm) -> bool:
        """Whether `perform` has only data to move."""
        try:
            known = self._known.get((request, algorithm))
        except TypeError as error:
            raise refused("request", "a Request", request) from error
        return known is not None and known.is_recorded

    def forget_programs(self) -> None:
        """Lets all programs go: who measures many requests once each needs none of them again."""
        with self._lock:
            self._compiled.clear()
            self._known.clear()
            self._affordable.clear()
            self._kept_ops = 0

    def forget_timelines(self) -> None:
        """Lets all timelines go: the next run of every program simulates it again."""
        for compiled in self._compiled.values():
            compiled.forget()

    @checked
    def affords(self, request: Request, name: str, most_ops: int, protocol: Protocol | None = None) -> bool:
        """Whether a configured algorithm performs a request with a protocol in at most so many operations, found once;
        then it is compiled. What fails otherwise is affordable: whoever compiles it raises the error."""
        key = self._key(request, self.ccl.settings(name), protocol)
        with self._lock:
            if (key, most_ops) not in self._affordable:
                self._affordable[key, most_ops] = True
                try:
                    layout = self.layout(request, key[1].world_size)
                    algorithm = self._loader.load(self.ccl.settings(name))
                    self.check(algorithm, request)
                    if layout.count and key not in self._compiled:
                        within = replace(key[1], all_ops=most_ops)
                        self._compiled[key] = self._lower(request, algorithm, within, layout, protocol)
                        self._kept_ops += self._compiled[key].ops
                except AhbmError as error:
                    log("emulator", INFO, "%s does not do: %s", name, error.message)
                    self._affordable[key, most_ops] = error.code != TOO_MANY_CALLS
            return self._affordable[key, most_ops]

    @checked
    def _compile(self, request: Request, algorithm: str | Algorithm) -> Compiled:
        name = request.collective
        require_collective(name)
        named = algorithm.protocol if isinstance(algorithm, WithKnobs) else None
        if named is None and (ways := self.protocols(request, [algorithm])):
            return self._by_protocol([protocol for protocol, _ in ways], request, algorithm)
        return self._compile_with(named, request, algorithm)

    def _key(self, request: Request, settings: Settings, protocol: Protocol | None) -> _Key:
        """Of a program, with the settings that it runs with."""
        own = protocol or self._protocol
        return request, settings if own is None else applied(own, settings), "" if protocol is None else protocol.name

    def _compile_with(self, protocol: Protocol | None, request: Request, algorithm: str | Algorithm) -> Compiled:
        """As `compile_timed`, with one protocol; None: no choice of the machine's library, or that of all runs."""
        settings = self.settings(algorithm)
        layout = self.layout(request, settings.world_size)
        found = self.algorithm(algorithm)
        self.check(found, request)
        given = None if isinstance(algorithm, str) else algorithm
        if not layout.count:
            return Compiled(request, settings.algorithm, given=given)
        name, nbytes, key = request.collective, request.tiles * request.nbytes, self._key(request, settings, protocol)
        with self._lock:
            if key not in self._compiled:
                log("emulator", INFO, "%s of %d B is compiled by %s", name, nbytes, settings.algorithm)
                self._compiled[key] = self._lower(request, found, key[1], layout, protocol)
                self._compiled[key].given = given
                self._compiled[key].protocol = key[2]
                self._kept_ops += self._compiled[key].ops
                for note in self._compiled[key].notes:
                    log("emulator", INFO, "%s", note)
            else:
                log("emulator", DEBUG, "%s of %d B by %s is compiled already", name, nbytes, settings.algorithm)
            self._compiled.move_to_end(key)
            while len(self._compiled) > 1 and self._kept_ops > CACHED_OPS:
                self._kept_ops -= self._compiled.popitem(last=False)[1].ops
                self._known.clear()
            return self._compiled[key]

    @checked
    def protocols(
        self, request: Request, algorithms: Sequence[str | Algorithm]
    ) -> list[tuple[Protocol, Sequence[str]]]:
        """The protocols that the machine's library may use for a request by some algorithms, each with the names of
        those; none on a machine without, or where one is for all runs. A plan that states a protocol has that one.

        Raises ConfigError (AHBM-C192, C194, C210).
        """
        nbytes = request.tiles * request.nbytes
        if not (found := usable(self.machine, nbytes, request.world_size)):
            return []
        said = {one if isinstance(one, str) else one.name: self._stated(one) for one in algorithms}
        free = [name for name, protocol in said.items() if protocol is None]
        ways = used_with(self.machine, found, free, self.ccl.algorithms) if free else []
        for name, protocol in said.items():
            if protocol is not None:
                ways.append((forced(self.machine, protocol, nbytes, request.world_size), [name]))
        return ways

    def _stated(self, algorithm: str | Algorithm) -> str | None:
        """The protocol that a plan asks for; None for no plan."""
        if isinstance(algorithm, str) and self.ccl.settings(algorithm).kind != "plan":
            return None
        return stated_protocol(self.algorithm(algorithm))

    def _by_protocol(self, protocols: Sequence[Protocol], request: Request, algorithm: str | Algorithm) -> Compiled:
        """The quickest of the protocols for a request by an algorithm; raises the error of the first where none runs
        it."""
        found: dict[str, Compiled] = {}
        refused: AhbmError | None = None
        for protocol in protocols:
            try:
                found[protocol.name] = self._compile_with(protocol, request, algorithm)
            except AhbmError as error:
                refused = refused or error
        best = quickest({name: compiled.latency_ps for name, compiled in found.items()})
        if best is None:
            assert refused is not None, "there is a protocol, so one of them was tried"
            raise refused
        note = f"protocol {best}" + (f", the quickest of {len(protocols)}" if len(protocols) > 1 else "")
        return replace(found[best], protocol=best, notes=(*found[best].notes, note))

    @checked
    def costs(
        self,
        request: Request,
        protocol: Protocol | None,
        algorithm: Algorithm | None = None,
        sips: Sequence[int] | None = None,
    ) -> CallCosts:
        """The costs of a request with a protocol, by any algorithm or by one, on `sips`, by default its ranks."""
        knobs = algorithm if isinstance(algorithm, WithKnobs) else None
        explicit = algorithm is not None and algorithm.is_plan
        shares = request.shares if algorithm is None or getattr(algorithm, "takes_shares", False) else None
        return CallCosts(
            # What all runs have is no choice of a call.
            None if protocol is None or self._protocol is not None else protocol.name,
            0 if protocol is None else request.tiles * request.nbytes,
            None if knobs is None else knobs.channels,
            None if knobs is None else knobs.math_per_ns,
            *crossing(self.machine, sips or request.ranks, request.collective, explicit, shares),
        )

    @checked
    def priced(self, costs: CallCosts) -> tuple[Machine, Limits]:
        """The machine as calls of these costs find it, and its bounds."""
        if costs == CallCosts():
            return self.machine, self.limits
        with self._lock:
            if costs not in self._priced:
                machine = self.machine.with_costs(costs)
                self._priced[costs] = machine, Limits(machine)
                while len(self._priced) > PRICED:
                    self._priced.popitem(last=False)
            self._priced.move_to_end(costs)
            return self._priced[costs]

    def _lower(
        self, request: Request, algorithm: Algorithm, settings: Settings, layout: Layout, protocol: Protocol | None
    ) -> Compiled:
        wanted = request if getattr(algorithm, "takes_shares", False) else request.padded()
        machine, _ = self.priced(self.costs(request, protocol, algorithm))

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
            moved=lowered.moved,
        )

    @checked
    def check(self, algorithm: Algorithm, request: Request) -> None:
        """Raises what the algorithm finds wrong with the request, or with the request on the machine."""
        algorithm.check(request)
        if isinstance(algorithm, ModuleAlgorithm):
            algorithm.check_machine(self.machine, request)

    @checked
    def layout(self, request: Request, world_size: int | None = None) -> Layout:
        """Where a request's data are among `world_size` ranks, by default all. Raises UnsupportedError (AHBM-U111),
        DataError (AHBM-V101), and for ranks and elements that are none."""
        layouts.check_ranks(self.machine, request.ranks, world_size or self.world_size)
        check_request(request)
        legacy = (world_size or self.world_size) > self.machine.sips
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
