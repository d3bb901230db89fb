"""The time of every algorithm of a catalogue at every size on every machine: the true optimum of every choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import cached_property
from pathlib import Path
from typing import Any

from ahbm._core import Machine
from ahbm.base import codes
from ahbm.base.arguments import checked, refused, shown
from ahbm.base.quickest import quickest
from ahbm.choose.catalogue import Catalogue
from ahbm.choose.regret import Loss, Point, Regret
from ahbm.config.topology import load_machine
from ahbm.core.spec import machine_name
from ahbm.errors import AhbmError, ConfigError
from ahbm.runs.candidates import none_left
from ahbm.source.switches import count_nodes
from ahbm.sweeps.running import Progress
from ahbm.sweeps.space import Space
from ahbm.sweeps.sweep import sweep
from ahbm.table.columns import FAILED
from ahbm.table.rows import Rows

COLUMNS = ("machine", "topology", "ranks", "bytes", "algorithm", "time_ns", "bound_ns", *FAILED)
"""Of an `OracleTable`: bytes of one rank's array; simulated ns, None where the algorithm does not run; the least ns
that any algorithm could take, None where none is known."""
AnyMachine = str | Path | Machine


class OracleTable(Rows):
    """A row for each machine, size and algorithm, in this order. The columns are `COLUMNS`."""

    def __init__(
        self,
        values: Sequence[Sequence[Any]],
        catalogue: Catalogue,
        machines: dict[str, Machine],
        collective: str,
        dtype: str,
    ) -> None:
        """machines: by the names of the column `machine`."""
        super().__init__(COLUMNS, values)
        self.catalogue, self.machines = catalogue, machines
        self.collective, self.dtype = collective, dtype

    def _facts(self) -> tuple[object, ...]:
        return *super()._facts(), self.collective, self.dtype

    @cached_property
    def _times(self) -> dict[tuple[str, int], dict[str, int]]:
        found: dict[tuple[str, int], dict[str, int]] = {}
        for machine, _, _, nbytes, algorithm, time_ns, *_ in self.values:
            times = found.setdefault((machine, nbytes), {})
            if time_ns is not None:
                times[algorithm] = round(time_ns * 1000)
        return found

    def times(self, machine: str, nbytes: int) -> dict[str, int]:
        """Ps of each algorithm that runs there, by name, in the catalogue's order.

        Raises ConfigError (AHBM-C129) for a point that the table does not have.
        """
        if (machine, nbytes) not in self._times:
            raise ConfigError("AHBM-C129", f"the table has no {nbytes} bytes on {shown(machine)}")
        return self._times[machine, nbytes]

    def nodes(self, point: Point) -> int:
        """Nodes of its machine among which the ranks of a point are."""
        return count_nodes(self.machines[point.machine], range(point.ranks))

    def best(self, machine: str, nbytes: int) -> tuple[str, int]:
        """The quickest algorithm and its ps; the first in the catalogue's order among equals.

        Raises as `none_left` where there is none, and as `times`.
        """
        times = self.times(machine, nbytes)
        if not times:
            raise self.none_left(f"at {nbytes} bytes on {machine}", lambda row: (row[0], row[3]) == (machine, nbytes))
        name = quickest(times)
        assert name is not None
        return name, times[name]

    def none_left(self, at: str, here: Callable[[tuple[Any, ...]], bool] = lambda row: True) -> AhbmError:
        """The error of `ahbm.runs.candidates.none_left` for rows in which no algorithm runs and is right; `at` is
        where, in words."""
        rows = [row for row in self.values if here(row)]
        names = dict.fromkeys(row[4] for row in rows)
        wrong = {row[4] for row in rows if codes.says_wrong(row[7])}
        first = next((row for row in rows if not wrong or row[4] in wrong), None)
        why = f"{first[7]} {first[8]}" if first else "there is none"
        of = f"of the {len(names)} algorithms of the catalogue for {self.collective}"
        return none_left(of, names, wrong, at, why=why)

    @cached_property
    def wrong(self) -> dict[str, str]:
        """The algorithms whose result is wrong somewhere, and the first reason; there they have no time."""
        return self._reasons(codes.says_wrong)

    @cached_property
    def undecided(self) -> dict[str, str]:
        """The algorithms of which it is not known somewhere whether the result is right, and the first reason; there
        they have no time."""
        return self._reasons(lambda code: code == codes.RESULT_UNDECIDED)

    @cached_property
    def refused(self) -> dict[str, str]:
        """The algorithms that did not run somewhere, and the first reason."""
        return self._reasons(lambda code: code != codes.RESULT_UNDECIDED and not codes.says_wrong(code))

    def _reasons(self, wanted: Callable[[str], bool]) -> dict[str, str]:
        found: dict[str, str] = {}
        for row in self:
            if row["code"] is not None and wanted(row["code"]):
                message = f"{row['code']} {row['message']} ({row['bytes']} B on {row['machine']})"
                found.setdefault(row["algorithm"], message)
        return found

    def wrong_at(self, point: Point) -> list[str]:
        """The algorithms whose result is wrong at a point."""
        return self._wrong_at.get((point.machine, point.nbytes), [])

    @cached_property
    def _wrong_at(self) -> dict[tuple[str, int], list[str]]:
        found: dict[tuple[str, int], list[str]] = {}
        for row in self.values:
            if codes.says_wrong(row[7]):
                found.setdefault((row[0], row[3]), []).append(row[4])
        return found

    def points(self, wrong: bool = False) -> list[Point]:
        """The points at which any algorithm runs, in the order of the rows; with `wrong`, those too at which results
        are wrong alone."""
        facts = {(row[0], row[3]): row for row in self.values}
        return [
            Point(
                machine, self.machines[machine].topology, facts[machine, nbytes][2], nbytes, self.collective, self.dtype
            )
            for (machine, nbytes), times in self._times.items()
            if times or (wrong and (machine, nbytes) in self._wrong_at)
        ]

    def only(self, wanted: Callable[[Point], bool]) -> OracleTable:
        """The rows of some points."""
        keep = {(point.machine, point.nbytes) for point in self.points() if wanted(point)}
        rows = tuple(row for row in self.values if (row[0], row[3]) in keep)
        machines = {name: machine for name, machine in self.machines.items() if any(name == at for at, _ in keep)}
        return OracleTable(rows, self.catalogue, machines, self.collective, self.dtype)

    def joined(self, other: OracleTable) -> OracleTable:
        """The rows of both, of the same machines and calls, and the catalogues of both; of one name, the other's."""
        taken = {entry.name for entry in other.catalogue}
        kept = [entry for entry in self.catalogue if entry.name not in taken]
        catalogue = Catalogue(kept, self.catalogue.ccl, self.catalogue.overrides) + other.catalogue
        rows = [*(row for row in self.values if row[4] not in taken), *other.values]
        return OracleTable(rows, catalogue, self.machines, self.collective, self.dtype)

    def regret(self, choose: Callable[[Point], str | None]) -> Regret:
        """What the choices of `choose` lose at every point for which it has one: time / the quickest time - 1.

        Where the chosen algorithm does not run, the slowest that runs stands for it. Raises ConfigError (AHBM-C180) for
        a choice that the catalogue does not have, and what `choose` raises.
        """
        names = {entry.name for entry in self.catalogue.of_collective(self.collective)}
        losses, refusals = [], 0
        for point in self.points():
            chosen, times = choose(point), self.times(point.machine, point.nbytes)
            if chosen is None:
                continue
            if chosen not in names:
                raise ConfigError("AHBM-C180", f"{shown(chosen)} was chosen, which the catalogue does not have")
            refusals += chosen not in times
            taken, (best, least) = times.get(chosen, max(times.values())), self.best(point.machine, point.nbytes)
            losses.append(Loss(point, chosen, taken, best, least))
        return Regret.of(losses, refusals)

    @property
    def runs(self) -> int:
        """Rows that ran."""
        return sum(len(times) for times in self._times.values())

    def __repr__(self) -> str:
        return f"<OracleTable of {len(self)} rows, {len(self) - self.runs} of them did not run>"


