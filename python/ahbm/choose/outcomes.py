"""What every algorithm of a catalogue takes for a call: looked up in an oracle's tables, or simulated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ahbm._core import Machine
from ahbm.base import codes
from ahbm.base.arguments import checked, refused, shown
from ahbm.base.arguments import overrides as overrides_of
from ahbm.base.request import Request
from ahbm.base.yaml_source import scalar_text
from ahbm.check.case import Case
from ahbm.choose.catalogue import Catalogue, Entry
from ahbm.choose.oracle import AnyMachine, OracleTable
from ahbm.config.ccl import CclConfig
from ahbm.config.topology import load_machine
from ahbm.core.emulator import Emulator
from ahbm.core.lowerings import Lowerings
from ahbm.core.spec import machine_name
from ahbm.errors import AhbmError, ConfigError, UnsupportedError
from ahbm.runs.candidates import none_left
from ahbm.runs.measure import verify
from ahbm.source.algorithm import Algorithm
from ahbm.table.running import outcome

OTHER = ("AHBM-C115", "it computes another collective")
"""The refusal of a call of another collective than an entry's."""

MISSING = ("AHBM-C129", "the table does not have it at this size")
"""The refusal where a table has no row of an entry: it takes other sizes only."""


@dataclass(frozen=True)
class Outcome:
    """What the entries of a catalogue take for one call on one machine."""

    ps: tuple[int | None, ...]
    """Simulated time of each entry, in ps; None where it does not run, or its result is not known to be right."""
    bound_ps: int
    """The least time that any algorithm could take."""
    refusals: Mapping[int, tuple[str, str]]
    """By entry, code and message of why it does not run, or of what is wrong with its result."""
    names: tuple[str, ...]
    """Of the entries."""

    @cached_property
    def best(self) -> int:
        """The quickest entry, the first of equals. Raises as `ahbm.runs.candidates.none_left` where there is none."""
        return min(self._running, key=lambda at: self._running[at])

    @cached_property
    def slowest(self) -> int:
        """The slowest entry that runs, the first of equals. Raises as `best`."""
        return max(self._running, key=lambda at: self._running[at])

    @cached_property
    def _running(self) -> dict[int, int]:
        found = {at: ps for at, ps in enumerate(self.ps) if ps is not None}
        if not found:
            of = {at: reason for at, reason in self.refusals.items() if reason != OTHER}
            names = {at: self.names[at] for at in of}
            wrong = {names[at] for at, (code, _) in of.items() if codes.says_wrong(code)}
            why = "; ".join(f"{code} {message}" for code, message in list(of.values())[:4])
            raise none_left(f"of {len(of)} algorithms of the catalogue", names.values(), wrong, "for the call", why=why)
        return found


