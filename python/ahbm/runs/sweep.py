"""`ahbm.sweep`: collectives, algorithms, machines, sizes and element types, each with each; a table of plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ahbm.base import html
from ahbm.base.arguments import checked, refused, text
from ahbm.base.arguments import overrides as overrides_of
from ahbm.core.emulator import Emulator
from ahbm.errors import ConfigError
from ahbm.runs.bench import Refused, Sweep, attempt, parse_dtype, parse_size
from ahbm.runs.plans import with_plans
from ahbm.runs.report import Report
from ahbm.runs.rows import Rows
from ahbm.source.algorithm import Algorithm
from ahbm.source.function import AnyAlgorithm, as_algorithm

if TYPE_CHECKING:
    from ahbm._core import Machine

SIZES = ("1K", "32K", "1M")
COLUMNS = (
    "collective",
    "algorithm",
    "machine",
    "topology",
    "ranks",
    "bytes",
    "count",
    "dtype",
    "op",
    "root",
    "latency_ns",
    "algbw_gbs",
    "busbw_gbs",
    "bound_ns",
    "percent_of_bound",
    "limited_by",
    "messages",
    "wrong",
    "timeline_hash",
)
"""The fields of a report that a row holds."""
FAILED = ("code", "message")
"""Of a cell that did not run: the code of its error and what it says; None in every other row."""
_SHOWN = ("bytes", "latency_ns", "busbw_gbs", "percent_of_bound", "wrong", "code")


@dataclass(frozen=True, repr=False)
class Table(Rows):
    """The cells of a sweep in the order in which they ran.

    A row has the columns `COLUMNS` (units as in `Report`), one for each override that was varied, and `FAILED`.
    """

    cells: tuple[Report | Refused, ...] = field(compare=False)
    """The reports behind the rows, and the errors of the cells that did not run."""

    @property
    def reports(self) -> list[Report]:
        """The reports of the cells that ran."""
        return [cell for cell in self.cells if isinstance(cell, Report)]

    @property
    def refused(self) -> list[Refused]:
        """The cells that did not run, with their errors."""
        return [cell for cell in self.cells if isinstance(cell, Refused)]

    def __repr__(self) -> str:
        return f"<Table of {self._told()}>"

    def _repr_html_(self) -> str:
        names = self._shown()
        return html.table(f"Sweep: {self._told()}", names, [[row[name] for name in names] for row in self.rows])

    def _shown(self) -> list[str]:
        """The columns for people: those in which rows differ, and the measured ones that any row has."""
        given = [name for name in self.columns if name not in (*_SHOWN, "count", "timeline_hash", "message")]
        measured = COLUMNS[COLUMNS.index("latency_ns") :]
        varied = [name for name in given if name not in measured and len({row[name] for row in self.rows} - {None}) > 1]
        named = [name for name in ("collective", "algorithm") if name not in varied]
        return [*named, *varied, *(name for name in _SHOWN if any(row[name] is not None for row in self.rows))]

    def _told(self) -> str:
        failed = len(self.refused)
        return f"{len(self)} rows" + (f", {failed} of them did not run" if failed else "")


@checked
def sweep(
    collectives: str | Sequence[str] = "all_reduce",
    algorithms: AnyAlgorithm | Sequence[AnyAlgorithm] = None,
    topologies: str | Path | Machine | Sequence[str | Path | Machine] | None = None,
    *,
    sizes: int | str | Sequence[int | str] = SIZES,
    dtypes: str | Sequence[str] = "f16",
    overrides: Mapping[str, object] | None = None,
    ccl: str | Path | None = None,
    op: str = "sum",
    root: int = 0,
    data: bool = True,
    check: bool | str = False,
) -> Table:
    """Measures each collective by each algorithm on each machine, at each size, in each element type, one by one.

    collectives, topologies, dtypes: one or several, as for `ahbm.run`.
    algorithms: one or several, in every form that `ahbm.run` takes; None takes what ccl.yaml chooses.
    sizes: bytes of one rank's array, numbers or texts such as "64K"; rounded down to what the collective can divide.
    overrides: dotted path -> value; a list is several values, each of which is a machine or configuration of its own.
    ccl, op, root, data, check: as for `ahbm.run`.

    A cell that does not run is a row with its code and message; the others run. Raises before anything runs: what
    loading machines, configurations and algorithms raises, ConfigError (AHBM-C129, C105, C143, C147); and
    InterruptedRun.
    """
    given = overrides_of(overrides) or {}
    varied = [key for key, value in given.items() if isinstance(value, list | tuple)]
    named = _named(_several(algorithms))
    listed = tuple(parse_size(size) if isinstance(size, str) else size for size in _several(sizes))
    for size in listed:
        if isinstance(size, bool) or not isinstance(size, int):
            raise refused("sizes", "bytes, or texts such as 64K", size)
    shared: dict[str, Any] = {"begin": 1, "end": 1, "listed": listed, "op": op, "root": root, "ccl": ccl}
    shared |= {"data": data, "check": check, "given": named[1], "algorithms": named[0]}
    choices = product(*(_several(value) if key in varied else [value] for key, value in given.items()))
    machines = list(product(_several(topologies), [dict(zip(given, values, strict=True)) for values in choices]))
    emulators: dict[int, Emulator] = {}
    planned = []
    for collective, number, dtype in product(_several(collectives), range(len(machines)), _several(dtypes)):
        topology, chosen = machines[number]
        each = with_plans(
            Sweep(
                text("collectives", collective),
                dtype=parse_dtype(text("dtypes", dtype)),
                topology=topology,
                overrides=chosen,
                **shared,
            )
        )
        if number not in emulators:
            emulators[number] = each.emulator()
            for name in each.algorithms:
                emulators[number].algorithm(named[1].get(name, name))
        planned.append((each, emulators[number], {key: chosen[key] for key in varied}))
    columns = (*COLUMNS, *varied, *FAILED)
    rows, cells = [], []
    for each, emulator, chosen in planned:
        for cell in attempt([each], emulator):
            cells.append(cell)
            rows.append({name: None for name in columns} | chosen | _row(cell, each))
    return Table(columns, tuple(rows), tuple(cells))


def _row(cell: Report | Refused, sweep: Sweep) -> dict[str, Any]:
    if isinstance(cell, Report):
        return {name: getattr(cell, name) for name in COLUMNS}
    what = {"collective": sweep.collective, "dtype": sweep.dtype, "algorithm": cell.algorithm, "bytes": cell.bytes}
    return what | {"machine": cell.machine, "code": cell.error.code, "message": cell.error.message}


def _several(values: Any) -> list[Any]:
    return list(values) if isinstance(values, list | tuple | range) else [values]


def _named(algorithms: Sequence[AnyAlgorithm]) -> tuple[tuple[str, ...], dict[str, Algorithm]]:
    """Names of the algorithms, none for None alone; and those that are not names, by name."""
    if len(algorithms) == 1 and algorithms[0] is None:
        return (), {}
    found: dict[str, Algorithm] = {}
    names = []
    for value in map(as_algorithm, algorithms):
        if value is None:
            raise refused("algorithms", "a list of algorithms", list(algorithms))
        name = value if isinstance(value, str) else value.name
        if name in names:
            raise ConfigError(
                "AHBM-C129", f"two algorithms of the sweep are called {name}", hint="ahbm.algorithm(kernel, name=...)"
            )
        names.append(name)
        if not isinstance(value, str):
            found[name] = value
    return tuple(names), found
