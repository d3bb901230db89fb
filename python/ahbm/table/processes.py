"""Runs on the processes of this computer: what a process keeps between its batches, and what it is sent."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from ahbm._core import Machine
from ahbm.check.case import Case as Prepared
from ahbm.check.exploration import attempt
from ahbm.config.ccl import CclConfig, split_overrides
from ahbm.config.topology import load_machine
from ahbm.core.emulator import Emulator
from ahbm.core.lowerings import Lowerings
from ahbm.errors import AhbmError, DistributedError, Finding
from ahbm.table.cases import Case, Sweep
from ahbm.table.columns import LOST
from ahbm.table.engine import Pool, ordered, run

if TYPE_CHECKING:
    from ahbm.core.spec import Spec
    from ahbm.runs.report import Report

_Item = TypeVar("_Item")
_Row = TypeVar("_Row")

KEPT = 8
"""Machines that a process keeps, and configurations: cases of one follow each other."""
LATEST_S = 1.0
"""Seconds after which a batch comes back with what it has done."""


class Places:
    """The emulators of sweeps, the latest of them kept; configurations and algorithms are read once."""

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

    def forget_programs(self) -> None:
        """Lets the programs of the emulator that was asked for last go."""
        for emulator in list(self._found.values())[-1:]:
            emulator.forget_programs()

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


@dataclass
class _Here:
    token: str = ""
    places: Places | None = None


_here = _Here()


def places(token: str) -> Places:
    """What this process keeps for one sweep: what was read for another may have changed."""
    if _here.token != token or _here.places is None:
        _here.token, _here.places = token, Places()
    return _here.places


def batch(one: Callable[[_Item], _Row], items: Sequence[_Item]) -> tuple[list[_Row], float]:
    """What `one` gives of the first of some items, at least of one and of no more than `LATEST_S` allows; and the
    seconds that they took."""
    rows: list[_Row] = []
    start = time.perf_counter()
    for item in items:
        rows.append(one(item))
        if time.perf_counter() - start > LATEST_S:
            break
    return rows, time.perf_counter() - start


def reports(cases: Sequence[Case], jobs: int) -> Iterator[Report | AhbmError | None]:
    """The reports of cases, in their order, from `jobs` processes. None where a case does not run: it is run again by
    who asks for it, where its error is whole. An error is that of a case that cannot be run again."""
    return _rows(cases, partial(_reports, uuid4().hex), jobs, dead)


def _reports(token: str, cases: Sequence[tuple[int, Case]]) -> tuple[list[Report | AhbmError | None], float]:
    def one(item: tuple[int, Case]) -> Report | AhbmError | None:
        try:
            return item[1].run(places(token).emulator(item[1].sweep))
        except Exception:
            return None

    return batch(one, cases)


def failing(case: Prepared, seeds: Sequence[int], checks: frozenset[str], jobs: int) -> Iterator[bool]:
    """Per seed, whether `ahbm.check.exploration.attempt` may fail or leave something undecided, on `jobs`
    processes; True of all on one, and of a case that does not compile.

    Raises DistributedError (AHBM-X140) for a seed whose process dies.
    """
    try:
        spec = case.spec()
    except AhbmError:
        return iter([True] * len(seeds))
    if min(jobs, len(seeds)) < 2:
        return iter([True] * len(seeds))

    def lost(why: str) -> bool:
        raise dead(why)

    return _rows(seeds, partial(_failing, spec, checks), min(jobs, len(seeds)), lost)


def _failing(spec: Spec, checks: frozenset[str], seeds: Sequence[tuple[int, int]]) -> tuple[list[bool], float]:
    case = Prepared.of(spec)

    def one(item: tuple[int, int]) -> bool:
        undecided: list[Finding] = []
        try:
            return attempt(case, item[1], checks=checks, tell=undecided.append) is not None or bool(undecided)
        except Exception:
            return True

    return batch(one, seeds)


def _rows(
    items: Sequence[_Item],
    call: Callable[[Sequence[tuple[int, _Item]]], tuple[list[_Row], float]],
    jobs: int,
    lost: Callable[[str], _Row],
) -> Iterator[_Row]:
    return ordered(run(enumerate(items), call, Pool(jobs, __name__), lambda _, why: [lost(why)]))


def dead(why: str) -> DistributedError:
    """The error of what was running when a process died, of which a text says more."""
    return DistributedError(LOST, f"the process that ran it died, alone and twice ({why.partition(':')[0]})")
