"""ASTRA-sim's set-ups (`ahbm astra`): its files and options, its numbers to the nanosecond."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ahbm._core import AstraRun, AstraSetup
from ahbm.base.words import aligned, span
from ahbm.errors import ConfigError, Finding, raise_findings
from ahbm.job.graphs import KINDS, system_file
from ahbm.job.preparation import request_of
from ahbm.job.reading import How, read

BACKENDS = ("congestion_unaware", "congestion_aware")
"""ASTRA-sim's analytical networks: delays, and links that carry one message at a time."""

FILE_BYTES = 1 << 30
"""Most bytes of a job's files together, unless a limit says otherwise: they are read one rank at a time."""

LISTED = 12
"""Collectives and rows of ranks that a report prints; `to_json` has all."""


@dataclass(frozen=True, kw_only=True)
class AstraFiles:
    """The files of a set-up, as ASTRA-sim's command line names them."""

    workload: str | Path
    """PREFIX of `PREFIX.<rank>.et`."""
    system: str | Path
    network: str | Path
    memory: str | Path
    groups: str | Path | None = None
    """None, or a name with `empty` in it: there are none."""
    graphs: tuple[str, ...] = ()
    """Algorithm graphs, `FILE` or `COLLECTIVE=FILE`, for the calls of as many ranks as they have."""

    @property
    def has_groups(self) -> bool:
        """Whether there is a groups file."""
        return self.groups is not None and "empty" not in str(self.groups)

    def read(self, limits: Iterable[tuple[str, int]] = ()) -> AstraSetup:
        """The set-up. limits: of `plan_limits()`.

        Raises ConfigError (AHBM-C190) for keys that are missing or have an unusable value, FormatError, TopologyError,
        BudgetError, UnsupportedError (AHBM-U234, U235).
        """
        groups = self.groups if self.has_groups else None
        given = [("file_bytes", FILE_BYTES), *limits]
        with system_file(self.system, self.graphs, self._sizes() if self.graphs else {}) as system:
            return AstraSetup(self.workload, system, self.network, self.memory, groups, limits=given)

    def _sizes(self) -> dict[str, set[int]]:
        """Bytes of the job's calls, by collective."""
        how = How(groups=self.groups if self.has_groups else None, lanes="astra")
        sizes: dict[str, set[int]] = {}
        for call in read(f"{self.workload}.0.et", how).calls:
            if call.collective in KINDS:
                sizes.setdefault(call.collective, set()).add(request_of(call, how).nbytes)
        return sizes


@dataclass(frozen=True, kw_only=True)
class AstraFlags:
    """Options of ASTRA-sim that change its numbers."""

    backend: str = "congestion_unaware"
    queues: int = 1
    """Queues of a dimension."""
    injection_scale: float = 1.0
    """Factor of the endpoint delay."""
    rendezvous: bool = False
    """8192 bytes ask for each message."""

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            hint = f"known: {', '.join(BACKENDS)}"
            raise ConfigError("AHBM-C190", f"--backend: there is no {self.backend!r}", hint=hint)
        if not 0 <= self.injection_scale <= 1e9:
            raise ConfigError("AHBM-C190", f"--injection-scale: {self.injection_scale} is out of range")


@dataclass(frozen=True)
class AstraCalls:
    """Collectives of one kind. Times are in ns."""

    collective: str
    bytes: int
    """As the nodes state them: of all_gather a rank's part, else all that a rank has."""
    ranks: int
    """Ranks of the group."""
    nodes: int
    """Nodes that ended, over all ranks."""
    total_ns: int
    """Their times, summed."""
    longest_ns: int


@dataclass(frozen=True)
class AstraRank:
    """A rank's times in ns, of which ASTRA-sim prints the first two as cycles."""

    rank: int
    cycles: int | None
    """None: it never ends."""
    exposed: int | None
    """The total without the computation on the GPU."""
    comm_ns: int
    """Time in which a communication node ran."""
    gpu_ns: int
    """Time in which a computation ran on the GPU."""


@dataclass(frozen=True)
class AstraDimension:
    """A dimension of the network, and what passed through it."""

    shape: str
    npus: int
    bandwidth_gbs: float
    """GB/s of 2^30 bytes."""
    latency_ns: float
    messages: int
    bytes: int


@dataclass(frozen=True)
class AstraLink:
    """What a directed link carried."""

    dimension: int
    src: str
    """NPU, or "switch"."""
    dst: str
    bytes: int


