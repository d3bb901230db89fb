"""A search instead of a sweep: the quickest cases of a space, without running those that cannot be."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from ahbm.base.arguments import refused
from ahbm.base.optional import needed
from ahbm.errors import AhbmError
from ahbm.sweeps import work
from ahbm.sweeps.case import Cases
from ahbm.sweeps.running import Progress
from ahbm.sweeps.space import Space
from ahbm.sweeps.stored import keyed
from ahbm.sweeps.sweep import Table, table_of, workers_of
from ahbm.sweeps.work import Done
from ahbm.table.cases import Case
from ahbm.table.columns import LOST
from ahbm.table.engine import Here, Workers, run
from ahbm.table.files import NAMES, Row, is_wrong
from ahbm.table.made import refusal
from ahbm.table.processes import Places, dead
from ahbm.table.running import outcome
from ahbm.table.store import Store

TOGETHER = 8
"""Cases of a batch for other processes: the fewer, the sooner what was found spares others."""
KEPT = 200
"""Rows of a part that a search writes."""
HALF = 2
"""Successive halving keeps one design of so many."""
_TIME, _WRONG, _CODE = (NAMES.index(name) for name in ("latency_ns", "wrong", "code"))
Asked = tuple[Any, ...]
"""What cases that compete have in common: as `ahbm.sweeps.answers.ASKED`."""


@dataclass(order=True)
class Trial:
    """A case that may be the quickest."""

    bound_ns: float
    """No time is below it: of the network and the request, whatever the algorithm."""
    at: int
    case: Case = field(compare=False)
    asked: Asked = field(compare=False)

    @property
    def design(self) -> tuple[Any, ...]:
        """The machine and the algorithm."""
        return self.case.sweep.machine, self.case.algorithm


class Search:
    """The quickest case of everything that a space computes: asks for cases, and is told their times.

    Cases come in the order of their lower bounds. One whose bound is above the best time of what it competes with is
    never asked for: it cannot be better, so the best is that of the whole space.
    """

    def __init__(self, space: Space | Mapping[str, Any] | str | Path) -> None:
        """Raises as `ahbm.sweep`."""
        self.space = Space.of(space)
        places = Places()
        cases = Cases(self.space, places)
        self.trials: list[Trial] = []
        """All of them, in the order of the bounds."""
        for position in range(cases.count):
            case, owner = cases.case(position)
            if case is not None and owner:
                self.trials.append(_trial(case, places))
        self.trials.sort()
        self.best: dict[Asked, tuple[float, int, Case]] = {}
        """Of what competes, the least time in ns, its place in the space, and the case."""
        self.measured = 0
        self._times: dict[int, float] = {}
        self._left = list(self.trials)

    def hopeless(self, trial: Trial) -> bool:
        """Whether a case cannot be better than the best so far."""
        best = self.best.get(trial.asked)
        return best is not None and (trial.bound_ns, trial.at) > best[:2]

    def ask(self) -> Trial | None:
        """The next case to run; None where no other can be the best."""
        while self._left:
            trial = heapq.heappop(self._left)
            if not self.hopeless(trial):
                return trial
        return None

    def tell(self, trial: Trial, latency_ns: float | None) -> None:
        """What a case took; None where it did not run, or its result is wrong."""
        self.measured += 1
        if latency_ns is None or math.isnan(latency_ns):
            return
        self._times[trial.at] = latency_ns
        mine = latency_ns, trial.at, trial.case
        if trial.asked not in self.best or mine[:2] < self.best[trial.asked][:2]:
            self.best[trial.asked] = mine

    @property
    def spared(self) -> int:
        """Cases of which nobody was told."""
        return len(self.trials) - self.measured

    def halving(self) -> Iterator[list[Trial]]:
        """Rungs of successive halving, by size: all designs at the least size, then the better half at the next, and so
        on; whoever asks tells each before the next rung. A design that is slow at small sizes may be quick at large
        ones, which nobody learns: this finds a good design, not surely the best."""
        sizes = sorted({trial.case.nbytes for trial in self.trials})
        designs = dict.fromkeys(trial.design for trial in sorted(self.trials, key=lambda trial: trial.at))
        for size in sizes:
            rung = [one for one in self.trials if one.case.nbytes == size and one.design in designs]
            yield [one for one in rung if not self.hopeless(one)]
            score: dict[tuple[Any, ...], float] = {}
            for one in rung:
                share = self._times.get(one.at, math.inf) / max(self.best.get(one.asked, (1.0,))[0], 1e-9)
                score[one.design] = max(score.get(one.design, 0.0), share)
            order = sorted(score, key=lambda design: score[design])
            designs = dict.fromkeys(order[: max(1, -(-len(order) // HALF))])

    def sampled(self, trials: int, seed: int = 0) -> Iterator[list[Trial]]:
        """The cases of designs that Optuna's TPE sampler picks, at most so many designs, no design twice; whoever asks
        tells each before the next. For spaces that are too large for bounds of all cases to be of use.

        Raises UnsupportedError (AHBM-U145) where optuna is not installed.
        """
        optuna = needed("optuna", "optuna is not installed", "pip install optuna")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
        designs: dict[tuple[Any, ...], list[Trial]] = {}
        axes: dict[str, dict[Any, None]] = {}
        by_axes: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for one in sorted(self.trials, key=lambda trial: trial.at):
            designs.setdefault(one.design, []).append(one)
            where = _axes(one)
            by_axes[tuple(where.values())] = one.design
            for name, value in where.items():
                axes.setdefault(name, {})[value] = None
        left = dict.fromkeys(designs)
        for _ in range(trials):
            if not left:
                return
            asked = study.ask()
            picked = tuple(asked.suggest_categorical(name, list(values)) for name, values in axes.items())
            design = by_axes.get(picked)
            if design is None or design not in left:
                # What was picked is no design, or ran before.
                study.tell(asked, state=optuna.trial.TrialState.PRUNED)
                continue
            del left[design]
            some = [one for one in designs[design] if not self.hopeless(one)]
            if some:
                yield some
            times = [self._times.get(one.at) for one in some]
            if not some or None in times:
                study.tell(asked, state=optuna.trial.TrialState.PRUNED)
            else:
                study.tell(asked, math.fsum(math.log(time) for time in times if time))


def _axes(trial: Trial) -> dict[str, Any]:
    on = trial.case.sweep
    return {
        "algorithm": trial.case.algorithm,
        "topology": str(on.topology),
        **{k: str(v) for k, v in on.varied.items()},
    }


def _trial(case: Case, places: Places) -> Trial:
    sweep = case.sweep
    common = (sweep.job, sweep.collective, case.nbytes, sweep.dtype, sweep.op, sweep.root, case.seed)
    if sweep.job is not None:
        return Trial(0.0, case.at, case, (*common, None))
    prepared = outcome(lambda: case.prepared(places.emulator(sweep)))
    if isinstance(prepared, AhbmError):
        # It is a row with its code, at once.
        return Trial(0.0, case.at, case, (*common, None))
    bound = outcome(lambda: prepared.emulator.bound(prepared.request).ps)
    least = 0.0 if isinstance(bound, AhbmError) or not bound else bound / 1000
    return Trial(least, case.at, case, (*common, len(prepared.request.ranks)))


def optimize(
    space: Space | Mapping[str, Any] | str | Path,
    *,
    trials: int | None = None,
    halving: bool = False,
    jobs: int | None = None,
    store: str | Path | None = None,
    tell: Callable[[Progress], object] | None = None,
    seed: int = 0,
) -> tuple[Table, Search]:
    """The quickest case of everything that a space computes (of equals, the first), and the search that found it.

    Surely the quickest, unless trials (designs that Optuna picks) or halving (successive halving on sizes) is given.
    jobs: processes of this computer. store: as of `ahbm.sweep`; rows that it has are not run again. Raises as
    `ahbm.sweep`.
    """
    search = Search(space)
    workers = workers_of(search.space, jobs)
    if trials is not None and (halving or trials < 1):
        raise refused("trials", "a number of designs, without halving", trials)
    runner = _Runner(search, workers, store, tell)
    if trials is not None:
        for some in search.sampled(trials, seed):
            runner.run(iter(some))
    elif halving:
        for some in search.halving():
            runner.run(iter(some))
    else:
        runner.run(iter(search.ask, None))
    runner.write()
    best = sorted((case for _, _, case in search.best.values()), key=lambda case: case.at)
    return table_of(search.space, best, {case.key: runner.rows[case.key] for case in best}), search


class _Runner:
    """Runs trials where the rows of none is known."""

    def __init__(
        self,
        search: Search,
        workers: Workers,
        store: str | Path | None,
        tell: Callable[[Progress], object] | None,
    ) -> None:
        self._search, self._workers, self._tell = search, workers, tell
        self.rows: dict[str, Row] = {}
        self.progress = Progress(len(search.trials))
        self._store = None if store is None else Store(store)
        self._known: dict[str, Row] = {}
        self._new: list[tuple[Case, Row]] = []
        self._digest = ""
        if self._store is not None:
            self._digest = self._store.begin(
                {"search": search.space.to_json(), "cost": search.space.to_json().get("cost")}
            )
            found = keyed(self._store, {trial.case.key for trial in search.trials})
            self._known = {key: row for key, row in found.items() if row[_CODE] != LOST}

    def run(self, trials: Iterator[Trial]) -> None:
        """Runs trials, and tells the search of each."""
        flying: dict[str, Trial] = {}

        def new() -> Iterator[Case]:
            for trial in trials:
                known = self._known.get(trial.case.key)
                if known is not None:
                    self.progress.known += 1
                    self._done(trial, known)
                    continue
                flying[trial.case.key] = trial
                yield trial.case

        def lost(case: Case, why: str) -> list[Row]:
            return [refusal(case, LOST, dead(why).message)]

        call = partial(work.measured, uuid4().hex)
        # Here nothing is sent: every case is told before the next is asked for.
        most = 1 if isinstance(self._workers, Here) else TOGETHER
        for cases, rows in run(new(), call, self._workers, lost, most, 0):
            for case, row in zip(cases, rows, strict=True):
                self._done(flying.pop(case.key), row)
                self._new.append((case, row))
            if len(self._new) >= KEPT:
                self.write()
            done = Done(ran=len(rows), failed=sum(row[_CODE] is not None for row in rows))
            self.progress.add(done)
            if self._tell is not None:
                self._tell(self.progress)

    def write(self) -> None:
        """Writes what is new."""
        if self._store is not None and self._new:
            cases, rows = zip(*self._new, strict=True)
            self._store.add(self._digest, cases, rows, self._search.space.kinds)
        self._new = []

    def _done(self, trial: Trial, row: Row) -> None:
        self.rows[trial.case.key] = row
        right = row[_CODE] is None and not is_wrong(row[_WRONG], row[_CODE])
        self._search.tell(trial, row[_TIME] if right else None)
