"""Replays recorded jobs (`ahbm run JOB`): traces of what every rank computed and which collectives it called.

Every collective is prepared as `ahbm.distributed` would perform it; data is not moved. A rank starts its part of a call
when it arrives, and goes on when its own part is done. Calls that overlap in simulated time contend for the machine's
links and engines.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ahbm._core import JobCall, Program, Replayed, Workload, check_timeline_name
from ahbm.base.arguments import checked
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.elements import element
from ahbm.base.load import load_text
from ahbm.base.logs import INFO, log
from ahbm.base.request import Request
from ahbm.base.words import aligned, span
from ahbm.config.reading import PLAIN, Reading
from ahbm.config.rules import Place
from ahbm.core.selection import ARGUMENT, CONFIGURED, DEFAULT, Catalogue, Selector, checked_selector, select
from ahbm.errors import AhbmError, BudgetError, ConfigError, Finding, Site, UnsupportedError
from ahbm.ranks.calls import CallRecord, table
from ahbm.runs.report import bandwidths
from ahbm.runs.traces import Run

if TYPE_CHECKING:
    from ahbm.core.compiled import Compiled
    from ahbm.core.emulator import Emulator
    from ahbm.ranks.setup import Setup
    from ahbm.source.algorithm import Algorithm


@dataclass(frozen=True)
class RankTime:
    """The parts of a rank's time, in simulated nanoseconds."""

    rank: int
    total_ns: float
    compute_ns: float
    waiting_ns: float = 0.0
    """The part of the exposed time in which another rank had not arrived yet."""

    @property
    def exposed_ns(self) -> float:
        """Time in which it did not compute: for communication, and for ranks that came later."""
        return self.total_ns - self.compute_ns


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
    """"compute", "memory" or "call"."""
    call: int | None
    """Position in `JobReport.calls`."""
    node: str
    origin: str