class Oracle:
    """Measures every algorithm of a catalogue at every size on every machine, each pair once. Contributions to the
    result are checked; data move only where these do not decide whether it is right."""

    @checked
    def __init__(
        self,
        catalogue: Catalogue,
        machines: AnyMachine | Sequence[AnyMachine],
        sizes: Sequence[int],
        *,
        collective: str = "all_reduce",
        dtype: str = "f16",
        executor: Executor | Callable[[], Executor] | None = None,
        jobs: int | None = None,
        store: str | Path | None = None,
        tell: Callable[[Progress], object] | None = None,
    ) -> None:
        """machines: packaged names, paths or Machines; sizes: bytes of one rank's array, rounded down to whole elements
        of every rank. executor, jobs, store, tell: as of `ahbm.sweep`; with a store, what it has is not run again.

        Raises ConfigError: AHBM-C129 for a catalogue without the collective; and what loading machines raises.
        """
        listed = machines if isinstance(machines, list | tuple) else [machines]
        self.machines: dict[str, Machine] = {}
        for machine in map(load_machine, listed):
            name = machine_name(machine)
            if self.machines.setdefault(name, machine).hash != machine.hash:
                raise refused("machines", "machines of different names", name)
        entries = catalogue.of_collective(collective)
        if not entries:
            raise ConfigError("AHBM-C129", f"the catalogue has no algorithm for {shown(collective)}")
        self.catalogue = catalogue
        self._space = Space(
            collective,
            [entry.given or entry.name for entry in entries],
            list(self.machines.values()),
            sizes=list(sizes),
            dtypes=dtype,
            ccl=catalogue.ccl,
            overrides=catalogue.overrides,
            data=False,
            check="result",
        )
        self._jobs, self._executor = jobs, executor
        self._store, self._tell = store, tell

    def table(self) -> OracleTable:
        """Runs what the store does not have, and gives all rows. An algorithm that does not run, or whose result is
        wrong or undecided, has a row with the code and the message of its error. Raises as `ahbm.sweep`."""
        found = sweep(self._space, jobs=self._jobs, executor=self._executor, store=self._store, tell=self._tell)
        rows = list(found)
        bounds = {(row["machine"], row["bytes"]): row["bound_ns"] for row in rows if row["code"] is None}
        values = []
        for row in rows:
            name, at = row["machine"], (row["machine"], row["bytes"])
            machine = self.machines[name]
            place = (name, machine.topology, row["ranks"] or machine.sips, row["bytes"], row["algorithm"])
            values.append((*place, row["latency_ns"], bounds.get(at), *(row[name] for name in FAILED)))
        # The space goes algorithm by algorithm, the table size by size.
        order = {name: number for number, name in enumerate(self.machines)}
        values.sort(key=lambda row: (order[row[0]], row[3]))
        space = self._space
        return OracleTable(values, self.catalogue, self.machines, space.measured[0], str(space.dtypes))
