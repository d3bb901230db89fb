"""Replays recorded jobs (`ahbm run JOB`): traces of what every rank computed and which collectives it called.

Every collective is prepared as `ahbm.distributed` would perform it; data is not moved. Collectives that overlap in
simulated time contend for the machine's links and engines.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ahbm._core import Job, JobCall, JobTimes, Plan, Program
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.elements import element
from ahbm.base.load import load_text
from ahbm.base.request import Request
from ahbm.core.selection import Catalogue, checked_selector, select
from ahbm.errors import AhbmError, ConfigError, Finding, Site
from ahbm.ranks.calls import CallRecord, aligned, table
from ahbm.ranks.groups import span
from ahbm.runs.traces import Run

if TYPE_CHECKING:
    from ahbm.core.compiled import Compiled
    from ahbm.core.emulator import Emulator
    from ahbm.ranks.setup import Setup


@dataclass(frozen=True)
class RankTime:
    """The parts of a rank's time, in simulated nanoseconds."""

    rank: int
    total_ns: float
    compute_ns: float

    @property
    def exposed_ns(self) -> float:
        """Time in which it did not compute: for communication, and for ranks that came later."""
        return self.total_ns - self.compute_ns


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
    """Every collective, in the order of their starts."""
    together: int
    """Calls that overlapped others in time, so that they were simulated together."""
    untimed: int
    """Computations that state no duration, and take none."""
    times_hash: str
    """16 hex digits; equal hashes are equal times of all calls and ranks."""
    machine_hash: str
    version: str
    """Of this package."""
    warnings: tuple[Finding, ...]
    """The things that were left out in reading."""
    emulator: Emulator = field(repr=False, compare=False)
    recorded: tuple[Job, Sequence[tuple[Program, int] | None]] = field(repr=False, compare=False)
    """The job, and the program of each of its launches with the time it takes alone, in ps."""

    def program(self) -> Program | None:
        """The whole job as one program."""
        job, programs = self.recorded
        return job.program(self.emulator.machine, programs)

    def write_trace(self, prefix: str | Path) -> list[Path]:
        """Raises ConfigError (AHBM-C146): a job is a trace already."""
        raise ConfigError("AHBM-C146", f"{self.job} is a trace already", hint="--trace writes its timeline")

    def to_json(self) -> dict[str, Any]:
        """All fields but `emulator` and `recorded` as JSON-serialisable data."""
        data = {name: value for name, value in vars(self).items() if name not in ("emulator", "recorded")}
        data["ranks"] = [{**asdict(rank), "exposed_ns": rank.exposed_ns} for rank in self.ranks]
        data["calls"] = [asdict(call) for call in self.calls]
        data["warnings"] = [warning.to_json() for warning in self.warnings]
        return data

    def __str__(self) -> str:
        machine = self.emulator.machine
        lines = [
            f"{self.job}: {len(self.ranks)} ranks on {machine.sips} SIPs in a {self.topology}, "
            f"{self.latency_ns / 1000:,.2f} us (simulated), {len(self.calls)} calls, {self.together} overlapping "
            "others, time only"
        ]
        lines += table(self.calls, self.emulator.limits)
        cells = [("ranks", "compute (us)", "exposed (us)", "total (us)", "")]
        alike: dict[tuple[str, str, str], list[int]] = {}
        for rank in self.ranks:
            times = (rank.compute_ns, rank.exposed_ns, rank.total_ns)
            shown = (f"{times[0] / 1000:.2f}", f"{times[1] / 1000:.2f}", f"{times[2] / 1000:.2f}")
            alike.setdefault(shown, []).append(rank.rank)
        cells += [(span(ranks), *shown, "") for shown, ranks in alike.items()]
        lines += aligned(cells)
        if self.untimed:
            lines.append(f"{self.untimed} computations state no duration and take none")
        lines += [f"  {line}" for finding in self.warnings for line in str(finding).splitlines()]
        return "\n".join(lines)