@dataclass(frozen=True)
class JobReport(Run):
    """One replayed job. Times are simulated; no data were moved."""

    job: str
    topology: str
    """Network between the SIPs."""
    ranks: tuple[RankTime, ...]
    latency_ns: float
    """End of the last rank."""
    calls: tuple[CallRecord, ...]
    """Every collective and message, in the order of their starts: when their last rank had arrived."""
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
    times_hash: str
    """16 hex digits; equal hashes are equal times of all nodes."""
    machine_hash: str
    version: str
    """Of this package."""
    warnings: tuple[Finding, ...]
    """What was left out in reading, and what the source leaves open."""
    emulator: Emulator = field(repr=False, compare=False)
    replayed: Replayed = field(repr=False, compare=False)
    order: tuple[int, ...] = field(repr=False, compare=False)
    """For each of `calls`, its number in the job."""

    @cached_property
    def exposed(self) -> tuple[Exposed, ...]:
        """Per rank and call, what is exposed of it; those of a rank sum to its exposed time."""
        place = self._places()
        return tuple(
            Exposed(rank, place[call], exposed_ps / 1000, waiting_ps / 1000)
            for rank, parts in enumerate(self.replayed.exposures)
            for call, exposed_ps, waiting_ps in parts
        )

    def _places(self) -> dict[int | None, int | None]:
        """For each call of the job its position in `calls`; None for what is no call."""
        return {None: None, **{call: at for at, call in enumerate(self.order)}}

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
            warnings.warn(what, stacklevel=2)
            return self.replayed.write_timeline(path, ranks_only=True)

    @checked
    def write_trace(self, prefix: str | Path) -> list[Path]:
        """Writes the job with the operations of its calls in their places, and the times that they took, as a Chakra
        trace, which is a job again; returns its files.

        Raises UnsupportedError (AHBM-U294) for a call with a barrier between ranks, FormatError for files that cannot
        be written.
        """
        return self.replayed.write_trace(prefix)

    def to_json(self) -> dict[str, Any]:
        """All fields but `emulator`, `replayed` and `order`, and `exposed`, as JSON-serialisable data."""
        names = [field.name for field in fields(self) if field.name not in ("emulator", "replayed", "order")]
        names.insert(names.index("path"), "exposed")
        data = {name: getattr(self, name) for name in names}
        data["ranks"] = [{**asdict(rank), "exposed_ns": rank.exposed_ns} for rank in self.ranks]
        for name in ("calls", "exposed", "path"):
            data[name] = [asdict(entry) for entry in data[name]]
        data["warnings"] = [warning.to_json() for warning in self.warnings]
        return data

    def exposures(self) -> list[tuple[str, int, float, float]]:
        """Collective, ranks of its group, and the exposed time and its waiting part as means over all ranks, in ns; the
        largest first."""
        sums: dict[tuple[str, int], list[int]] = {}
        places = self._places()
        for call, exposed_ps, waiting_ps in self.replayed.exposed_ps:
            place = places[call]
            key = ("other", 0) if place is None else (self.calls[place].collective, self.calls[place].ranks)
            entry = sums.setdefault(key, [0, 0])
            entry[0] += exposed_ps
            entry[1] += waiting_ps
        count = 1000 * max(len(self.ranks), 1)
        rows = [(name, ranks, a / count, b / count) for (name, ranks), (a, b) in sums.items()]
        return sorted(rows, key=lambda row: (-row[2], row[:2]))

    def on_path(self) -> list[tuple[str, float]]:
        """The parts of the critical path: "compute", "memory" and the calls by collective and ranks, in ns; the largest
        first. They sum to the job's time."""
        sums: dict[str, float] = {}
        for stretch in self.path:
            call = None if stretch.call is None else self.calls[stretch.call]
            label = stretch.what if call is None else f"{call.collective} of {call.ranks} ranks"
            sums[label] = sums.get(label, 0.0) + stretch.end_ns - stretch.start_ns
        return sorted(sums.items(), key=lambda item: (-item[1], item[0]))

    def shares(self) -> str:
        """The parts of the critical path in words."""
        parts = ", ".join(f"{label} {100 * ns / self.latency_ns:.3g} %" for label, ns in self.on_path())
        hidden = "" if any(stretch.what == "call" for stretch in self.path) else ": no communication is on it"
        return f"{parts}{hidden}"

    def __str__(self) -> str:
        machine = self.emulator.machine
        lines = [
            f"{self.job}: {len(self.ranks)} ranks on {machine.sips} SIPs in a {self.topology}, "
            f"{self.latency_ns / 1000:,.2f} us (simulated), {len(self.calls)} calls, {self.together} overlapping "
            "others, time only"
        ]
        lines += table(self.calls, self.emulator.limits)
        cells: list[tuple[str, ...]] = [("ranks", "compute (us)", "exposed (us)", "waiting (us)", "total (us)")]
        alike: dict[tuple[str, ...], list[int]] = {}
        for rank in self.ranks:
            times = (rank.compute_ns, rank.exposed_ns, rank.waiting_ns, rank.total_ns)
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
            lines.append(
                f"{self.untimed} computations take no time: they state none, or the machine has no pe.roofline"
            )
        lines += [f"  {line}" for finding in self.warnings for line in str(finding).splitlines()]
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class How:
    """How a job is read and replayed."""

    groups: str | Path | None = None
    """A JSON file with the ranks of process groups that the trace only names."""
    dtype: str = "u8"
    op: str = "sum"
    """Of collectives that do not state theirs."""
    lanes: str = "device"
    """Which nodes of a rank run side by side: "device", "streams", "astra" or "unlimited"."""
    factors: Sequence[tuple[str, float]] = ()
    """Computations whose name contains a text take so many times as long."""
    step: int | None = None
    """Traces of PyTorch: the profiler's step of this number; all by default."""
    host_gaps: bool = False
    """Traces of PyTorch: the time that the host takes between launches counts."""
    symmetric: bool = False
    """Traces of PyTorch: all ranks do what the one rank with a trace does."""
    fold: bool = True
    """Of ranks that do the same one is simulated; the times are those of all ranks."""
    reading: Reading = PLAIN


