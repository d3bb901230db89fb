"""What a process of a sweep does with a range of positions: makes their cases, runs those that the store does not have,
and writes their rows there."""

from __future__ import annotations

import bisect
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from ahbm._core import Workload
from ahbm.base.sizes import Resized
from ahbm.errors import AhbmError, InterruptedRun
from ahbm.runs import bands
from ahbm.runs.report import Report
from ahbm.sweeps.case import Cases
from ahbm.sweeps.space import Space
from ahbm.table import processes
from ahbm.table.build import build
from ahbm.table.cases import Case, Refused
from ahbm.table.files import ID, INTERNAL, NAMES, NO_PROOF, Row, is_wrong
from ahbm.table.made import refusal, row_of
from ahbm.table.parts import Part, build_of, key_sum
from ahbm.table.processes import Places, places
from ahbm.table.running import of_case, outcome
from ahbm.table.store import Store

RECENT = 1000
"""Rows that a process remembers: a case that is equal to one of them does not run again."""
_CODE, _WRONG = NAMES.index("code"), NAMES.index("wrong")


@dataclass(frozen=True)
class Setup:
    """What the processes of a sweep are told."""

    token: str
    """Tells sweeps apart: what was read for another may have changed."""
    space: Space
    kinds: Mapping[str, str]
    """The types of the columns of overrides."""
    store: str | None = None
    digest: str = ""
    """Of the space, in the store."""
    looked: bool = False
    """Whether the store has rows that were not run for this space, among which cases may be."""


@dataclass
class Done:
    """What became of some positions of a space."""

    positions: int = 0
    known: int = 0
    """Cases whose rows the store had."""
    ran: int = 0
    failed: int = 0
    """Those of `ran` that did not run to their end."""
    wrong: int = 0
    """Those of `known` and `ran` whose result is wrong."""
    same: int = 0
    """Positions that are no case of their own: another is the same."""
    keys: int = 0
    """The sum of the keys of all cases."""
    resized: dict[Resized, None] = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)
    """By key, where no store keeps them."""

    def __len__(self) -> int:
        return self.positions

    def count(self, row: Row) -> None:
        """A case ran."""
        self.ran += 1
        self.failed += row[_CODE] is not None
        self.wrong += is_wrong(row[_WRONG], row[_CODE])


@dataclass
class _State:
    """What a process keeps for a sweep."""

    cases: Cases
    store: Store | None
    known: Known | None
    recent: OrderedDict[str, Row] = field(default_factory=OrderedDict)


class Known:
    """The rows of this build that a store had when a process first asked."""

    def __init__(self, store: Store) -> None:
        self._store = store
        own = build_of(build())
        self._parts = [part for part in store.parts() if part.build == own]
        ids, of = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for number, part in enumerate(self._parts):
            with store.opened(part) as file:
                ids.append(file.read([ID]).column(0).to_numpy())
            of.append(np.full(len(ids[-1]), number))
        order = np.argsort(np.concatenate(ids), kind="stable")
        self._ids, self._of = np.concatenate(ids)[order], np.concatenate(of)[order]
        self._rows = lru_cache(64)(self._proofs)

    def get(self, key: str) -> tuple[int | None, str | None] | None:
        """The `wrong` and `code` of the row of a key that will be the same on every day."""
        number = int(key[:15], 16)
        at = bisect.bisect_left(self._ids, number)
        while at < len(self._ids) and self._ids[at] == number:
            found = self._rows(self._parts[self._of[at]]).get(key)
            if found is not None:
                return found
            at += 1
        return None

    def _proofs(self, part: Part) -> dict[str, tuple[int | None, str | None]]:
        found = self._store.read(("key", "wrong", "code"), [part])
        judged = zip(found.column("wrong"), found.column("code"), strict=True)
        return {key: one for key, one in zip(found.column("key"), judged, strict=True) if one[1] not in NO_PROOF}


_states: dict[tuple[str, bool], _State] = {}


def _state(setup: Setup) -> _State:
    place = setup.token, setup.looked
    if place not in _states:
        _states.clear()
        store = None if setup.store is None else Store(setup.store)
        known = Known(store) if store is not None and setup.looked else None
        _states[place] = _State(Cases(setup.space, places(setup.token)), store, known)
    return _states[place]


def work(setup: Setup, positions: Sequence[int]) -> tuple[Done, float]:
    """What becomes of the first of some positions that follow each other, at least of one and of no more than
    `processes.LATEST_S` allows; and the seconds that they took. Their rows are in the store then."""
    start = time.perf_counter()
    state, here, done = _state(setup), places(setup.token), Done()
    cases, rows, keys = list[Case](), list[Row](), list[str]()
    for position in positions:
        done.positions += 1
        case, owner = state.cases.case(position)
        if case is None or not owner:
            done.same += 1
        if case is None:
            continue
        if case.resized is not None:
            done.resized[case.resized] = None
        keys.append(case.key)
        if not owner:
            continue
        stored = None if state.known is None else state.known.get(case.key)
        if stored is not None:
            done.known += 1
            done.wrong += is_wrong(*stored)
            continue
        cases.append(case)
        rows.append(_row(state, case, here))
        done.count(rows[-1])
        if time.perf_counter() - start > processes.LATEST_S:
            break
    done.keys = key_sum(keys)
    _keep(setup, state.store, done, range(positions[0], positions[0] + done.positions), cases, rows)
    return done, time.perf_counter() - start