def replay(
    plan: Plan, name: str, setup: Setup, *, groups: str | Path | None = None, dtype: str = "u8", op: str = "sum"
) -> JobReport | None:
    """Replays the job in a trace, rank r on SIP r; None for the trace of an algorithm.

    groups: a JSON file with the ranks of process groups that the trace only names. dtype, op: of collectives that do
    not state theirs.

    Raises ConfigError, TopologyError, FormatError and UnsupportedError for what the trace lacks (AHBM-F136, F149, U231,
    U234) or what cannot be performed, DeadlockError, BudgetError.
    """
    from ahbm import __version__

    found = plan.job(_groups(groups) if groups is not None else {})
    if found is None:
        return None
    job, calls, untimed = found
    emulator = setup.sized(plan.ranks).emulator()
    launches_of = _Launches(emulator, setup, dtype, op)
    prepared = [launches_of.of(call) for call in calls]
    programs = [(c.program, c.latency_ps) if c.program is not None else None for c in prepared]
    launches = programs + [None] * (job.launches - len(programs))
    times = job.times(emulator.machine, launches)
    records = [
        _record(call, compiled, start, end)
        for call, compiled, start, end in zip(calls, prepared, times.starts_ps, times.ends_ps, strict=False)
    ]
    return JobReport(
        name,
        emulator.machine.topology,
        tuple(_rank_times(job, times, plan.ranks)),
        max(times.hosts_ps, default=0) / 1000,
        tuple(sorted(records, key=lambda record: record.start_ns)),
        times.together,
        untimed,
        _hash(times),
        f"{emulator.machine.hash:016x}",
        __version__,
        tuple(Finding.from_json(warning) for warning in plan.warnings),
        emulator,
        (job, launches),
    )


class _Launches:
    """The programs that calls run; each kind of call is prepared once."""

    def __init__(self, emulator: Emulator, setup: Setup, dtype: str, op: str) -> None:
        self._emulator = emulator
        self._algorithm = setup.algorithm
        self._selector = None if setup.selector is None else checked_selector(setup.selector)
        self._dtype = dtype
        self._op = op

    def of(self, call: JobCall) -> Compiled:
        """The program that performs the call. Raises what the emulator raises, with the node of the call."""
        try:
            return self._compiled(call)
        except AhbmError as error:
            raise AhbmError.of([_at(error.findings[0], call), *error.findings[1:]]) from None

    def _compiled(self, call: JobCall) -> Compiled:
        dtype = call.dtype or self._dtype
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
            call.op or self._op,
            root=0 if call.root is None else ranks.index(call.root) if call.root in ranks else -1,
            src=ranks.index(call.ranks[0]) if paired else 0,
            dst=ranks.index(call.ranks[1]) if paired else 1,
        )
        if self._selector is not None and not paired:
            choice = select(self._selector, Catalogue(self._emulator, request.collective), request)
            if choice is not None:
                return self._emulator.compile(request, choice.algorithm)
        return self._emulator.compile(request, self._algorithm if call.collective == "all_reduce" else None)


def _at(finding: Finding, call: JobCall) -> Finding:
    return Finding(finding.code, finding.message, (*finding.sites, Site("in the job", call.origin)), finding.hint)


def _record(call: JobCall, compiled: Compiled, start_ps: int, end_ps: int) -> CallRecord:
    return CallRecord(
        call.collective,
        call.group,
        len(call.ranks),
        compiled.request.nbytes,
        call.dtype or "",
        call.op or "",
        compiled.algorithm,
        compiled.timeline_hash,
        sorted(call.ranks).index(call.root) if call.root is not None else 0,
    ).at(start_ps, end_ps)


def _rank_times(job: Job, times: JobTimes, ranks: int) -> list[RankTime]:
    """Per rank; computations of a rank that run side by side count once."""
    ends = [0] * ranks
    computed: list[list[tuple[int, int]]] = [[] for _ in range(ranks)]
    for rank, end, spans in zip(job.ranks, times.hosts_ps, times.computed_ps, strict=True):
        ends[rank] = max(ends[rank], end)
        computed[rank] += spans
    found = []
    for rank, spans in enumerate(computed):
        busy = reached = 0
        for start, end in sorted(spans):
            busy += max(0, end - max(start, reached))
            reached = max(reached, end)
        found.append(RankTime(rank, ends[rank] / 1000, busy / 1000))
    return found


def _hash(times: JobTimes) -> str:
    columns = (times.starts_ps, times.ends_ps, times.hosts_ps)
    return hashlib.sha256(b"".join(np.array(column, "<u8").tobytes() for column in columns)).hexdigest()[:16]


def _groups(path: str | Path) -> Mapping[str, list[int]]:
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