class Outcomes(ABC):
    """The machines of a catalogue, and what its entries take on them."""

    def __init__(self, catalogue: Catalogue, machines: Mapping[str, Machine]) -> None:
        self.catalogue = catalogue
        self._names = tuple(entry.name for entry in catalogue)
        self.machines = dict(machines)
        """By name, those that somebody may choose on."""
        self._known: dict[tuple[str, Request], Outcome] = {}
        self._ill: dict[str, Machine] = {}
        self._emulators: dict[str, Emulator] = {}

    def __getstate__(self) -> dict[str, object]:
        # Other processes make emulators of their own.
        return {**vars(self), "_emulators": {}}

    def __deepcopy__(self, memo: object) -> Outcomes:
        # What is known is only added to: environments may share it.
        return self

    def machine(self, name: str) -> Machine:
        """A machine by its name, or one with a fault. Raises ConfigError (AHBM-C129)."""
        found = self.machines.get(name) or self._ill.get(name)
        if found is None:
            raise ConfigError("AHBM-C129", f"there is no machine {shown(name)}", hint=", ".join([*self.machines][:8]))
        return found

    @abstractmethod
    def requests(self, machine: str) -> list[Request]:
        """The calls that are known of a machine without simulating, in order of size; none where all are simulated."""

    @abstractmethod
    def _measured(self, machine: str, request: Request) -> tuple[list[int | None], dict[int, tuple[str, str]]]: ...

    def of(self, machine: str, request: Request) -> Outcome:
        """What every entry takes for a call.

        Raises ConfigError (AHBM-C129) for a call that is not known, UnsupportedError (AHBM-U148) where no bound is.
        """
        key = (machine, request)
        if key not in self._known:
            ps, refusals = self._measured(machine, request)
            self._known[key] = Outcome(tuple(ps), self.bound(machine, request), refusals, self._names)
        return self._known[key]

    def bound(self, machine: str, request: Request) -> int:
        """The least ps that any algorithm could take for a call. Raises UnsupportedError (AHBM-U148)."""
        found = self.emulator(machine).bound(request)
        if not found.ps:
            what = f"{request.collective} of {request.world_size} ranks on {machine} has no bound: {found.reason}"
            raise UnsupportedError("AHBM-U148", what, hint="a reward is a share of the bound: choose other calls")
        return found.ps

    def with_fault(self, machine: str, fault: Mapping[str, object]) -> str:
        """The name of a machine with overrides laid over it. Raises ConfigError (AHBM-C129) where it is not known, and
        what loading it raises."""
        made = changed(self.machine(machine), fault)
        name = self._faulty(made)
        self._ill[name] = made
        return name

    @abstractmethod
    def _faulty(self, machine: Machine) -> str: ...

    def emulator(self, machine: str) -> Emulator:
        """An emulator of a machine with the catalogue's configuration."""
        if machine not in self._emulators:
            found = self.machine(machine)
            first = next(iter(self._emulators.values()), None)
            if first is None:
                config = CclConfig.load(self.catalogue.ccl, self.catalogue.overrides)
                self._emulators[machine] = Emulator(found, config, Lowerings())
            else:
                self._emulators[machine] = first.on(found)
        return self._emulators[machine]

    def shares(self, machine: str, request: Request, entry: int) -> NDArray[np.float64]:
        """What each chunk that a rank sends another has of the critical path when an entry performs a call, as shares
        of its time: shape (chunks,), in the order of the senders' ranks. It is simulated.

        Raises what running the entry raises.
        """
        compiled = Case(self.emulator(machine), request, _by(self.catalogue[entry])).compiled()
        if compiled.program is None:
            return np.zeros(0)
        timeline = compiled.program.simulate(record=False, detail=True)
        shares: NDArray[np.float64] = timeline.chunks_ps() / max(timeline.latency_ps, 1)
        return shares


