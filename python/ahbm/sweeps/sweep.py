"""`ahbm.sweep`: what a space asks for, measured anywhere, each case once; a table of plain values."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, overload

import numpy as np
from numpy.typing import NDArray

import ahbm
from ahbm.base import html
from ahbm.base.arguments import checked, refused, whole
from ahbm.base.sizes import resize_notes
from ahbm.errors import UnsupportedError
from ahbm.runs.report import Report
from ahbm.source.function import AnyAlgorithm
from ahbm.sweeps import answers, work
from ahbm.sweeps.case import plan
from ahbm.sweeps.running import Progress, swept
from ahbm.sweeps.space import SIZES, Space
from ahbm.sweeps.stored import keyed
from ahbm.table.cases import Case, Refused
from ahbm.table.columns import FAILED, MEASURED
from ahbm.table.engine import Given, Here, Pool, Workers
from ahbm.table.files import NAMES, Row, is_wrong
from ahbm.table.processes import Places
from ahbm.table.rows import Rows
from ahbm.table.store import Store

if TYPE_CHECKING:
    from ahbm._core import Machine

CASES_OF_A_WORKER = 50
"""Cases for which it is worth to begin a process."""
COLUMNS = tuple(column.name for column in MEASURED)
_SHOWN = ("bytes", "latency_ns", "busbw_gbs", "percent_of_bound", "wrong", "code")


class Table(Rows):
    """The cases of a sweep in the order of its space, however they were run.

    `columns`: `COLUMNS` (units as in `Report`); `seed` and `job` where there are several; one column for each override
    that was varied; and `FAILED`. `space`: what was asked for. `notes`: sizes that were asked for and cannot be
    divided, and those that ran in their place.
    """

    @checked
    def __init__(
        self,
        columns: Sequence[str],
        values: Sequence[Sequence[Any]] | Mapping[str, Any],
        space: Space,
        notes: Sequence[str] = (),
        places: Sequence[int] | None = None,
    ) -> None:
        """places: those of the rows among the cases of the space; None where all are there, in order."""
        super().__init__(columns, values)
        self.space, self.notes = space, tuple(notes)
        self.computed = frozenset(space.costs)
        self._places = range(len(self)) if places is None else tuple(places)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Table: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | Rows:
        """A row, or of a slice a table. Raises IndexError for a row that there is not."""
        return super().__getitem__(index)

    @checked
    def at(self, rows: NDArray[np.int64]) -> Table:
        """The table of some rows, in this order."""
        found = super().at(rows)
        values = {name: found.column(name) for name in self.columns}
        return Table(self.columns, values, self.space, self.notes, [self._places[row] for row in rows])

    @checked
    def best(self) -> Table:
        """Of everything computed (collective, ranks, size, type, job) the quickest row, as `ahbm sweep show --best`.
        Rows that did not run or are wrong take no part."""
        return self.at(answers.best(self))

    @checked
    def pareto(self, *goals: str) -> Table:
        """Of everything computed the rows that no other beats in all of `goals`, as `ahbm sweep show --pareto`.

        goals: columns of numbers of which less is better, or "time", "memory", "bandwidth", "size"; with "-" in front,
        more is. Raises ConfigError (AHBM-C187) for columns that there are not, and for no goal.
        """
        return self.at(answers.pareto(self, goals))

    @checked
    def plot(self, what: str = "curves", *goals: str) -> Any:
        """The chart of `ahbm.plot`, which a notebook shows; `.svg()` and `.png()` are its files."""
        return ahbm.plot(self, what, *goals)

    @cached_property
    def cells(self) -> tuple[Report | Refused, ...]:
        """The reports of the rows, and the errors of those that did not run. Each case runs again, here, when this is
        first read: rows are plain values, and equal cases are equal reports. Jobs have none."""
        return tuple(self._again(lambda code: True))

    @property
    def reports(self) -> list[Report]:
        """The reports of the cells that ran; see `cells`."""
        return [cell for cell in self._again(lambda code: code is None) if isinstance(cell, Report)]

    @property
    def refused(self) -> list[Refused]:
        """The cells that did not run, with their errors; see `cells`."""
        return [cell for cell in self._again(lambda code: code is not None) if isinstance(cell, Refused)]

    def _again(self, wanted: Callable[[str | None], bool]) -> Iterator[Report | Refused]:
        places, cases = Places(), list(plan(self.space, Places()))
        for place, code in zip(self._places, self.column("code"), strict=True):
            if cases[place].sweep.job is None and wanted(code):
                yield work.cell_of(cases[place], places)

    @property
    def wrong(self) -> int:
        """Rows of cases whose result is wrong."""
        return sum(map(is_wrong, self.column("wrong"), self.column("code")))

    @property
    def failed(self) -> int:
        """Rows of cases that did not run."""
        return sum(code is not None for code in self.column("code"))

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *(f"note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        return f"<Table of {self._summary()}>"

    def _repr_html_(self) -> str:
        names = self._shown()
        return html.table(f"Sweep: {self._summary()}", names, [[row[name] for name in names] for row in self])

    def _shown(self) -> list[str]:
        """The columns for people: those in which rows differ, and the measured ones that any row has."""
        given = [name for name in self.columns if name not in (*_SHOWN, "count", "timeline_hash", "message")]
        measured = COLUMNS[COLUMNS.index("latency_ns") :]
        varied = [name for name in given if name not in measured and len(set(self.column(name)) - {None}) > 1]
        named = [name for name in ("collective", "algorithm") if name not in varied]
        return [*named, *varied, *(name for name in _SHOWN if any(value is not None for value in self.column(name)))]

    def _summary(self) -> str:
        message = f"{len(self)} rows" + (f", {self.failed} of them did not run" if self.failed else "")
        return message + (f", {self.wrong} of them wrong" if self.wrong else "")


@checked
def sweep(
    collectives: str | Path | Sequence[str] | Mapping[str, Any] | Space | None = None,
    algorithms: AnyAlgorithm | Sequence[AnyAlgorithm] = None,
    topologies: str | Path | Machine | Sequence[str | Path | Machine] | None = None,
    *,
    sizes: int | str | Sequence[int | str] = SIZES,
    dtypes: str | Sequence[str] = "f16",
    overrides: Mapping[str, object] | None = None,
    ccl: str | Path | None = None,
    op: str | Sequence[str] = "sum",
    root: int | Sequence[int] = 0,
    seeds: int | Sequence[int] = 0,
    data: bool = True,
    check: bool | str = False,
    executor: Executor | Callable[[], Executor] | None = None,
    jobs: int | None = None,
    store: str | Path | None = None,
    tell: Callable[[Progress], object] | None = None,
) -> Table:
    """Measures each collective by each algorithm on each machine, at each size, in each element type.

    collectives: one or several, as for `ahbm.run`; or all that is swept: a `Space`, a mapping of its fields, or the
    path of a YAML file with them (`docs/sweeps.md`), beside which nothing that a space says is given.
    algorithms: one or several, in every form that `ahbm.run` takes, or `synth:METHOD`; None takes what ccl.yaml
    chooses. topologies, dtypes: one or several, as for `ahbm.run`.
    sizes: bytes of one rank's array, numbers or texts such as "64K"; rounded down to what the collective can divide.
    overrides: dotted path -> value; a list is several values, each of which is a machine or configuration of its own.
    op, root, seeds: one or several; seeds of the data. ccl, data, check: as for `ahbm.run`.
    jobs: processes of this computer that share the work, at most one for every 50 cases; None for this process alone.
    executor: any `concurrent.futures.Executor` in their place, or a function that makes one, which is called again when
    it breaks; then `jobs` says how many workers it has.
    store: a folder for the rows, or a URL that fsspec knows (`s3://BUCKET/PREFIX`), where all workers reach it: they
    write their rows themselves. What is in it already is not run again.
    tell: is called with how far the sweep is: first before anything runs, then whenever rows have come.

    A case that does not run is a row with its code and message; the others run. Raises before anything runs: what
    topologies, configurations and algorithms that do not exist raise, ConfigError (AHBM-C129, C105, C107, C140, C143,
    C147, C185), UnsupportedError (AHBM-U145, U146 for a function that other processes are to run); then
    DistributedError (AHBM-X141) where the processes do not start, ConfigError (AHBM-C141) where the store cannot be
    written, and InterruptedRun.
    """
    axes: dict[str, Any] = {"algorithms": algorithms, "topologies": topologies, "sizes": sizes, "dtypes": dtypes}
    axes |= {"overrides": overrides, "ccl": ccl, "ops": op, "roots": root, "seeds": seeds}
    axes |= {"data": data, "check": check}
    if is_space(collectives):
        given = [name for name, value in axes.items() if value is not _DEFAULTS[name] and value != _DEFAULTS[name]]
        if given:
            raise refused("a sweep", "a space, or what makes one", given)
        space = Space.of(collectives)
    else:
        space = Space(collectives, **axes)  # type: ignore[arg-type]
    rows: dict[str, Row] = {}
    for done in swept(space, workers_of(space, jobs, executor), store, tell=tell):
        rows |= done.rows
    order = list(plan(space, Places()))
    if store is not None:
        rows = keyed(Store(store), {case.key for case in order})
    return table_of(space, order, rows)


_DEFAULTS = {field.name: field.default for field in fields(Space)}


def is_space(value: object) -> TypeGuard[Space | Mapping[str, Any] | str | Path]:
    """Whether this stands for a whole space, and not for collectives."""
    return isinstance(value, Space | Mapping | Path) or (isinstance(value, str) and value.endswith((".yaml", ".yml")))


def _makes(executor: object) -> bool:
    """Whether it can be called without arguments, as far as it says."""
    if not callable(executor):
        return False
    try:
        inspect.signature(executor).bind()
    except TypeError:
        return False
    except ValueError:  # one in C that says nothing of its arguments
        return True
    return True


def worth(cases: int, jobs: int | None) -> int:
    """How many processes so many cases are worth, of at most `jobs`; fewer than two: none beside this one."""
    return min(jobs or 1, cases // CASES_OF_A_WORKER)


def workers_of(space: Space, jobs: int | None, executor: Executor | Callable[[], Executor] | None = None) -> Workers:
    """Where a space is swept: see `sweep`. Raises ConfigError (AHBM-C129), UnsupportedError (AHBM-U146)."""
    count = None if jobs is None else whole("jobs", jobs, 1, 4096)
    if executor is not None and not isinstance(executor, Executor) and not _makes(executor):
        raise refused("executor", "an Executor, or a function that makes one", executor)
    if executor is None and worth(space.count, count) < 2:
        return Here()
    for name in [name for one in space.spaces() for name in one.named()[1]]:
        raise UnsupportedError(
            "AHBM-U146",
            f"{name} is a function, which other processes do not have",
            hint="write the kernel into a file and name its path, or sweep without jobs and executor",
        )
    if executor is not None:
        return Given(executor, count)
    return Pool(worth(space.count, count), work.__name__)


def table_of(space: Space, order: Sequence[Case], rows: Mapping[str, Row]) -> Table:
    """The table of a space: its cases in order, with the rows of their keys."""
    varied = space.varied
    seeds = ("seed",) if any(isinstance(one.seeds, list | tuple) for one in space.spaces()) else ()
    job = ("job",) if any(case.sweep.job is not None for case in order) else ()
    picked = [NAMES.index(name) for name in (*COLUMNS, *seeds, *job)]
    machine, seed = COLUMNS.index("machine"), NAMES.index("seed")
    failed = [NAMES.index(name) for name in FAILED]
    values = []
    for case in order:
        row = list(rows[case.key])
        # Equal machines have one row, whatever each of them is called.
        row[machine], row[seed] = case.sweep.machine, case.seed
        overrides = [case.sweep.varied.get(name) for name in varied]
        named = dict(zip((*NAMES, *varied), (*row, *overrides), strict=True))
        cost = [one.value(named) for one in space.costs.values()]
        values.append((*(row[at] for at in picked), *overrides, *cost, *(row[at] for at in failed)))
    machines = [case.sweep.machine for case in order]
    notes = (*resize_notes(case.resized for case in order), *work.errors(machines, (rows[case.key] for case in order)))
    return Table((*COLUMNS, *seeds, *job, *varied, *space.costs, *FAILED), tuple(values), space, notes)