@dataclass(frozen=True)
class AstraReport:
    """What ASTRA-sim says of a job, and what it does not say."""

    workload: str
    backend: str
    nodes: int
    """Over all ranks."""
    ranks: tuple[AstraRank, ...]
    calls: tuple[AstraCalls, ...]
    dimensions: tuple[AstraDimension, ...]
    links: tuple[AstraLink, ...]
    """Of `congestion_aware`: those that carried something."""
    events: int
    times: tuple[tuple[tuple[int, int, int], ...], ...] | None
    """Per rank and node its id, begin and end in ns, where they were asked for."""
    warnings: tuple[Finding, ...]
    """Keys and options that change no number (AHBM-C191), and what the trace leaves open (AHBM-F182)."""
    findings: tuple[Finding, ...]
    """Ranks that never end there (AHBM-D103), messages that nobody receives (AHBM-F137), algorithm graphs too small for
    their collectives (AHBM-U232)."""

    @property
    def lines(self) -> list[str]:
        """What ASTRA-sim prints of each rank that ends."""
        return [
            f"sys[{rank.rank}] finished, {rank.cycles} cycles, exposed communication {rank.exposed} cycles."
            for rank in self.ranks
            if rank.cycles is not None
        ]

    def raise_findings(self) -> None:
        """Raises DeadlockError (AHBM-D103), FormatError (AHBM-F137) or UnsupportedError (AHBM-U232) for what the run
        is not as the files say."""
        if self.findings:
            raise_findings([finding.to_json() for finding in self.findings])

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON-serialisable data."""
        data = asdict(self)
        data["warnings"] = [warning.to_json() for warning in self.warnings]
        data["findings"] = [finding.to_json() for finding in self.findings]
        return data

    def __str__(self) -> str:
        lines = [*self.lines, *self._table(), *self._ranks(), *self._dimensions()]
        idle = [finding.message for finding in self.warnings if finding.code == "AHBM-C191"]
        if idle:
            lines.append("no effect: " + "; ".join(idle))
        for finding in self.warnings:
            lines += str(finding).splitlines() if finding.code != "AHBM-C191" else ()
        return "\n".join(lines)

    def _table(self) -> list[str]:
        if not self.calls:
            return []
        cells = [("collective", "bytes", "ranks", "nodes", "mean (us)", "longest (us)", "")]
        for kind in sorted(self.calls, key=lambda kind: -kind.total_ns)[:LISTED]:
            mean = kind.total_ns / max(kind.nodes, 1)
            shown = (f"{mean / 1000:,.3f}", f"{kind.longest_ns / 1000:,.3f}", "")
            cells.append((kind.collective, f"{kind.bytes:,}", str(kind.ranks), f"{kind.nodes:,}", *shown))
        more = len(self.calls) - LISTED
        return aligned(cells) + ([f"  {more} more kinds: --json"] if more > 0 else [])

    def _ranks(self) -> list[str]:
        alike: dict[tuple[str, ...], list[int]] = {}
        for rank in self.ranks:
            total = f"{rank.cycles / 1000:,.3f}" if rank.cycles is not None else "never"
            exposed = f"{rank.exposed / 1000:,.3f}" if rank.exposed is not None else "-"
            shown = (total, exposed, f"{rank.comm_ns / 1000:,.3f}", f"{rank.gpu_ns / 1000:,.3f}", "")
            alike.setdefault(shown, []).append(rank.rank)
        head = ("ranks", "total (us)", "exposed (us)", "communication (us)", "computation (us)", "")
        cells: list[tuple[str, ...]] = [head]
        cells += [(span(ranks), *shown) for shown, ranks in list(alike.items())[:LISTED]]
        more = len(alike) - LISTED
        return aligned(cells) + ([f"  {more} more: --json"] if more > 0 else [])

    def _dimensions(self) -> list[str]:
        cells = [("dimension", "NPUs", "messages", "bytes", "")]
        for at, dimension in enumerate(self.dimensions):
            name = f"{at} {dimension.shape}"
            cells.append((name, str(dimension.npus), f"{dimension.messages:,}", f"{dimension.bytes:,}", ""))
        return aligned(cells)


def simulate(
    files: AstraFiles,
    flags: AstraFlags | None = None,
    *,
    times: bool = False,
    limits: Iterable[tuple[str, int]] = (),
    max_events: int | None = None,
    idle: Iterable[str] = (),
) -> AstraReport:
    """ASTRA-sim's numbers. times: of every node. limits: of `plan_limits()`. max_events: of the run. idle: options that
    were given and change no number.

    Raises what `AstraFiles.read` does; DeadlockError (AHBM-D102, D103) for what never ends and is known before the run;
    FormatError for a job that is none; UnsupportedError (AHBM-U235) for what stops ASTRA-sim; BudgetError.
    """
    flags = flags or AstraFlags()
    setup = files.read(limits)
    setup.check()
    aware = flags.backend == "congestion_aware"
    run = setup.run(
        aware=aware,
        queues=flags.queues,
        injection_scale=flags.injection_scale,
        rendezvous=flags.rendezvous,
        times=times,
        max_events=max_events,
    )
    warnings = [Finding("AHBM-C191", f"{option} changes no number") for option in idle]
    return _report(files, flags, setup, run, warnings)


def truth(text: str) -> bool:
    """`true` or `false`, as ASTRA-sim's command line spells them. Raises ConfigError (AHBM-C190) for anything else."""
    known = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
    if text.lower() not in known:
        raise ConfigError("AHBM-C190", f"{text!r} is neither true nor false")
    return known[text.lower()]


def _report(
    files: AstraFiles, flags: AstraFlags, setup: AstraSetup, run: AstraRun, warnings: Iterable[Finding]
) -> AstraReport:
    ranks = zip(run.cycles, run.exposed, run.comm_ns, run.gpu_ns, strict=True)
    return AstraReport(
        workload=str(files.workload),
        backend=flags.backend,
        nodes=setup.nodes,
        ranks=tuple(AstraRank(rank, *numbers) for rank, numbers in enumerate(ranks)),
        calls=tuple(AstraCalls(*kind) for kind in run.calls),
        dimensions=tuple(AstraDimension(*d, *t) for d, t in zip(setup.dimensions, run.traffic, strict=True)),
        links=tuple(AstraLink(*link) for link in run.links),
        events=run.events,
        times=None if run.times is None else tuple(tuple(nodes) for nodes in run.times),
        warnings=(*warnings, *(Finding.from_json(found) for found in setup.warnings)),
        findings=tuple(Finding.from_json(found) for found in run.findings),
    )
