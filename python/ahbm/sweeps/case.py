"""From a space to its cases: plain values that can be sent to other processes, each with a key that is its identity."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, product, zip_longest
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ahbm._core import Machine
from ahbm.base.arguments import text
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.sizes import Resized, Unit
from ahbm.choice.configured import candidates
from ahbm.config.ccl import CclConfig, split_overrides
from ahbm.config.topology import load_machine
from ahbm.core.emulator import Emulator
from ahbm.core.lowerings import Lowerings
from ahbm.core.spec import machine_name, runs_by
from ahbm.errors import AhbmError, TopologyError
from ahbm.runs.bench import Sweep, parse_dtype
from ahbm.runs.ladder import schedules
from ahbm.runs.plans import with_plans
from ahbm.selectors.loading import contents
from ahbm.sweeps.build import build

if TYPE_CHECKING:
    from ahbm.sweeps.space import Point, Space

SYNTH = "synth:"
"""Before the method of a synthesized schedule that is an algorithm of a sweep."""
KEPT = 8
"""Machines that a process keeps, and configurations: cases of one follow each other."""


@dataclass(frozen=True, eq=False)
class Group:
    """What cases that follow each other have in common: the machine, its configuration, and what runs there."""

    sweep: Sweep
    machine: str
    """The machine in words."""
    varied: Mapping[str, object]
    """The overrides that differ somewhere in the space."""
    job: str | None = None
    """A training job, in place of the collective of `sweep`."""


@dataclass(frozen=True)
class Case:
    """One run of a sweep. Can be pickled unless its algorithm is a function."""

    group: Group
    algorithm: str | None
    nbytes: int
    """Bytes of one rank's array; 0 of a job."""
    seed: int
    at: int
    """Position in the space."""
    key: str
    """64 hex digits: equal keys are equal rows, in every process and on every computer."""
    resized: Resized | None = None
    """Sizes that were asked for in place of `nbytes`."""


class Places:
    """The emulators of groups, the latest of them kept; configurations and algorithms are read once."""

    def __init__(self) -> None:
        self._configured: OrderedDict[str, Emulator] = OrderedDict()
        self._found: OrderedDict[str, Emulator] = OrderedDict()
        self._lowerings = Lowerings()

    def emulator(self, sweep: Sweep) -> Emulator:
        """The emulator of a sweep. Raises as `Sweep.emulator`."""
        topology = sweep.topology
        named = f"{topology.hash:016x}" if isinstance(topology, Machine) else str(topology)
        # What `Sweep.overrides` holds, JSON spells: `ahbm.base.arguments.overrides` sees to it.
        place = json.dumps([named, str(sweep.ccl), list(sweep.overrides.items())], default=str)
        return _kept(self._found, place, lambda: self._load(sweep))

    def _load(self, sweep: Sweep) -> Emulator:
        for_topology, for_ccl = split_overrides(sweep.overrides)
        machine = load_machine(sweep.topology, for_topology)
        settings = json.dumps([str(sweep.ccl), list(for_ccl.items())], default=str)
        load = partial(CclConfig.load, sweep.ccl, for_ccl)
        first = _kept(self._configured, settings, lambda: Emulator(machine, load(), self._lowerings))
        return first if first.machine is machine else first.on(machine)


def _kept(found: OrderedDict[str, Emulator], key: str, make: Callable[[], Emulator]) -> Emulator:
    if key not in found:
        found[key] = make()
        if len(found) > KEPT:
            found.popitem(last=False)
    found.move_to_end(key)
    return found[key]


def plan(space: Space, places: Places, *, mixed: bool = False) -> Iterator[Case]:
    """The cases of a space, in its order: collectives, machines, element types, operators, roots, algorithms, sizes,
    seeds; then jobs, machines, algorithms.

    mixed: in the order in which they are best run. Of a few machines, cases that differ in nothing else follow each
    other, for they often have one program, which the process that has made it runs on all of them.

    A machine that does not load gives cases that will say so. Raises, before the first case, what topologies and
    algorithms that do not exist raise.
    """
    at, varied = 0, space.varied
    for one in space.spaces():
        _refuse_unknown_topologies(one)
        at = yield from _cases(one, varied, places, at, KEPT if mixed else 1)


