"""From a space to its cases, each made where it runs of its position alone: plain values, each with a key that is its
identity."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from os.path import isfile
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ahbm.base.arguments import text
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.elements import parse_dtype
from ahbm.base.sizes import Resized, Unit
from ahbm.check.checks import parse
from ahbm.config.topology import load_machine
from ahbm.core.emulator import Emulator
from ahbm.core.spec import machine_name
from ahbm.errors import AhbmError, TopologyError
from ahbm.sweeps.space import Space, several_of
from ahbm.table.cases import Case, Sweep
from ahbm.table.kept import Keys, configured
from ahbm.table.ladder import with_schedules
from ahbm.table.processes import KEPT, Places
from ahbm.table.running import outcome

TRIED = 64
"""Machines of which one must load for the algorithms to be looked at before anything runs."""
KEPT_KEYS = 2 * KEPT
"""Machines with an algorithm of which a process keeps what their keys have in common."""
_Value = TypeVar("_Value")


class Turn(NamedTuple):
    """Where a case stands: the part of the space that `cases` made, and the place on each axis."""

    part: int
    collective: int
    """Of a job, its place behind the collectives."""
    machine: int
    dtype: int
    op: int
    root: int
    algorithm: int
    size: int
    seed: int
    at: int
    """In the order of the space: collectives, machines, element types, operators, roots, algorithms, sizes, seeds; then
    jobs, machines, algorithms."""


@dataclass(frozen=True)
class _Part:
    """A space without `cases`, in numbers."""

    space: Space
    first: int
    """Of its positions."""
    axes: tuple[int, ...]
    """Element types, operators, roots, algorithms, sizes, seeds."""

    @cached_property
    def each(self) -> int:
        """Cases of a collective on a machine."""
        found = 1
        for axis in self.axes:
            found *= axis
        return found

    @cached_property
    def measured(self) -> int:
        """Cases of collectives."""
        return len(self.space.measured) * self.space.machines * self.each

    @cached_property
    def end(self) -> int:
        """Behind its positions."""
        return self.first + self.measured + len(self._jobs) * self.space.machines * self.axes[3]

    @cached_property
    def _jobs(self) -> list[Any]:
        return several_of(self.space.jobs)

    def turn(self, number: int, position: int, mixed: int) -> Turn:
        """Of a position in the order in which cases are best run, machines in blocks of `mixed`."""
        machines, left = self.space.machines, position - self.first
        if left >= self.measured:
            job, left = divmod(left - self.measured, machines * self.axes[3])
            machine, algorithm = divmod(left, self.axes[3])
            return Turn(number, len(self.space.measured) + job, machine, 0, 0, 0, algorithm, 0, 0, position)
        collective, left = divmod(left, machines * self.each)
        block, left = divmod(left, mixed * self.each)
        inside = min(mixed, machines - block * mixed)
        case, machine = divmod(left, inside)
        machine += block * mixed
        places, rest = list[int](), case
        for many in reversed(self.axes):
            rest, place = divmod(rest, many)
            places.insert(0, place)
        dtype, op, root, algorithm, size, seed = places
        at = self.first + (collective * machines + machine) * self.each + case
        return Turn(number, collective, machine, dtype, op, root, algorithm, size, seed, at)


class Cases:
    """The cases of a space by their positions from 0 to below `Space.count`, in an order in which they are best run: of
    a few machines, cases that differ in nothing else follow each other, for they often have one program, which the
    process that has made it runs on all of them."""

    def __init__(self, space: Space, places: Places, *, mixed: bool = True) -> None:
        """mixed: False for the order of the space itself.

        A machine that does not load gives cases that will say so. Raises what topologies and algorithms that do not
        exist raise.
        """
        self._places, self._mixed, self._varied = places, KEPT if mixed else 1, space.varied
        self._parts: list[_Part] = []
        self._terms: list[tuple[dict[str, Any], dict[str, object]]] = []
        first = 0
        for number, one in enumerate(space.spaces()):
            _refuse_unknown_topologies(one)
            terms = _terms(one)
            self._terms.append(terms)
            sizes = 1 if "sizes" in one.drawn else len(one.bytes)
            axes = (one.dtypes, one.ops, one.roots)
            counts = (*(len(several_of(axis)) for axis in axes), len(terms[0]["algorithms"]) or 1, sizes)
            self._parts.append(_Part(one, first, (*counts, len(several_of(one.seeds)))))
            first = self._parts[-1].end
            self._refuse_unknown_algorithms(number)
        self.count = first
        self._contents: OrderedDict[Hashable, str] = OrderedDict()
        self._configured: OrderedDict[Hashable, list[object]] = OrderedDict()
        self._sweeps: OrderedDict[Hashable, tuple[Sweep, Emulator | AhbmError]] = OrderedDict()
        self._keys: OrderedDict[Hashable, tuple[Keys, list[tuple[int, Resized | None] | None]]] = OrderedDict()

    def turn(self, position: int) -> Turn:
        """Where the case of a position stands."""
        number = next(number for number, part in enumerate(self._parts) if position < part.end)
        return self._parts[number].turn(number, position, self._mixed)

    def case(self, position: int) -> tuple[Case | None, bool]:
        """The case of a position, None where its size became that of another; and whether no case of another position
        must be the same: by an operator, a root or a seed that change nothing."""
        turn = self.turn(position)
        part = self._parts[turn.part]
        collectives = part.space.measured
        job = turn.collective - len(collectives)
        if job >= 0:
            return self._job(part, turn, str(several_of(part.space.jobs)[job])), True
        axes = turn.collective, turn.machine, turn.dtype, turn.op, turn.root
        on = _kept(self._sweeps, (turn.part, *axes), KEPT_KEYS, lambda: self._measured(part, turn))
        place = (turn.part, *axes, turn.algorithm)
        keys, sizes = _kept(self._keys, place, KEPT_KEYS, lambda: self._keys_of(turn, *on))
        size = sizes[turn.size]
        if size is None:
            return None, False
        seed = several_of(part.space.seeds)[turn.seed]
        kind = COLLECTIVES[collectives[turn.collective]]
        owner = not ((turn.op and not kind.reduces) or (turn.root and not kind.rooted))
        owner = owner and not (turn.seed and not on[0].data)
        by = on[0].algorithms[turn.algorithm] if on[0].algorithms else None
        return Case(on[0], by, *size, seed, turn.at, keys.of(size[0], seed)), owner

    def _measured(self, part: _Part, turn: Turn) -> tuple[Sweep, Emulator | AhbmError]:
        space = part.space
        how = {
            "collective": space.measured[turn.collective],
            "dtype": parse_dtype(text("dtypes", several_of(space.dtypes)[turn.dtype])),
            "op": several_of(space.ops)[turn.op],
            "root": several_of(space.roots)[turn.root],
        }
        return self._on(turn.part, turn.machine, **how)

    def _on(self, number: int, machine: int, **how: Any) -> tuple[Sweep, Emulator | AhbmError]:
        on, (shared, entries) = self._parts[number].space.on(machine), self._terms[number]
        overrides = {**on.overrides, **entries}
        varied = {name: overrides[name] for name in self._varied if name in overrides}
        asked = replace(on, overrides=overrides, varied=varied, **shared, **how)
        asked = asked if asked.job else asked.with_plans()
        emulator = outcome(lambda: self._places.emulator(asked))
        if isinstance(emulator, AhbmError):
            words = [str(on.topology or "default"), *(f"{key}={value}" for key, value in overrides.items())]
            return replace(asked, machine=", ".join(words)), emulator
        return replace(asked, machine=machine_name(emulator.machine)), emulator

    def _keys_of(
        self, turn: Turn, sweep: Sweep, emulator: Emulator | AhbmError
    ) -> tuple[Keys, list[tuple[int, Resized | None] | None]]:
        algorithm = sweep.algorithms[turn.algorithm] if sweep.algorithms else None
        return Keys(sweep, algorithm, emulator), _sizes(sweep, algorithm, emulator)

    def _job(self, part: _Part, turn: Turn, job: str) -> Case:
        content: list[object] = [_kept(self._contents, job, KEPT_KEYS, lambda: _content(job))]
        found, emulator = _kept(
            self._sweeps, (turn.part, job, turn.machine), KEPT_KEYS, lambda: self._on(turn.part, turn.machine, job=job)
        )
        if isinstance(emulator, Emulator):
            on: Emulator = emulator
            said = _kept(self._configured, (turn.part, turn.machine), KEPT_KEYS, lambda: configured(on))
            content += said
        algorithm = found.algorithms[turn.algorithm] if found.algorithms else None
        return Case(found, algorithm, 0, None, 0, turn.at, Keys(found, algorithm, emulator, content).of(0, 0))

    def _refuse_unknown_algorithms(self, number: int) -> None:
        space = self._parts[number].space
        hows: list[dict[str, Any]] = [{"collective": collective} for collective in space.measured]
        hows += [{"job": str(job)} for job in several_of(space.jobs)[:1]]
        for how in hows:
            for machine in range(min(space.machines, TRIED)):
                asked, emulator = self._on(number, machine, **how)
                if isinstance(emulator, Emulator):
                    for name in asked.algorithms:
                        emulator.algorithm(asked.given.get(name, name))
                    break


def plan(space: Space, places: Places, *, mixed: bool = False) -> Iterator[Case]:
    """The cases of a space, in its order, equal ones too; mixed: as of `Cases`. Raises as `Cases`."""
    cases = Cases(space, places, mixed=mixed)
    found = (cases.case(position)[0] for position in range(cases.count))
    return (case for case in found if case is not None)


def _refuse_unknown_topologies(space: Space) -> None:
    for topology in several_of(space.topologies) or [None]:
        try:
            load_machine(topology)
        except TopologyError as error:
            # Whatever else is wrong may be put right by the overrides.
            if error.code in ("AHBM-T101", "AHBM-T102"):
                raise


def _terms(space: Space) -> tuple[dict[str, Any], dict[str, object]]:
    """What all sweeps of a space have in common, and the entries of its schedules in ccl.yaml."""
    names, given = space.named()
    algorithms, entries = with_schedules([name for name in names if name is not None])
    # A row says whether a result that was to be checked is right: where this cannot be decided without data, data move.
    # Checks that there are not are refused by each case.
    checks = set[str]() if isinstance(space.check, bool) else outcome(lambda: parse(str(space.check)))
    decides = not isinstance(checks, AhbmError) and "result" in checks
    return {"data": space.data or (None if decides else False), "algorithms": algorithms, "given": given}, entries


def _kept(found: OrderedDict[Hashable, _Value], key: Hashable, most: int, make: Callable[[], _Value]) -> _Value:
    if key not in found:
        found[key] = make()
        if len(found) > most:
            found.popitem(last=False)
    found.move_to_end(key)
    return found[key]


def _sizes(
    sweep: Sweep, algorithm: str | None, emulator: Emulator | AhbmError
) -> list[tuple[int, Resized | None] | None]:
    """For each size that is asked for, as the algorithm takes it; as it is asked for where it or the machine does not
    load; None for one that became another."""
    asked = list(sweep.asked())
    found = outcome(lambda: sweep.unit(algorithm, emulator)) if isinstance(emulator, Emulator) else emulator
    unit = Unit(1, "") if isinstance(found, AhbmError) else found
    fitted: list[tuple[int, Resized | None] | None] = []
    sizes = sweep.sizes(unit)
    if sweep.collective == "barrier":
        return [next(sizes), *[None] * (len(asked) - 1)]
    for (_, same), size in zip(groupby(asked, unit.whole), sizes, strict=True):
        fitted += [size, *[None] * (len(list(same)) - 1)]
    return fitted


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
