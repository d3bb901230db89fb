"""Replays recorded jobs (`ahbm run JOB`): traces of what every rank computed and which collectives it called.

Every collective is prepared as `ahbm.distributed` would perform it; data is not moved. A rank starts its part of a call
when it arrives, and goes on when its own part is done. Calls that overlap in simulated time contend for the machine's
links and engines.
"""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ahbm._core import Program, Replayed, Workload, check_timeline_name
from ahbm.base.arguments import checked
from ahbm.base.logs import INFO, log
from ahbm.base.words import aligned, span
from ahbm.config.protocols import held
from ahbm.config.topology import assumed, name_of, sheet
from ahbm.core.spec import machine_name
from ahbm.errors import BudgetError, ConfigError, Finding
from ahbm.job.preparation import Performed, Preparation, uneven
from ahbm.job.reading import AS_IT_IS, How, left_out, read
from ahbm.job.recorded import Recorded
from ahbm.ranks.calls import CallRecord, Row, calibrated, protocol_notes, table
from ahbm.runs.traces import Run
from ahbm.selectors.protocol import AnySelector

if TYPE_CHECKING:
    from ahbm.core.emulator import Emulator
    from ahbm.ranks.setup import Setup
    from ahbm.runs.rivals import Alternatives


@dataclass(frozen=True)
class RankTime:
    """The parts of a rank's time, in simulated nanoseconds."""

    rank: int
    total_ns: float
    compute_ns: float
    waiting_ns: float = 0.0
    """The part of the exposed time in which another rank had not arrived yet."""
    host_ns: float = 0.0
    """Time in which its device did nothing, because what it did next waited for the host."""

    @property
    def exposed_ns(self) -> float:
        """Time in which it did not compute: for communication, and for ranks that came later."""
        return round(1000 * (self.total_ns - self.compute_ns - self.host_ns)) / 1000


@dataclass(frozen=True)
class Exposed:
    """The communication that a rank exposes in one call: it does not compute, and what it does next waits for it."""

    rank: int
    call: int | None
    """Position in `JobReport.calls`; None for what is no call, as remote memory."""
    exposed_ns: float
    waiting_ns: float
    """The part of it in which another rank had not arrived yet."""


@dataclass(frozen=True)
class Stretch:
    """A stretch of a job's critical path."""

    rank: int
    start_ns: float
    end_ns: float
    what: str
    """"compute", "host", "memory" or "call"."""
    call: int | None
    """Position in `JobReport.calls`."""
    node: str
    origin: str


@dataclass(frozen=True)
class Asked:
    """What was replayed, and how: enough to replay it with changes."""

    workload: Workload
    target: str
    """Its file, prefix or folder; empty for a job in memory."""
    setup: Setup
    how: How