def lost(setup: Setup, position: int, case: Case, found: Row) -> Done:
    """What becomes of a position whose process dies."""
    store = None if setup.store is None else Store(setup.store)
    done = Done(1, keys=key_sum([case.key]))
    done.count(found)
    _keep(setup, store, done, range(position, position + 1), [case], [found])
    return done


def _keep(
    setup: Setup, store: Store | None, done: Done, span: range, cases: Sequence[Case], rows: Sequence[Row]
) -> None:
    if store is None:
        done.rows = {case.key: row for case, row in zip(cases, rows, strict=True)}
    else:
        store.add(setup.digest, cases, rows, setup.kinds, span=span, keys=done.keys, wrong=done.wrong)


def measured(token: str, cases: Sequence[Case]) -> tuple[list[Row], float]:
    """The rows of the first of some cases, and the seconds that they took, as `ahbm.table.processes.batch`."""
    here = places(token)
    return processes.batch(lambda case: row(case, here), cases)


def looked_at(setup: Setup, positions: Sequence[int]) -> tuple[Done, float]:
    """The cases of positions and the sum of their keys; nothing runs."""
    start = time.perf_counter()
    state, done, keys = _state(setup), Done(len(positions)), list[str]()
    for position in positions:
        case, owner = state.cases.case(position)
        done.known += owner
        done.same += not owner
        if case is not None:
            keys.append(case.key)
            if case.resized is not None:
                done.resized[case.resized] = None
    done.keys = key_sum(keys)
    return done, time.perf_counter() - start


def _row(state: _State, case: Case, here: Places) -> Row:
    found = state.recent.get(case.key)
    if found is None:
        found = row(case, here)
        if found[_CODE] not in NO_PROOF:
            state.recent[case.key] = found
            if len(state.recent) > RECENT:
                state.recent.popitem(last=False)
    return found


def row(case: Case, places: Places) -> Row:
    """The row of a case; that of an error where it does not run. Raises InterruptedRun."""
    try:
        return _measured(case, places) if case.sweep.job is None else _replayed(case, places)
    except InterruptedRun:
        raise
    except Exception as error:
        # A defect: the other cases are none the worse for it.
        return refusal(case, INTERNAL, f"{type(error).__name__}: {error}")


def errors(machines: Iterable[str], rows: Iterable[Row]) -> list[str]:
    """What is told of the errors of rows on calibrated machines, by their machines in words."""
    places = [NAMES.index(name) for name in ("job", "bytes", "calibration")]
    return bands.of_rows((machine, *(row[at] for at in places)) for machine, row in zip(machines, rows, strict=True))


def cell_of(case: Case, places: Places) -> Report | Refused:
    """Runs a case; as `ahbm.table.running.attempt`, also of a machine that does not load."""
    sweep = case.sweep
    emulator = outcome(lambda: places.emulator(sweep))
    if isinstance(emulator, AhbmError):
        return Refused.of(sweep, case.algorithm or "-", case.nbytes, sweep.machine, emulator, case.resized)
    return of_case(case, emulator)


def _measured(case: Case, places: Places) -> Row:
    try:
        cell = cell_of(case, places)
    finally:
        # Cases of a sweep differ: none needs the program of another.
        places.forget_programs()
    return row_of(case, cell, lambda: places.emulator(case.sweep).machine)


def _replayed(case: Case, places: Places) -> Row:
    found = outcome(lambda: _replay(case, places))
    return refusal(case, found.code, found.message) if isinstance(found, AhbmError) else found


def _replay(case: Case, places: Places) -> Row:
    from ahbm.job.options import OfJob
    from ahbm.job.replay import replay
    from ahbm.job.transformer import read_manifest, transformer_of
    from ahbm.runs import plans

    sweep, job = case.sweep, str(case.sweep.job)
    by = None if case.algorithm is None else sweep.given.get(case.algorithm, case.algorithm)
    of = OfJob(topology=sweep.topology, ccl=sweep.ccl, overrides=sweep.overrides, algorithm=by)
    target: str | Workload = job
    if job.endswith((".yaml", ".yml")):
        target = transformer_of(read_manifest(job)).workload(plans.label(job), thin=True)
    found = replay(target, plans.label(job), of.setup(), of.how, emulator=places.emulator(sweep))
    values = dict.fromkeys(NAMES) | {
        "algorithm": case.algorithm or "-",
        "machine": sweep.machine,
        "topology": found.topology,
        "ranks": len(found.ranks),
        "latency_ns": found.latency_ns,
        "timeline_hash": found.times_hash,
        "job": job,
        "calibration": "; ".join(found.calibration) or None,
        "version": build(),
    }
    return tuple(values.values())
