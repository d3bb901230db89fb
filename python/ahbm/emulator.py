"""From buffers to results and time: capture once, simulate once, replay the data of every call."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ahbm import layout as layouts
from ahbm._core import Machine, Memory, Program, ProgramBuilder, Timeline
from ahbm.algorithm import Algorithm, AlgorithmLoader, AnyAlgorithm
from ahbm.arrays import DTYPE_NAMES, kernel_dtype
from ahbm.collectives import BITWISE, COLLECTIVES, OPS, Request
from ahbm.config import CclConfig, Settings, split_overrides
from ahbm.elements import element
from ahbm.errors import ConfigError, DataError, UnsupportedError
from ahbm.layout import Layout
from ahbm.limits import Limits
from ahbm.lowering import PlanAlgorithm
from ahbm.placement import DPPolicy
from ahbm.synthesis import SynthAlgorithm
from ahbm.topology import load_machine
from ahbm.yaml_source import did_you_mean

BASE = 1 << 32
"""Virtual address of the tensor on every SIP."""
CACHED_OPS = 50_000_000
"""Operations in the programs that an emulator keeps; the least recently used ones go first."""


SPARE_BYTES = 1 << 30
"""Memory of programs that an emulator keeps for their next run."""


CACHED_CALLS = 4096
"""Shapes of calls whose program and timeline an emulator remembers."""


@dataclass(frozen=True)
class Invocation:
    """A collective to perform: all but its buffers. `root`, `src` and `dst` are group ranks."""

    collective: str
    ranks: tuple[int, ...] | None = None
    """The global rank of every group rank; None: the first ones."""
    op: str = "sum"
    root: int = 0
    src: int = 0
    dst: int = 1
    dtype: str | None = None
    """Names the element type where NumPy cannot: uint16 arrays of "bf16"."""
    algorithm: str | None = None
    """None: the one that ccl.yaml chooses."""
    placement: DPPolicy | None = None
    """Of device tensors."""


@dataclass(frozen=True)
class Outcome:
    """What one collective took."""

    algorithm: str
    latency_ps: int = 0
    messages: int = 0
    bytes: int = 0
    """Payload bytes of all messages."""
    timeline_hash: int = 0
    program: Program | None = None
    """None, as is `timeline`, when there was nothing to do: 0 elements."""
    timeline: Timeline | None = None
    compiled: Compiled | None = None
    """The program with its arrays; None where `program` is."""


@dataclass
class Compiled:
    """A captured program, its buffers' ids, and its timeline once it has been simulated."""

    program: Program
    operands: list[NDArray[np.int64]]
    """Per group rank, which bytes of its host array go into which buffer: see `Memory.run`."""
    results: list[NDArray[np.int64]]
    """Per group rank, which bytes of its host array come out of which buffer."""
    ops: int
    event_budget: int
    covered: bool = False
    """Whether the operands fill all of its buffers, so that nothing of an earlier run remains."""
    timelines: dict[bool, Timeline] = field(default_factory=dict)

    @cached_property
    def bytes(self) -> int:
        """Of all operands."""
        return sum(int(rows[:, 3].sum()) for rows in self.operands)

    def timeline(self, data: bool) -> Timeline:
        """The timeline; with `data`, one that can be replayed."""
        for recorded in (True, data):
            if recorded in self.timelines:
                return self.timelines[recorded]
        self.timelines[data] = self.program.simulate(record=data, max_events=self.event_budget)
        return self.timelines[data]