AS_IT_IS = How()
"""As jobs are replayed where nothing else is said."""


def parse_factor(text: str) -> tuple[str, float]:
    """`"gemm=0.5"` as text and factor. Raises ConfigError (AHBM-C146)."""
    name, _, value = text.rpartition("=")
    try:
        factor = float(value)
    except ValueError:
        factor = math.nan
    if not name or not 0 <= factor <= 1e6:
        raise ConfigError("AHBM-C146", f"--compute {text}: no TEXT=FACTOR with a factor of 0 to 1e6", hint="gemm=0.5")
    return name, factor


def read(path: str | Path, how: How = AS_IT_IS) -> Workload:
    """The job in a trace.

    Raises FormatError, UnsupportedError, BudgetError, and DeadlockError (AHBM-D102) for ranks that enter their
    collectives in orders that wait for each other.
    """
    groups = read_groups(how.groups) if how.groups is not None else {}
    return Workload.read(
        path,
        groups=groups,
        lenient=how.reading.lenient,
        limits=how.reading.limits,
        step=how.step,
        host_gaps=how.host_gaps,
        symmetric=how.symmetric,
    )


def replay(
    job: str | Path | Workload, name: str, setup: Setup, how: How = AS_IT_IS, chooser: Selector | None = None
) -> JobReport:
    """Replays a job, or the one in a trace; rank r on SIP r. `chooser` may choose algorithms before anything else does.

    Raises ConfigError, TopologyError, FormatError and UnsupportedError for what the trace lacks (AHBM-F136, F149, U231,
    U234) or what cannot be performed, DeadlockError, BudgetError.
    """
    from ahbm import __version__

    workload = job if isinstance(job, Workload) else read(job, how)
    emulator = setup.sized(workload.ranks).emulator()
    if workload.ranks > emulator.machine.sips:
        what = f"{name} has {workload.ranks} ranks, the machine has {emulator.machine.sips} SIPs"
        raise ConfigError("AHBM-C120", what, hint=f"--ranks {workload.ranks} gives the machine as many")
    preparation = Preparation(emulator, setup, how, chooser)
    calls = workload.calls
    prepared = preparation.all(calls)
    first: dict[int, int] = {}
    run = workload.replay(
        emulator.machine,
        [compiled.program for compiled in prepared],
        made_for=[first.setdefault(id(compiled), call) for call, compiled in enumerate(prepared)],
        regions=[
            _region(calls[call], prepared[call], part, chunk, completes)
            for call, part, chunk, completes in workload.chunks
        ],
        lanes=how.lanes,
        factors=list(how.factors),
        fold=how.fold,
    )
    log("emulator", INFO, "%s: %d of %d ranks simulated", name, run.simulated, workload.ranks)
    times = run.calls_ps
    order = sorted(range(len(calls)), key=lambda call: (times[call][1], call))
    place = {call: at for at, call in enumerate(order)}
    columns = zip(run.ends_ps, run.computed_ps, run.waiting_ps, strict=True)
    return JobReport(
        name,
        emulator.machine.topology,
        tuple(RankTime(rank, *(ps / 1000 for ps in column)) for rank, column in enumerate(columns)),
        max(run.ends_ps, default=0) / 1000,
        tuple(_record(calls[call], prepared[call], preparation.rules[call], *times[call][1:]) for call in order),
        tuple(
            Stretch(rank, start / 1000, end / 1000, what, None if call is None else place[call], node, origin)
            for rank, start, end, what, call, node, origin in run.path
        ),
        _overlapping([times[call][1:] for call in order]),
        run.untimed,
        how.lanes,
        run.simulated,
        _hash(run),
        f"{emulator.machine.hash:016x}",
        __version__,
        (*left_out(workload), *preparation.idle_rules()),
        emulator,
        run,
        tuple(order),
    )


