"""Sweeps and their cases: one collective on one machine, by several algorithms at several sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ahbm
from ahbm.base import codes
from ahbm.base.collectives import COLLECTIVES, require_collective
from ahbm.base.elements import element
from ahbm.base.sizes import Resized, Unit
from ahbm.errors import AhbmError, ConfigError
from ahbm.runs.plans import added, free_name, is_file, same_collective, source_of
from ahbm.source.algorithm import Algorithm
from ahbm.source.located import refuse_kernel
from ahbm.source.plan import PlanAlgorithm

if TYPE_CHECKING:
    from ahbm._core import Machine
    from ahbm.base.request import Request
    from ahbm.check.case import Case as Prepared
    from ahbm.core.emulator import Emulator
    from ahbm.runs.report import Report


@dataclass(frozen=True)
class Sweep:
    """What cases that follow each other have in common: the machine, and what runs there."""

    collective: str
    begin: int
    """First size, in bytes."""
    end: int
    """Last size, in bytes."""
    factor: int = 2
    """Sizes grow by this factor ..."""
    step: int = 0
    """... or, when not 0, by this many bytes."""
    dtype: str = "f16"
    op: str = "sum"
    root: int = 0
    algorithms: Sequence[str] = ()
    """Names or paths, of plans too; empty: the configured algorithm."""
    given: Mapping[str, Algorithm] = field(default_factory=dict)
    """The algorithms among these that ccl.yaml does not name, by the names that they have in `algorithms`."""
    topology: str | Path | Machine | None = None
    ccl: str | Path | None = None
    overrides: Mapping[str, object] = field(default_factory=dict)
    data: bool | None = True
    """None: only where the check of the result cannot decide without."""
    device: bool = False
    """On device tensors: every cube of every SIP holds one tile of the size, and is a contribution of its own."""
    check: bool | str = False
    """Checks to make of every size, as for `ahbm.run`."""
    listed: Sequence[int] = ()
    """These sizes, in bytes, instead of those from `begin` to `end`."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """By algorithm, what a reader of its rows should know."""
    machine: str = ""
    """Of a space: the machine in words."""
    varied: Mapping[str, object] = field(default_factory=dict)
    """Of a space: the overrides that differ somewhere in it."""
    job: str | None = None
    """Of a space: a training job, in place of the collective."""

    def __post_init__(self) -> None:
        """Raises ConfigError (AHBM-C140) for sizes that are no sweep, C105 for an unknown collective."""
        refuse_kernel(self.collective)
        require_collective(self.collective)
        least = min(self.listed, default=self.begin)
        if least < 1:
            raise ConfigError("AHBM-C140", f"a sweep of {least} bytes", hint="the smallest size is 1 byte")
        if self.begin > self.end and not self.listed:
            raise ConfigError(
                "AHBM-C140",
                f"the first size, {self.begin} bytes, is larger than the last, {self.end} bytes",
                hint="-b takes the first and -e the last; 1K is 1024 bytes, 1e3 are 1000",
            )
        if self.step < 0 or (self.step == 0 and self.factor < 2):
            raise ConfigError(
                "AHBM-C140",
                f"sizes do not grow: factor {self.factor}, step {self.step} bytes",
                hint="use -f 2 or more, or -i with a number of bytes",
            )

    def emulator(self) -> Emulator:
        """The machine and configuration. Raises TopologyError, ConfigError."""
        from ahbm.core.emulator import Emulator

        return Emulator.load(self.topology, self.ccl, self.overrides)

    def with_plans(self) -> Sweep:
        """The sweep with the files of plans among its algorithms under names of their own, on SIPs for all of their
        ranks.

        Raises ConfigError (AHBM-C178) for plans of another collective or of several numbers of ranks, and as
        `ahbm.runs.plans.prepare`.
        """
        files = {name: free_name(name, self.ccl, self.overrides) for name in self.algorithms if is_file(name)}
        if not files:
            return self
        sources = {name: source_of(file) for file, name in files.items()}
        beside = len(files) < len(self.algorithms)
        found = added(sources, self.topology, self.overrides, beside=beside)
        same_collective(found.collective, self.collective, next(iter(files)))
        algorithms = tuple(files.get(name, name) for name in self.algorithms)
        return replace(self, algorithms=algorithms, overrides=found.overrides, notes={**self.notes, **found.notes})

    def measured_on(self, emulator: Emulator, *, choosing: bool = False) -> Sweep:
        """As it runs there: a calibrated machine is asked for times, of sizes as large as were measured. For whoever
        chooses the quickest, `choosing`, contributions to the results are followed instead of data."""
        if not self.data or self.check or emulator.machine.bands is None:
            return self
        return replace(self, data=None, check="result") if choosing else replace(self, data=False)

    def cases(self, emulator: Emulator) -> Iterator[Case]:
        """The cases, algorithm by algorithm; the sizes of a plan are multiples of its own unit."""
        for algorithm in self.algorithms or (None,):
            for nbytes, resized in self.sizes(self.unit(algorithm, emulator)):
                yield Case(self, algorithm, nbytes, resized)

    def unit(self, algorithm: str | None, emulator: Emulator) -> Unit:
        """What every size of an algorithm is a multiple of; for a plan, of its own unit too."""
        named = self.named(algorithm)
        ranks = emulator.settings(named).world_size or emulator.world_size
        unit = Unit.of_arrays(self.collective, ranks, self.dtype)
        plan = emulator.algorithm(named) if named is not None else None
        if not isinstance(plan, PlanAlgorithm):
            return unit
        own = plan.read.unit(element(self.dtype).storage.itemsize) * plan.how.instances
        return unit.and_of(own, f"{self.collective} by {plan.name}")

    def named(self, algorithm: str | None) -> str | Algorithm | None:
        """The algorithm of a name, where ccl.yaml does not have it."""
        return None if algorithm is None else self.given.get(algorithm, algorithm)

    def sizes(self, unit: Unit) -> Iterator[tuple[int, Resized | None]]:
        """The sizes in ascending order, as `unit` takes them, without repetitions, each with those that became it; of a
        barrier, one element."""
        if self.collective == "barrier":
            return iter([(element(self.dtype).storage.itemsize, None)])
        return unit.fit(self.asked())

    def asked(self) -> Iterator[int]:
        """The sizes in ascending order, as they are asked for."""
        if self.listed:
            yield from sorted(self.listed)
            return
        size = self.begin
        while size <= self.end:
            yield size
            size = size + self.step if self.step else size * self.factor


@dataclass(frozen=True)
class Case:
    """One run of a sweep. Can be pickled unless its algorithm is a function."""

    sweep: Sweep
    algorithm: str | None
    nbytes: int
    """Bytes of one rank's array; 0 of a job."""
    resized: Resized | None = None
    """Sizes that were asked for in place of `nbytes`."""
    seed: int = 0
    """Of the data."""
    at: int = 0
    """Position in a space."""
    key: str = ""
    """Of a case of a space, 64 hex digits: equal keys are equal rows, in every process and on every computer."""

    def prepared(self, emulator: Emulator) -> Prepared:
        """What is measured. Raises as `ahbm.runs.measure.prepare`."""
        from ahbm.runs.measure import prepare

        sweep = self.sweep
        case = prepare(
            sweep.collective,
            sweep.named(self.algorithm),
            bytes_per_pe=self.nbytes if sweep.device else None,
            size=None if sweep.device else self.nbytes,
            placement=ahbm.DPPolicy(cube="row_wise") if sweep.device else None,
            dtype=sweep.dtype,
            op=sweep.op,
            root=sweep.root,
            emulator=emulator,
        )
        note = sweep.notes.get(self.algorithm or "")
        notes = case.notes if note is None else (*case.notes, note)
        return replace(case, notes=notes, resized=self.resized or case.resized)

    def run(self, emulator: Emulator) -> Report:
        """Runs it. Raises as `ahbm.runs.measure.measure`."""
        from ahbm.runs.measure import measure

        return measure(self.prepared(emulator), data=self.sweep.data, seed=self.seed, check=self.sweep.check)


@dataclass(frozen=True)
class Refused:
    """A case that did not run."""

    algorithm: str
    bytes: int
    machine: str
    error: AhbmError
    resized: Resized | None = None
    """Sizes that were asked for in place of `bytes`."""
    dtype: str = "f16"
    op: str = "none"
    """As in a report."""
    root: int = -1

    @staticmethod
    def of(
        asked: Sweep | Request, algorithm: str, nbytes: int, machine: str, error: AhbmError, resized: Resized | None
    ) -> Refused:
        """A case of what was asked for."""
        kind = COLLECTIVES[asked.collective]
        op, root = asked.op if kind.reduces else "none", asked.root if kind.rooted else -1
        return Refused(algorithm, nbytes, machine, error, resized, asked.dtype, op, root)

    def to_json(self) -> dict[str, Any]:
        """What did not run, and why, as JSON-serialisable data."""
        stated = {name: getattr(self, name) for name in ("algorithm", "machine", "bytes")}
        return {**stated, "error": self.error.to_json()}

    @property
    def left_out(self) -> bool:
        """Whether this is a size that a plan does not take (AHBM-F127): no failure where the plan takes others."""
        return self.error.code == codes.SIZE_UNFIT