class Recorded(Outcomes):
    """The outcomes of an oracle's tables, of one catalogue each; nothing is simulated."""

    @checked
    def __init__(self, tables: OracleTable | Sequence[OracleTable]) -> None:
        """tables: of one catalogue. Raises ConfigError (AHBM-C129) for none, and for tables of several catalogues."""
        listed: list[OracleTable] = [tables] if isinstance(tables, OracleTable) else list(tables)
        if not listed or len({table.catalogue.id for table in listed}) > 1:
            raise refused("tables", "tables of one catalogue", tables)
        machines: dict[str, Machine] = {}
        for table in listed:
            machines |= table.machines
        super().__init__(listed[0].catalogue, machines)
        self._rows: dict[tuple[str, Request], dict[str, tuple[int | None, str, str]]] = {}
        for table in listed:
            # A row that did not run does not know how many ranks it has.
            ranks = {row[0]: row[2] for row in table.values if row[5] is not None}
            for machine, _, _, nbytes, algorithm, time_ns, _, code, message in table.values:
                if machine in ranks:
                    request = request_of(table.collective, nbytes, ranks[machine], table.dtype)
                    here = self._rows.setdefault((machine, request), {})
                    here[algorithm] = (None if time_ns is None else round(time_ns * 1000), code, message)

    def requests(self, machine: str) -> list[Request]:
        runs = {key: any(row[0] is not None for row in rows.values()) for key, rows in self._rows.items()}
        return [request for at, request in self._rows if at == machine and runs[at, request]]

    def _measured(self, machine: str, request: Request) -> tuple[list[int | None], dict[int, tuple[str, str]]]:
        rows = self._rows.get((machine, request))
        if rows is None:
            what = f"the table has no {request.collective} of {request.nbytes} bytes of {request.dtype}"
            who = f"among ranks {request.ranks} of {machine}"
            raise ConfigError("AHBM-C129", f"{what} {who}", hint="an environment of Live simulates any call")
        ps: list[int | None] = []
        refusals = {}
        for at, entry in enumerate(self.catalogue):
            found = rows.get(entry.name, (None, *MISSING)) if entry.collective == request.collective else (None, *OTHER)
            time_ps, code, message = found
            ps.append(time_ps)
            if time_ps is None:
                refusals[at] = (code, message)
        return ps, refusals

    def _faulty(self, machine: Machine) -> str:
        for name, known in self.machines.items():
            if known.hash == machine.hash:
                return name
        what = f"the tables have no machine {machine_name(machine)}"
        raise ConfigError("AHBM-C129", what, hint="give faulty(machines, faults) to the oracle, besides the machines")


class Live(Outcomes):
    """Outcomes that the emulator finds when they are first asked for; it looks at results as an `Oracle` does."""

    @checked
    def __init__(self, catalogue: Catalogue, machines: AnyMachine | Sequence[AnyMachine]) -> None:
        """machines: packaged names, paths or Machines. Raises what loading them raises."""
        listed = machines if isinstance(machines, list | tuple) else [machines]
        super().__init__(catalogue, {machine_name(machine): machine for machine in map(load_machine, listed)})

    def requests(self, machine: str) -> list[Request]:
        return []

    def _measured(self, machine: str, request: Request) -> tuple[list[int | None], dict[int, tuple[str, str]]]:
        emulator = self.emulator(machine)
        ps: list[int | None] = []
        refusals: dict[int, tuple[str, str]] = {}
        for at, entry in enumerate(self.catalogue):
            if entry.collective != request.collective:
                refusals[at] = OTHER
                ps.append(None)
                continue
            case = Case(emulator, request, _by(entry))
            found = outcome(lambda: verify(case, data=None, seed=0, mode="integers", check="result")[0].latency_ps)  # noqa: B023
            if isinstance(found, AhbmError):
                refusals[at] = (found.code, found.message)
            ps.append(None if isinstance(found, AhbmError) else found)
        emulator.forget_programs()
        return ps, refusals

    def _faulty(self, machine: Machine) -> str:
        return machine_name(machine)


def _by(entry: Entry) -> str | Algorithm:
    return entry.given or entry.name


def request_of(collective: str, nbytes: int, ranks: int, dtype: str) -> Request:
    """The call of `nbytes` bytes of one rank's array among the first ranks, rounded down to whole chunks.

    Raises what `Request` raises for an unknown collective or element type.
    """
    one = Request(collective, range(ranks), 1, dtype)
    return Request(collective, range(ranks), max(nbytes // one.nbytes, 1), dtype)


def changed(machine: Machine, fault: Mapping[str, object]) -> Machine:
    """A machine with overrides laid over it. Raises what loading it raises."""
    laid = overrides_of(fault) or {}
    return machine.changed([(key, scalar_text(value)) for key, value in laid.items()])


@checked
def faulty(machines: Sequence[AnyMachine], faults: Sequence[Mapping[str, object]]) -> list[Machine]:
    """Each machine with each fault, for an oracle whose tables are to have them.

    Raises what loading them raises, for a fault that a machine cannot have too."""
    return [changed(machine, fault) for machine in map(load_machine, machines) for fault in faults]