def _region(call: JobCall, compiled: Compiled, part: int, chunk: int, completes: bool) -> list[tuple[int, int, int]]:
    """The memory that a chunk of a call is at a rank: buffer, first byte and end; chunks are equal parts of the array.

    Raises UnsupportedError (AHBM-U231) for an algorithm that does not say where the data of its ranks are.
    """
    rank = sorted(call.ranks).index(call.ranks[part])
    rows = (compiled.results if completes else compiled.operands)[rank : rank + 1]
    if not rows:
        what = f"{compiled.algorithm} does not say where its data are: nothing can wait for a chunk of it"
        raise UnsupportedError("AHBM-U231", what, sites=(Site("in the job", call.origin),))
    size, count = compiled.request.nbytes, len(call.ranks)
    first, end = size * chunk // count, size * (chunk + 1) // count
    found = []
    for buffer, at, offset, length in rows[0].tolist():
        low, high = max(first, at), min(end, at + length)
        if low < high:
            found.append((buffer, offset + low - at, offset + high - at))
    return found


def _overlapping(spans: Sequence[tuple[int, int]]) -> int:
    """How many of these stretches of time, in the order of their starts, overlap another one."""
    found = set[int]()
    reached, last = -1, -1
    for at, (start, end) in enumerate(spans):
        if start < reached:
            found |= {at, last}
        if end > reached:
            reached, last = end, at
    return len(found)


def left_out(workload: Workload) -> Iterator[Finding]:
    """Warnings about what lenient reading left out of a job, and what its source leaves open."""
    dangling, cut = workload.left_out
    if dangling:
        yield Finding("AHBM-F134", f"{dangling} dependencies on nodes that do not exist are left out")
    if cut:
        yield Finding("AHBM-F135", f"{cut} dependencies that closed circles are left out")
    yield from map(Finding.from_json, workload.notes)


