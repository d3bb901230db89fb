"""From a space to its cases: plain values that can be sent to other processes, each with a key that is its identity."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice, product, zip_longest
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ahbm.base.arguments import text
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.elements import parse_dtype
from ahbm.base.sizes import Resized, Unit
from ahbm.check.checks import parse
from ahbm.choice.configured import candidates
from ahbm.config.topology import load_machine
from ahbm.core.emulator import Emulator
from ahbm.core.spec import machine_name, runs_by
from ahbm.errors import AhbmError, TopologyError
from ahbm.selectors.loading import contents
from ahbm.sweeps.build import build
from ahbm.table.cases import Case, Sweep
from ahbm.table.ladder import with_schedules
from ahbm.table.processes import KEPT, Places
from ahbm.table.running import outcome

if TYPE_CHECKING:
    from ahbm.sweeps.space import Point, Space


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
    algorithms, entries = with_schedules([name for name in names if name is not None])
    # A row says whether a result that was to be checked is right: where this cannot be decided without data, data move.
    # Checks that there are not are refused by each case.
    checks = set[str]() if isinstance(space.check, bool) else outcome(lambda: parse(str(space.check)))
    decides = not isinstance(checks, AhbmError) and "result" in checks
    shared: dict[str, Any] = {"begin": 1, "end": 1, "ccl": space.ccl, "check": space.check}
    shared |= {"data": space.data or (None if decides else False), "algorithms": algorithms, "given": given}
    seeds = _list(space.seeds)
    checked = False

    def sweep(collective: str, point: Point, **how: Any) -> tuple[Sweep, Emulator | AhbmError]:
        nonlocal checked
        overrides = {**point.overrides, **entries}
        how["varied"] = {name: overrides[name] for name in names_varied if name in overrides}
        how["listed"] = point.sizes or space.bytes
        asked = Sweep(collective, topology=point.topology, overrides=overrides, **shared, **how)
        asked = asked if asked.job else asked.with_plans()
        emulator = outcome(lambda: places.emulator(asked))
        if isinstance(emulator, AhbmError):
            words = [str(point.topology or "default"), *(f"{key}={value}" for key, value in overrides.items())]
            return replace(asked, machine=", ".join(words)), emulator
        if not checked:
            for name in asked.algorithms:
                emulator.algorithm(given.get(name, name))
            checked = True
        return replace(asked, machine=machine_name(emulator.machine)), emulator

    def runs(collective: str, point: Point) -> Iterator[_Run]:
        nonlocal at
        for dtype, op, root in product(_list(space.dtypes), _list(space.ops), _list(space.roots)):
            how = {"dtype": parse_dtype(text("dtypes", dtype)), "op": op, "root": root}
            found, emulator = sweep(collective, point, **how)
            for algorithm in found.algorithms or (None,):
                run = _Run(found, algorithm, emulator, at)
                at += len(run.sizes) * len(seeds)
                yield run

    for collective in space.measured:
        points = space.points()
        while some := list(islice(points, mixed)):
            for alike in zip_longest(*[list(runs(collective, point)) for point in some]):
                for cases in zip_longest(*(run.cases(seeds) for run in alike if run is not None)):
                    yield from (case for case in cases if case is not None)
    for job in map(str, _list(space.jobs)):
        content = _content(job)
        for point in space.points():
            found, emulator = sweep("all_reduce", point, job=job)
            for algorithm in found.algorithms or (None,):
                yield Case(found, algorithm, 0, at=at, key=_Run(found, algorithm, emulator, at, content).key(0, 0))
                at += 1
    return at


class _Run:
    """The cases of one sweep by one algorithm."""

    def __init__(
        self,
        sweep: Sweep,
        algorithm: str | None,
        emulator: Emulator | AhbmError,
        at: int,
        content: str | None = None,
    ) -> None:
        """at: position of the first case. content: of a job, its digest."""
        self._at = at
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

    @cached_property
    def sizes(self) -> list[tuple[int, Resized | None]]:
        """The sizes, as the algorithm takes them; as they are asked for where it or the machine does not load."""
        emulator = self._emulator
        unit = (
            emulator
            if isinstance(emulator, AhbmError)
            else outcome(lambda: self._sweep.unit(self._algorithm, emulator))
        )
        return list(self._sweep.sizes(Unit(1, "") if isinstance(unit, AhbmError) else unit))

    def cases(self, seeds: Sequence[int]) -> Iterator[Case]:
        """The cases, each with its key."""
        for number, ((nbytes, resized), seed) in enumerate(product(self.sizes, seeds)):
            yield Case(self._sweep, self._algorithm, nbytes, resized, seed, self._at + number, self.key(nbytes, seed))

    def key(self, nbytes: int, seed: int) -> str:
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