class Spares:
    """Memory images of programs that have run, for their next run: pages that were touched once are fast."""

    def __init__(self) -> None:
        self._held: OrderedDict[int, tuple[Compiled, Memory]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def take(self, compiled: Compiled) -> Memory:
        """An image that the operands of `compiled` will fill."""
        with self._lock:
            found = self._held.pop(id(compiled), None)
            if found is None:
                return Memory(compiled.program)
            self._bytes -= compiled.bytes
            return found[1]

    def put(self, compiled: Compiled, memory: Memory) -> None:
        """Keeps an image if the next operands will overwrite all of it; the oldest make room."""
        size = compiled.bytes
        if not compiled.covered or size > SPARE_BYTES:
            return
        with self._lock:
            if id(compiled) not in self._held:
                self._held[id(compiled)] = (compiled, memory)
                self._bytes += size
            while self._bytes > SPARE_BYTES:
                self._bytes -= self._held.popitem(last=False)[1][0].bytes


@dataclass(frozen=True)
class Known:
    """What calls of one shape run: all but their data."""

    dtype: str
    outcome: Outcome


class Emulator:
    """A machine and a configuration, ready to run collectives. Thread-safe; keeps what it has captured."""

    def __init__(self, machine: Machine, ccl: CclConfig) -> None:
        self.machine = machine
        self.ccl = ccl
        self._loader = AlgorithmLoader()
        self._lock = threading.RLock()
        self._cache: OrderedDict[tuple[object, ...], Compiled] = OrderedDict()
        self._known: dict[tuple[object, ...], Known] = {}
        self._spares = Spares()
        self.limits = Limits(machine)

    @staticmethod
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

    @property
    def world_size(self) -> int:
        """Number of ranks: `world_size` of the default algorithm's entry, else of the defaults, else all SIPs."""
        return self.settings().world_size or self.machine.sips

    def settings(self, algorithm: str | None = None) -> Settings:
        """What `algorithm` (default: the configured one) runs with."""
        return self.ccl.settings(algorithm or self.ccl.default_algorithm)

    def algorithm(self, name: str) -> AnyAlgorithm:
        """What an algorithm is: a loaded module or plan, or how it is synthesized.

        Raises ConfigError, and FormatError for a plan.
        """
        return self._loader.load(self.ccl.settings(name))

    def collective(self, what: Invocation, buffers: Sequence[NDArray[Any]], *, data: bool = True) -> Outcome:
        """Runs one collective in place on `buffers` and returns what it took.

        `buffers[i]` belongs to group rank i: flat, contiguous, writable, equal sizes and dtypes, in the collective's
        in-place layout (`ahbm.collectives`); with a placement, of shape (cubes, elements of a tile). Without `data` the
        buffers are not touched and may be views of any strides.

        Raises ConfigError, DataError (AHBM-V101) for unfit buffers, UnsupportedError, KernelError, LintError,
        DeadlockError, BudgetError.
        """
        key = _key(what, buffers, data)
        known = self._known.get(key)
        if known is None:
            known = self._prepare(what, buffers, data)
            if len(self._known) >= CACHED_CALLS:
                self._known.clear()
            self._known[key] = known
        else:
            _common_dtype(buffers, known.dtype, what.placement, data)
        outcome = known.outcome
        if data and outcome.compiled is not None and outcome.timeline is not None:
            memory = self._spares.take(outcome.compiled)
            memory.run(outcome.timeline, buffers, outcome.compiled.operands, outcome.compiled.results)
            self._spares.put(outcome.compiled, memory)
        return outcome

    def is_known(self, what: Invocation, buffers: Sequence[NDArray[Any]]) -> bool:
        """Whether `collective` has only data to move."""
        return _key(what, buffers, True) in self._known

    def _prepare(self, what: Invocation, buffers: Sequence[NDArray[Any]], data: bool) -> Known:
        name = what.collective
        if name not in COLLECTIVES:
            raise ConfigError("AHBM-C105", f"unknown collective {name!r}", hint=did_you_mean(name, COLLECTIVES))
        dtype = _common_dtype(buffers, what.dtype, what.placement, data)
        request = Request(name, len(buffers), what.op, dtype, what.root, what.src, what.dst)
        settings = self.ccl.settings(what.algorithm or self.ccl.choose(name, buffers[0].nbytes if buffers else 0))
        world = settings.world_size or self.world_size
        members = tuple(range(len(buffers))) if what.ranks is None else what.ranks
        layouts.check_ranks(self.machine, members, world)
        if len(members) != len(buffers):
            raise DataError("AHBM-V101", f"{len(buffers)} buffers for {len(members)} ranks")
        _check_request(request)
        module = self._loader.load(settings)
        module.check(request)
        if not isinstance(module, Algorithm):
            _check_plan(module, what.placement)
        layout = self._layout(request, buffers[0], members, world, what.placement)
        if not layout.count:
            return Known(request.dtype, Outcome(settings.algorithm))
        compiled, timeline = self._compiled(request, module, settings, layout, buffers[0].itemsize, data)
        outcome = Outcome(
            settings.algorithm,
            timeline.latency_ps,
            timeline.messages,
            timeline.bytes,
            timeline.hash,
            compiled.program,
            timeline,
            compiled,
        )
        return Known(request.dtype, outcome)

    def _layout(
        self, request: Request, buffer: NDArray[Any], members: tuple[int, ...], world: int, placement: DPPolicy | None
    ) -> Layout:
        legacy = world > self.machine.sips
        if placement is not None:
            if legacy or request.collective != "all_reduce":
                what = "the legacy mode" if legacy else request.collective
                raise UnsupportedError(
                    "AHBM-U111",
                    f"{what} does not work on device tensors",
                    hint="pass host arrays, or use all_reduce with a rank per SIP",
                )
            cubes = placement.cubes(self.machine.cubes)
            if len(buffer) != cubes:
                raise DataError(
                    "AHBM-V101", f"a tensor of {len(buffer)} tiles does not fit {placement}: it has {cubes}"
                )
            return layouts.tiles(self.machine, members, cubes, buffer.shape[1])
        chunks = COLLECTIVES[request.collective].chunks(len(members))
        if buffer.size % chunks:
            raise DataError("AHBM-V101", f"{request.collective}: {buffer.size} elements are no {chunks} equal chunks")
        arrange = layouts.flat if legacy else layouts.lanes
        return arrange(self.machine, members, chunks, buffer.size // chunks)

    def _compiled(
        self,
        request: Request,
        module: AnyAlgorithm,
        settings: Settings,
        layout: Layout,
        itemsize: int,
        data: bool,
    ) -> tuple[Compiled, Timeline]:
        key = (request, module.identity, settings.queues, layout, self.machine.hash)
        with self._lock:
            compiled = self._cache.get(key)
            if compiled is None:
                if isinstance(module, Algorithm):
                    compiled = _capture(self.machine, request, module, settings, layout, itemsize)
                else:
                    compiled = _lower(self.machine, request, module, settings, layout, itemsize)
                self._cache[key] = compiled
            self._cache.move_to_end(key)
            timeline = compiled.timeline(data)
            while len(self._cache) > 1 and sum(entry.ops for entry in self._cache.values()) > CACHED_OPS:
                self._cache.popitem(last=False)
                self._known.clear()
            return compiled, timeline


def _key(what: Invocation, buffers: Sequence[NDArray[Any]], data: bool) -> tuple[object, ...]:
    """What decides everything about a call but its data."""
    return (what, buffers[0].shape, buffers[0].dtype.num, len(buffers), data) if buffers else (what, data)


def _capture(
    machine: Machine, request: Request, module: Algorithm, settings: Settings, layout: Layout, itemsize: int
) -> Compiled:
    _check_tier(machine, settings)
    builder = ProgramBuilder(
        machine,
        f"{request.collective} by {module.name}",
        n_slots=settings.n_slots,
        slot_bytes=settings.slot_size,
        tier=settings.buffer_kind,
        credit_bytes=settings.ipcq_credit_size_bytes,
        op_budget=settings.op_budget,
    )
    net = layout.network
    sip_args = (module.topology_kind(net.topology), net.w, net.h)
    bodies: dict[tuple[int, int, int], int] = {}
    pieces: list[list[tuple[int, int, int, int]]] = [[] for _ in layout.places]
    for lane in layout.lanes:
        args = module.arguments(request, lane.n_elem, lane.cube_w, lane.cube_h)
        group = builder.group(
            topology=net.topology,
            sips=net.sips,
            w=net.w,
            h=net.h,
            d=net.d,
            cube_w=lane.cube_w,
            cube_h=lane.cube_h,
            pes=1,
        )
        nbytes = layout.chunks * lane.n_elem * itemsize
        views = [(BASE + cube * nbytes, nbytes) for cube in range(len(lane.cubes))]
        for rank in range(len(layout.places)):
            places = [layout.place(rank, cube) for cube in lane.cubes]
            ids = [builder.buffer(place, nbytes) for place in places]
            pieces[rank] += layout.pieces(lane, ids, itemsize)
            for cube, place in enumerate(places):
                coord, key = (rank, cube, 0), (rank, cube, lane.n_elem)
                if key not in bodies:
                    bodies[key] = builder.capture(
                        module.kernel, (BASE, *args, rank, *sip_args), coord, (1, len(places)), views, request.dtype
                    )
                builder.agent(group, coord, place, bodies[key], ids)
    program = builder.finish()
    rows = _rows(pieces)
    return Compiled(program, rows, rows, program.ops, settings.event_budget, covered=True)


def _lower(
    machine: Machine,
    request: Request,
    plan: PlanAlgorithm | SynthAlgorithm,
    settings: Settings,
    layout: Layout,
    itemsize: int,
) -> Compiled:
    _check_tier(machine, settings)
    sips = [sip for sip, _, _ in layout.places]
    lowered = plan.lower(machine, request, settings, layout.chunks * layout.count * itemsize, sips)
    operands, results = _rows(lowered.operands), _rows(lowered.results)
    return Compiled(lowered.program, operands, results, lowered.program.ops, settings.event_budget)


def _rows(pieces: Sequence[Sequence[tuple[int, int, int, int]]]) -> list[NDArray[np.int64]]:
    return [np.array(rows, np.int64).reshape(-1, 4) for rows in pieces]


def _check_tier(machine: Machine, settings: Settings) -> None:
    if settings.buffer_kind not in machine.tiers:
        raise ConfigError(
            "AHBM-C122",
            f"buffer_kind {settings.buffer_kind!r} is no slot tier of the machine",
            hint=did_you_mean(settings.buffer_kind, machine.tiers),
        )


def _check_plan(plan: PlanAlgorithm | SynthAlgorithm, placement: DPPolicy | None) -> None:
    if placement is not None:
        raise UnsupportedError(
            "AHBM-U111", f"the plan {plan.name} does not work on device tensors", hint="pass host arrays"
        )


def _check_request(request: Request) -> None:
    if request.op not in OPS:
        raise ConfigError("AHBM-C123", f"unknown reduction operator {request.op!r}", hint=did_you_mean(request.op, OPS))
    collective = COLLECTIVES[request.collective]
    if collective.reduces and request.op in BITWISE and element(request.dtype).is_float:
        raise UnsupportedError(
            "AHBM-U115", f"{request.op} is not defined on {request.dtype}", hint="use an integer dtype"
        )
    wanted = [("root", request.root)] if collective.rooted else []
    wanted += [("src", request.src), ("dst", request.dst)] if collective.paired else []
    for what, rank in wanted:
        if not 0 <= rank < request.world_size:
            raise ConfigError("AHBM-C120", f"{what} {rank} is not in a group of {request.world_size}")


def _common_dtype(buffers: Sequence[NDArray[Any]], dtype: str | None, placement: DPPolicy | None, data: bool) -> str:
    """The element type of all buffers, by the kernels' name. Raises DataError, UnsupportedError."""
    if not buffers:
        raise DataError("AHBM-V101", "no buffers")
    first = buffers[0]
    for rank, buffer in enumerate(buffers):
        problem = None
        if buffer.shape != first.shape or buffer.dtype != first.dtype:
            problem = f"has {buffer.dtype}{list(buffer.shape)}, rank 0 has {first.dtype}{list(first.shape)}"
        elif data and not (buffer.flags.c_contiguous and buffer.flags.writeable):
            problem = "is not contiguous and writable"
        elif buffer.ndim != (1 if placement is None else 2):
            problem = f"has {buffer.ndim} axes, not {1 if placement is None else 2}"
        if problem:
            raise DataError("AHBM-V101", f"the buffer of group rank {rank} {problem}")
    name = kernel_dtype(first.dtype)
    if name is None:
        raise UnsupportedError(
            "AHBM-U130",
            f"no kernel computes with dtype {first.dtype}",
            hint=f"convert to one of {', '.join(DTYPE_NAMES.values())}",
        )
    if dtype is not None and dtype != name and (dtype, name) != ("bf16", "u16"):
        raise DataError("AHBM-V101", f"the buffers hold {name}, not {dtype}")
    return dtype or name