@dataclass(frozen=True)
class JobReport(Run):
    """One replayed job. Times are simulated; no data were moved."""

    job: str
    topology: str
    """Network between the SIPs."""
    machine: str
    """The machine in words: its topology, and the overrides that changed it."""
    ranks: tuple[RankTime, ...]
    latency_ns: float
    """End of the last rank."""
    path: tuple[Stretch, ...]
    """The critical path from start to end; its stretches sum to the job's time."""
    together: int
    """Calls that overlapped others in time."""
    untimed: int
    """Computations that take no time: they state neither a duration nor operations, or the machine costs nothing."""
    lanes: str
    """Which nodes of a rank ran side by side."""
    simulated: int
    """Ranks that were simulated; each of the others does what one of these does."""
    machine_hash: str
    version: str
    """Of this package."""
    warnings: tuple[Finding, ...]
    """What was left out in reading, and what the source leaves open."""
    emulator: Emulator = field(repr=False, compare=False)
    replayed: Replayed = field(repr=False, compare=False)
    performed: Performed = field(repr=False, compare=False)
    asked: Asked = field(repr=False, compare=False)
    recorded: Recorded | None = None
    """What the job took where it was recorded, as a profiler's trace says it; None where nothing does."""

    @cached_property
    def calls(self) -> tuple[CallRecord, ...]:
        """Every collective and message, in the order of their starts: when their last rank had arrived. Those of ranks
        that are copies of each other (`Workload.copies`) are there once; `CallRecord.copies` counts them."""
        return tuple(map(self.performed.record, self.performed.order))

    @cached_property
    def calibration(self) -> tuple[str, ...]:
        """What is known of the error of a calibrated machine."""
        return tuple(calibrated(self.performed.kinds(), self.emulator.machine))

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What the job took where it was recorded, whose data sheet the computations take, what became of the algorithm
        that was asked for, the protocols that the calls have, changes of the machine that they leave without effect,
        and what is known of the error of a calibrated machine."""
        return (
            *([] if self.recorded is None else [str(self.recorded)]),
            *assumed(self.emulator.machine),
            *(sheet(self.emulator.machine) if self.replayed.by_roofline else ()),
            *self.performed.notes,
            *protocol_notes(self.performed.protocols()),
            *self.effects,
            *self.calibration,
        )

    @cached_property
    def effects(self) -> tuple[str, ...]:
        """The changes of bandwidths of the machine that have no effect on the calls, or less than one might think."""
        machine = self.emulator.machine
        names = dict.fromkeys(made.protocol or machine.protocol or "" for made in self.performed.programs)
        return tuple(dict.fromkeys(note for name in names for note in held(machine, name)))

    @property
    def beside(self) -> list[str]:
        """What is said beside an explanation."""
        return list(self.notes)

    def alternatives(self) -> Alternatives:
        """As in `Run`: on the job itself."""
        from ahbm.job.advice import OfJob

        return OfJob(self, self.asked)

    def rows(self) -> list[Row]:
        """The calls by collective and number of ranks."""
        return self.performed.rows(self.emulator)

    @cached_property
    def times_hash(self) -> str:
        """16 hex digits; equal hashes are equal times of all nodes."""
        return hashlib.sha256(b"".join(column.tobytes() for column in self.replayed.every_node)).hexdigest()[:16]

    @cached_property
    def exposed(self) -> tuple[Exposed, ...]:
        """Per rank and call, what is exposed of it; those of a rank sum to its exposed time. Of ranks that are copies
        of each other (`Workload.copies`) the lowest is there."""
        place = self.performed.places
        return tuple(
            Exposed(rank, place[call], exposed_ps / 1000, waiting_ps / 1000)
            for rank, parts in self.replayed.exposures
            for call, exposed_ps, waiting_ps in parts
        )

    def program(self) -> Program | None:
        """The whole job as one program, whose hosts issue their nodes in the order that was found."""
        return self.replayed.program()

    @checked
    def write_timeline(self, path: str | Path) -> int:
        """Writes what every rank computes and calls, above the machine that runs it, as a timeline: `.pftrace` for
        Perfetto or `.json` for Chrome. Returns how many slices it has. Of a job whose operations are too many to show,
        the ranks alone are written, and a warning says so.

        Raises ConfigError (AHBM-C149) for other names, BudgetError (AHBM-B122) for a job too long to show, FormatError
        (AHBM-F102) for a file that cannot be written.
        """
        check_timeline_name(path)
        try:
            return self.replayed.write_timeline(path)
        except BudgetError as error:
            what = f"{path} shows the ranks without the machine: {error.findings[0].message}"
            warnings.warn(what, stacklevel=3)
            return self.replayed.write_timeline(path, ranks_only=True)

    @checked
    def write_trace(self, prefix: str | Path) -> list[Path]:
        """Writes the job with the operations of its calls in their places, and the times that they took, as a Chakra
        trace, which is a job again; returns its files. A warning says where the trace may take another time when it is
        run: where calls of a rank waited for each other's messages, and where calls had protocols by their sizes.

        Raises UnsupportedError (AHBM-U294) for a call with a barrier between ranks, FormatError for files that cannot
        be written.
        """
        files, contended = self.replayed.write_trace(prefix)
        if contended is not None:
            what = f"{prefix}: calls that overlap at rank {contended} waited for each other's messages"
            warnings.warn(f"{what}, whose order no trace keeps; run, it may take another time", stacklevel=3)
        if any(made.protocol and made.request.collective != "send_recv" for made in self.performed.programs):
            what = f"{prefix}: each message of a call is a call of its own, which finds a protocol by its own size"
            warnings.warn(f"{what}; run, it may take another time", stacklevel=3)
        return files

    def to_json(self) -> dict[str, Any]:
        """All fields but `emulator`, `replayed`, `performed` and `asked`, and `calls`, `exposed`, `times_hash` and
        `notes`, as JSON-serialisable data."""
        left_out = ("emulator", "replayed", "performed", "asked")
        names = [field.name for field in fields(self) if field.name not in left_out]
        at = names.index("path")
        names[at:at] = ["calls", "exposed"]
        names.insert(names.index("machine_hash"), "times_hash")
        data = {name: getattr(self, name) for name in names}
        data["ranks"] = [{**asdict(rank), "exposed_ns": rank.exposed_ns} for rank in self.ranks]
        for name in ("calls", "exposed", "path"):
            # Not `asdict`, which copies every value: there are as many entries as calls and stretches.
            data[name] = [dict(vars(entry)) for entry in data[name]]
        data["recorded"] = self.recorded and asdict(self.recorded)
        data["warnings"] = [warning.to_json() for warning in self.warnings]
        data["notes"] = list(self.notes)
        return data

    def exposures(self) -> list[tuple[str, int, float, float]]:
        """Collective, ranks of its group, and the exposed time and its waiting part as means over all ranks, in ns; the
        largest first."""
        sums: dict[tuple[str, int], list[int]] = {}
        for call, exposed_ps, waiting_ps in self.replayed.exposed_ps:
            key = ("other", 0) if call is None else self.performed.kind(call)
            entry = sums.setdefault(key, [0, 0])
            entry[0] += exposed_ps
            entry[1] += waiting_ps
        count = 1000 * max(len(self.ranks), 1)
        rows = [(name, ranks, a / count, b / count) for (name, ranks), (a, b) in sums.items()]
        return sorted(rows, key=lambda row: (-row[2], row[:2]))

    def on_path(self) -> list[tuple[str, float]]:
        """The parts of the critical path: "compute", "host", "memory" and the calls by collective and ranks, in ns;
        the largest first. They sum to the job's time."""
        sums: dict[str, float] = {}
        for stretch in self.path:
            label = stretch.what
            if stretch.call is not None:
                label = "{} of {} ranks".format(*self.performed.kind(self.performed.order[stretch.call]))
            sums[label] = sums.get(label, 0.0) + stretch.end_ns - stretch.start_ns
        return sorted(sums.items(), key=lambda item: (-item[1], item[0]))

    def shares(self) -> str:
        """The parts of the critical path in words."""
        parts = ", ".join(f"{label} {100 * ns / self.latency_ns:.3g} %" for label, ns in self.on_path())
        hidden = "" if any(stretch.what == "call" for stretch in self.path) else ": no communication is on it"
        return f"{parts}{hidden}"

    def __str__(self) -> str:
        machine, name = self.emulator.machine, name_of(self.emulator.machine)
        lines = [
            f"{self.job}: {len(self.ranks)} ranks on {machine.sips} SIPs in a {self.topology} ({name}), "
            f"{self.latency_ns / 1000:,.2f} us (simulated), {self.performed.count} calls, {self.together} "
            "overlapping others, time only"
        ]
        lines += table(self.rows())
        hosted = any(rank.host_ns for rank in self.ranks)
        heads = ("compute (us)", *["host (us)"][:hosted], "exposed (us)", "waiting (us)", "total (us)")
        cells: list[tuple[str, ...]] = [("ranks", *heads)]
        alike: dict[tuple[str, ...], list[int]] = {}
        for rank in self.ranks:
            times = (
                rank.compute_ns, *[rank.host_ns][:hosted], rank.exposed_ns, rank.waiting_ns, rank.total_ns
            )  # fmt: skip
            alike.setdefault(tuple(f"{time / 1000:.2f}" for time in times), []).append(rank.rank)
        cells += [(span(ranks), *shown) for shown, ranks in alike.items()]
        lines += aligned(cells)
        if self.replayed.exposed_ps:
            cells = [("exposed, mean of ranks", "(us)", "of it waiting (us)")]
            for name, ranks, exposed, waiting in self.exposures():
                label = f"{name} of {ranks} ranks" if ranks else name
                cells.append((label, f"{exposed / 1000:.2f}", f"{waiting / 1000:.2f}"))
            lines += aligned(cells)
        if self.path:
            lines.append(f"critical path: {self.shares()}")
        if self.untimed:
            on = self.emulator.machine.roofline.operations_per_ns > 0
            why = "they state none" if on else "they state none, or the machine has no pe.roofline"
            lines.append(f"{self.untimed} computations take no time: {why}")
        lines += [f"  {line}" for finding in self.warnings for line in str(finding).splitlines()]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)