def _refuse_unknown_topologies(space: Space) -> None:
    for topology in _list(space.topologies):
        try:
            load_machine(topology)
        except TopologyError as error:
            # Whatever else is wrong may be put right by the overrides.
            if error.code in ("AHBM-T101", "AHBM-T102"):
                raise


def _cases(
    space: Space, names_varied: Sequence[str], places: Places, at: int, mixed: int
) -> Generator[Case, None, int]:
    names, given = space.named()
    methods = [name.removeprefix(SYNTH) for name in names if name and name.startswith(SYNTH)]
    synthesized, entries = schedules(methods)
    by_name = {f"{SYNTH}{method}": name for method, name in zip(methods, synthesized, strict=True)}
    algorithms = tuple(by_name.get(name, name) for name in names if name is not None)
    shared: dict[str, Any] = {"begin": 1, "end": 1, "ccl": space.ccl, "data": space.data, "check": space.check}
    shared |= {"algorithms": algorithms, "given": given}
    seeds = _list(space.seeds)
    checked = False

    def group(collective: str, point: Point, job: str | None = None, **how: Any) -> tuple[Group, Emulator | AhbmError]:
        nonlocal checked
        overrides = {**point.overrides, **entries}
        varied = {name: overrides[name] for name in names_varied if name in overrides}
        asked = Sweep(
            collective, topology=point.topology, overrides=overrides, listed=point.sizes or space.bytes, **shared, **how
        )
        sweep = asked if job else with_plans(asked)
        try:
            emulator = places.emulator(sweep)
        except AhbmError as error:
            words = [str(point.topology or "default"), *(f"{key}={value}" for key, value in overrides.items())]
            return Group(sweep, ", ".join(words), varied, job), error
        if not checked:
            for name in sweep.algorithms:
                emulator.algorithm(given.get(name, name))
            checked = True
        return Group(sweep, machine_name(emulator.machine), varied, job), emulator

    def runs(collective: str, point: Point) -> Iterator[_Run]:
        nonlocal at
        for dtype, op, root in product(_list(space.dtypes), _list(space.ops), _list(space.roots)):
            how = {"dtype": parse_dtype(text("dtypes", dtype)), "op": op, "root": root}
            found, emulator = group(collective, point, **how)
            for algorithm in found.sweep.algorithms or (None,):
                digest = _Digest(found, algorithm, emulator)
                run = _Run(found, algorithm, digest, list(digest.sizes), seeds, at)
                at += len(run.sizes) * len(seeds)
                yield run

    for collective in space.measured:
        points = space.points()
        while some := list(islice(points, mixed)):
            for alike in zip_longest(*[list(runs(collective, point)) for point in some]):
                for cases in zip_longest(*(run.cases() for run in alike if run is not None)):
                    yield from (case for case in cases if case is not None)
    for job in map(str, _list(space.jobs)):
        content = _content(job)
        for point in space.points():
            found, emulator = group("all_reduce", point, job)
            for algorithm in found.sweep.algorithms or (None,):
                key = _Digest(found, algorithm, emulator, content).of(0, 0)
                yield Case(found, algorithm, 0, 0, at, key)
                at += 1
    return at


@dataclass(frozen=True)
class _Run:
    """The cases of one group by one algorithm."""

    group: Group
    algorithm: str | None
    digest: _Digest
    sizes: Sequence[tuple[int, Resized | None]]
    seeds: Sequence[int]
    at: int
    """Position of the first case."""

    def cases(self) -> Iterator[Case]:
        for number, ((nbytes, resized), seed) in enumerate(product(self.sizes, self.seeds)):
            key = self.digest.of(nbytes, seed)
            yield Case(self.group, self.algorithm, nbytes, seed, self.at + number, key, resized)