class Preparation:
    """The programs that calls run; each kind of call is prepared once."""

    def __init__(self, emulator: Emulator, setup: Setup, how: How, chooser: Selector | None = None) -> None:
        self._emulator = emulator
        self._algorithm = setup.algorithm
        self._selectors = [checked_selector(one) for one in (chooser, setup.selector) if one is not None]
        self._how = how
        self.rules: list[str] = []
        """The rule that chose the algorithm of each call that was prepared, as in `CallRecord.rule`."""
        self._used = set[tuple[str, int]]()
        """The rules for calls of jobs that held for a call, by collective and position."""
        self._overruled = set[str]()
        """The collectives of which something else than ccl.yaml chose the algorithm."""
        self._made: dict[object, list[Compiled]] = {}
        """Programs that other ranks may run, by what is asked for besides ranks."""

    def all(self, calls: Sequence[JobCall]) -> list[Compiled]:
        """The programs of all calls of a job, one for those that are alike. Raises as `of`."""
        # A selector may answer differently every time, and a rule may be for one node.
        each = bool(self._selectors) or any(True for _ in self._emulator.ccl.rules_of_jobs())
        found: list[Compiled] = []
        for at, call in enumerate(calls):
            if call.alike < at and not each:
                found.append(found[call.alike])
                self.rules.append(self.rules[call.alike])
            else:
                found.append(self.of(call))
        return found

    def of(self, call: JobCall) -> Compiled:
        """The program that performs the call: its own, or that of an earlier call whose ranks the machine cannot tell
        from those of this one. Raises what the emulator raises, with the node of the call."""
        try:
            return self._compiled(call)
        except AhbmError as error:
            raise AhbmError.of([_at(error.findings[0], call), *error.findings[1:]]) from None

    def _compiled(self, call: JobCall) -> Compiled:
        dtype = call.dtype or self._how.dtype
        kind = COLLECTIVES.get(call.collective)
        ranks = tuple(sorted(call.ranks))
        count = -(-call.bytes // element(dtype).storage.itemsize)
        if kind is not None and kind.chunked:
            # A call whose data do not split into equal chunks is as long as if the longest had been sent to all.
            chunk = count if call.collective in ("all_gather", "gather") else -(-count // len(ranks))
            count = chunk if call.longest is None else call.longest
        if call.collective == "barrier":
            dtype, count = "f16", 1
        paired = kind is not None and kind.paired
        request = Request(
            call.collective,
            ranks,
            count,
            dtype,
            call.op or self._how.op,
            root=0 if call.root is None else ranks.index(call.root) if call.root in ranks else -1,
            src=ranks.index(call.ranks[0]) if paired else 0,
            dst=ranks.index(call.ranks[1]) if paired else 1,
        )
        for selector in () if paired else self._selectors:
            choice = select(selector, Catalogue(self._emulator, request.collective), request)
            if choice is not None:
                self._overruled.add(request.collective)
                self.rules.append(choice.rule)
                return self._shared(request, choice.algorithm)
        if self._performs(request.collective):
            self._overruled.add(request.collective)
            self.rules.append(ARGUMENT)
            return self._shared(request, self._algorithm)
        place = Place(call.group, call.node)
        rule = self._emulator.ccl.placed(request.collective, request.nbytes, request.world_size, place)
        if rule is not None:
            self._used.add((request.collective, rule[0]))
        own = rule is not None or self._emulator.ccl.is_own(request.collective)
        self.rules.append(CONFIGURED if own else DEFAULT)
        return self._shared(request, None if rule is None else rule[1])

    def idle_rules(self) -> Iterator[Finding]:
        """A warning for each rule for calls of jobs that held for none of those which were prepared."""
        for collective, at, site in self._emulator.ccl.rules_of_jobs():
            if (collective, at) not in self._used and collective not in self._overruled:
                hint = "patterns are compared with the names of groups and nodes: ahbm features FILE lists both"
                yield Finding("AHBM-C158", "no call of the job meets a rule of ccl.yaml", (site,), hint)

    def _shared(self, request: Request, algorithm: str | Algorithm | None) -> Compiled:
        made = self._made.setdefault((replace(request, ranks=range(request.world_size)), algorithm), [])
        machine, ranks = self._emulator.machine, list(request.ranks)
        for compiled in made:
            if machine.carries(list(compiled.request.ranks), ranks):
                return compiled
        # What is quickest alone need not be so among other calls: `best` compares in the whole job.
        compiled = self._emulator.compile_timed(request, algorithm, compare=False)
        if self._emulator.runs_anywhere(compiled):
            made.append(compiled)
        return compiled

    def _performs(self, collective: str) -> bool:
        """Whether the algorithm that was asked for performs this collective."""
        return self._algorithm is not None and collective in self._emulator.algorithm(self._algorithm).collectives


def _at(finding: Finding, call: JobCall) -> Finding:
    return Finding(finding.code, finding.message, (*finding.sites, Site("in the job", call.origin)), finding.hint)


def _record(call: JobCall, compiled: Compiled, rule: str, start_ps: int, end_ps: int) -> CallRecord:
    request = compiled.request
    algbw, busbw = bandwidths(call.collective, request.world_size, request.nbytes, end_ps - start_ps)
    return CallRecord(
        call.collective,
        call.group,
        request.world_size,
        request.nbytes,
        call.dtype or "",
        call.op or "",
        compiled.algorithm,
        compiled.timeline_hash,
        sorted(call.ranks).index(call.root) if call.root is not None else 0,
        rule,
        start_ps / 1000,
        (end_ps - start_ps) / 1000,
        algbw,
        busbw,
    )


def _hash(run: Replayed) -> str:
    return hashlib.sha256(b"".join(column.tobytes() for column in run.nodes)).hexdigest()[:16]


def read_groups(path: str | Path) -> Mapping[str, list[int]]:
    """The process groups in a JSON file. Raises ConfigError (AHBM-C153)."""
    try:
        found = json.loads(load_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError("AHBM-C153", f"{path}: {error}") from None
    right = isinstance(found, dict) and all(
        isinstance(ranks, list) and all(type(rank) is int and 0 <= rank < 2**32 for rank in ranks)
        for ranks in found.values()
    )
    if not right:
        raise ConfigError("AHBM-C153", f"{path} is no object of rank lists", hint='{"tp0": [0, 1], "tp1": [2, 3]}')
    groups: dict[str, list[int]] = found
    return groups