def replay(
    job: str | Path | Workload,
    name: str,
    setup: Setup,
    how: How = AS_IT_IS,
    chooser: AnySelector = None,
    *,
    emulator: Emulator | None = None,
) -> JobReport:
    """Replays a job, or the one in a trace; rank r on SIP r. `chooser` may choose algorithms before anything else does.
    emulator: that of `setup`, where there is one already, with the programs that it knows.

    Raises ConfigError, TopologyError, FormatError and UnsupportedError for what the trace lacks (AHBM-F136, F149, U231,
    U234), for what cannot be performed, DeadlockError, BudgetError.
    """
    from ahbm import __version__

    workload = job if isinstance(job, Workload) else read(job, how)
    sized = setup.sized(workload.ranks)
    if emulator is None or sized is not setup:
        emulator = sized.emulator()
    if workload.ranks > emulator.machine.sips:
        what = f"{name} has {workload.ranks} ranks, the machine has {emulator.machine.sips} SIPs"
        raise ConfigError("AHBM-C120", what, hint=f"--ranks {workload.ranks} gives the machine as many")
    run: Replayed | None = None
    while run is None:
        if workload.copies > 1 and not how.fold:
            workload = workload.whole()
        preparation = Preparation(emulator, setup, how, chooser)
        calls = workload.calls
        programs = preparation.all(calls)
        first: dict[int, int] = {}
        run = workload.replay(
            emulator.machine,
            [compiled.program for compiled in programs],
            made_for=[first.setdefault(id(compiled), call) for call, compiled in enumerate(programs)],
            regions=preparation.regions(workload.chunks, calls, programs),
            lanes=how.lanes,
            factors=list(how.factors),
            fold=how.fold,
        )
        if run is None:
            log("emulator", INFO, "%s: ranks that are copies do not do the same on this machine", name)
            workload = workload.whole()
    log("emulator", INFO, "%s: %d of %d ranks simulated", name, run.simulated, workload.ranks)
    notes = tuple(preparation.notes(calls, programs))
    performed = Performed(calls, programs, tuple(preparation.rules), run.calls_ps, notes)
    columns = zip(run.ends_ps, run.computed_ps, run.waiting_ps, run.hosted_ps, strict=True)
    return JobReport(
        name,
        emulator.machine.topology,
        machine_name(emulator.machine),
        tuple(RankTime(rank, *(ps / 1000 for ps in column)) for rank, column in enumerate(columns)),
        max(run.ends_ps, default=0) / 1000,
        tuple(
            Stretch(
                rank, start / 1000, end / 1000, what, None if call is None else performed.places[call], node, origin
            )
            for rank, start, end, what, call, node, origin in run.path
        ),
        performed.together,
        run.untimed,
        how.lanes,
        run.simulated,
        f"{emulator.machine.hash:016x}",
        __version__,
        (*left_out(workload), *uneven(calls), *preparation.idle_rules()),
        emulator,
        run,
        performed,
        Asked(workload, "" if isinstance(job, Workload) else str(job), setup, how),
    )