class _Digest:
    """The keys of the cases of one group by one algorithm."""

    def __init__(
        self, group: Group, algorithm: str | None, emulator: Emulator | AhbmError, content: str | None = None
    ) -> None:
        sweep = group.sweep
        kind = COLLECTIVES[sweep.collective]
        self._sweep, self._algorithm, self._emulator = sweep, algorithm, emulator
        self._known: dict[tuple[str, ...], str] = {}
        self._common: list[object] = [build(), sweep.collective, sweep.dtype, sweep.data, sweep.check]
        self._common += [sweep.op if kind.reduces else "", sweep.root if kind.rooted else 0, algorithm]
        if isinstance(emulator, Emulator) and (algorithm is None or content is not None):
            self._common += [contents(named) for named in emulator.ccl.selectors()]
        if content is not None:
            self._common += ["job", content]
            if isinstance(emulator, Emulator):
                self._common += [emulator.ccl.fingerprint, _all_contents(emulator)]

    @property
    def sizes(self) -> Iterator[tuple[int, Resized | None]]:
        """The sizes, as the algorithm takes them; as they are asked for where it or the machine does not load."""
        try:
            if isinstance(self._emulator, Emulator):
                return self._sweep.sizes(self._sweep.unit(self._algorithm, self._emulator))
        except AhbmError:
            pass
        return self._sweep.sizes(Unit(1, ""))

    def of(self, nbytes: int, seed: int) -> str:
        """The key of a case."""
        chosen: tuple[str, ...] = (self._algorithm or "",)
        if self._algorithm is None and isinstance(self._emulator, Emulator) and nbytes:
            try:
                world = self._emulator.world_size
                chosen = candidates(self._emulator, self._sweep.collective, nbytes, world)
            except AhbmError as error:
                chosen = (error.code, error.message)
        if chosen not in self._known:
            self._known[chosen] = json.dumps([*self._common, self._facts(chosen)], sort_keys=True, default=str)
        # Without data, numbers are of no meaning.
        numbers = f"{nbytes} {seed if self._sweep.data else 0}"
        return hashlib.sha256(f"{self._known[chosen]} {numbers}".encode()).hexdigest()

    def _facts(self, algorithms: tuple[str, ...]) -> list[object]:
        sweep, emulator = self._sweep, self._emulator
        if isinstance(emulator, AhbmError):
            return [str(sweep.topology), list(sweep.overrides.items()), emulator.code, emulator.message]
        try:
            return [runs_by(emulator, sweep.given.get(name, name)) for name in algorithms if name] or [
                f"{emulator.machine.hash:016x}"
            ]
        except AhbmError as error:
            return [f"{emulator.machine.hash:016x}", error.code, error.message]


def _list(values: Any) -> list[Any]:
    return list(values) if isinstance(values, list | tuple | range) else [values]


def _content(job: str) -> str:
    """Digest of the files of a job: a file, a folder, or the files of a trace by their prefix."""
    path = Path(job)
    folder = path if path.is_dir() else path.parent
    files = [path] if isfile(path) else sorted(folder.glob("*" if path.is_dir() else f"{path.name}.*"))
    digest = hashlib.sha256()
    for file in files:
        if file.is_file():
            digest.update(f"{file.name} {file.stat().st_size}\n".encode())
            with file.open("rb") as opened:
                while block := opened.read(1 << 20):
                    digest.update(block)
    return digest.hexdigest()


def _all_contents(emulator: Emulator) -> list[object]:
    """The contents of all configured algorithms: a job's calls may run any of them."""
    found: list[object] = []
    for name in emulator.ccl.algorithms:
        try:
            found.append(repr(emulator.algorithm(name).identity))
        except AhbmError as error:
            found.append([name, error.code, error.message])
    return found
