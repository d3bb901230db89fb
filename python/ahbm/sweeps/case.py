"""From a space to its cases: plain values that can be sent to other processes, each with a key that is its identity."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from itertools import islice, product, zip_longest
from os.path import isfile
from pathlib import Path
from typing import Any

from ahbm.base.arguments import text
from ahbm.base.elements import parse_dtype
from ahbm.base.sizes import Resized, Unit
from ahbm.check.checks import parse
from ahbm.config.topology import load_machine
from ahbm.core.emulator import Emulator
from ahbm.core.spec import machine_name
from ahbm.errors import AhbmError, TopologyError
from ahbm.sweeps.space import Space, several_of
from ahbm.table.cases import Case, Sweep
from ahbm.table.kept import Keys
from ahbm.table.ladder import with_schedules
from ahbm.table.processes import KEPT, Places
from ahbm.table.running import outcome


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
    for topology in several_of(space.topologies) or [None]:
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
    data = space.data or (None if decides else False)
    shared: dict[str, Any] = {"data": data, "algorithms": algorithms, "given": given}
    seeds = several_of(space.seeds)
    checked = False

    def sweep(on: Sweep, **how: Any) -> tuple[Sweep, Emulator | AhbmError]:
        nonlocal checked
        overrides = {**on.overrides, **entries}
        varied = {name: overrides[name] for name in names_varied if name in overrides}
        asked = replace(on, overrides=overrides, varied=varied, **shared, **how)
        asked = asked if asked.job else asked.with_plans()
        emulator = outcome(lambda: places.emulator(asked))
        if isinstance(emulator, AhbmError):
            words = [str(on.topology or "default"), *(f"{key}={value}" for key, value in overrides.items())]
            return replace(asked, machine=", ".join(words)), emulator
        if not checked:
            for name in asked.algorithms:
                emulator.algorithm(given.get(name, name))
            checked = True
        return replace(asked, machine=machine_name(emulator.machine)), emulator

    def runs(collective: str, on: Sweep) -> Iterator[Iterator[Case]]:
        nonlocal at
        for dtype, op, root in product(several_of(space.dtypes), several_of(space.ops), several_of(space.roots)):
            how = {"dtype": parse_dtype(text("dtypes", dtype)), "op": op, "root": root}
            found, emulator = sweep(on, collective=collective, **how)
            for algorithm in found.algorithms or (None,):
                sizes = _sizes(found, algorithm, emulator)
                yield Keys(found, algorithm, emulator).cases(sizes, seeds, at)
                at += len(sizes) * len(seeds)

    for collective in space.measured:
        points = space.points()
        while some := list(islice(points, mixed)):
            for alike in zip_longest(*[list(runs(collective, on)) for on in some]):
                for cases in zip_longest(*(cases for cases in alike if cases is not None)):
                    yield from (case for case in cases if case is not None)
    for job in map(str, several_of(space.jobs)):
        content = _content(job)
        for on in space.points():
            found, emulator = sweep(on, job=job)
            for algorithm in found.algorithms or (None,):
                yield from Keys(found, algorithm, emulator, content).cases([(0, None)], [0], at)
                at += 1
    return at


def _sizes(sweep: Sweep, algorithm: str | None, emulator: Emulator | AhbmError) -> list[tuple[int, Resized | None]]:
    """The sizes, as the algorithm takes them; as they are asked for where it or the machine does not load."""
    unit = emulator if isinstance(emulator, AhbmError) else outcome(lambda: sweep.unit(algorithm, emulator))
    return list(sweep.sizes(Unit(1, "") if isinstance(unit, AhbmError) else unit))


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
