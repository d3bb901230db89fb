"""Several jobs on one network (`ahbm run A B --place striped`): what each takes beside the others, and alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from ahbm._core import Workload
from ahbm.base.arguments import checked
from ahbm.base.words import aligned, span
from ahbm.errors import BudgetError, ConfigError
from ahbm.job.graphs import idle as idle_graphs
from ahbm.job.open import open_
from ahbm.job.replay import JobReport, replay
from ahbm.job.targets import Job

PLACES = ("packed", "striped", "random")
SHOWN = 8
"""Links, and runs of SIPs of a job, that the text shows."""


@dataclass(frozen=True)
class Share:
    """A job among several; times are simulated."""

    job: str
    sips: tuple[int, ...]
    """Per rank of the job, the SIP that it has."""
    alone_ns: float
    """End of its last rank, on these SIPs, while nobody else runs."""
    latency_ns: float
    """End of its last rank beside the other jobs."""

    @property
    def slowdown(self) -> float:
        """Time beside the others over time alone; 1 where nobody hurts it."""
        return self.latency_ns / self.alone_ns if self.alone_ns else 1.0


@dataclass(frozen=True)
class SharedLink:
    """A link that several jobs use."""

    link: str
    busy_ns: tuple[float, ...]
    """Per job, how long the link carries its messages when the job runs alone; 0 for one that does not use it."""


@dataclass(frozen=True)
class Together:
    """Several jobs that began at one time on one network."""

    place: str
    jobs: tuple[Share, ...]
    report: JobReport
    """All of them as one job, whose ranks are the SIPs; those that no job has do nothing."""
    alone: tuple[JobReport, ...] = field(repr=False)
    """Each of them alone on its SIPs."""
    idle: tuple[str, ...] = ()
    """Options that change nothing in a job, and why."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What is said beside the times, as of one job."""
        return (*self.idle, *self.report.notes)

    @cached_property
    def links(self) -> tuple[SharedLink, ...]:
        """The links that more than one job uses, those first where the jobs are busy longest beside the longest one;
        the jobs run once more for it.

        Raises BudgetError for jobs too long to be followed link by link.
        """
        busy: list[dict[str, int]] = [
            {link.name: link.busy_ps for link in report.explain().links if link.busy_ps} for report in self.alone
        ]
        names = dict.fromkeys(name for one in busy for name in one)
        found = [
            SharedLink(name, tuple(one.get(name, 0) / 1000 for one in busy))
            for name in names
            if sum(name in one for one in busy) > 1
        ]
        return tuple(sorted(found, key=lambda link: (max(link.busy_ns) - sum(link.busy_ns), link.link)))

    def to_json(self) -> dict[str, Any]:
        """The jobs, the links that they share (None where they are too long to be followed), and the whole run."""
        try:
            links = [asdict(link) for link in self.links]
        except BudgetError:
            links = None
        jobs = [{**asdict(job), "slowdown": job.slowdown} for job in self.jobs]
        return {"place": self.place, "jobs": jobs, "links": links, "notes": self.notes, "report": self.report.to_json()}

    def __str__(self) -> str:
        report, sips = self.report, self.report.emulator.machine.sips
        used = sum(len(job.sips) for job in self.jobs)
        lines = [
            f"{len(self.jobs)} jobs on {used} of {sips} SIPs in a {report.topology} ({report.machine}), {self.place}: "
            f"{report.latency_ns / 1000:,.2f} us (simulated), time only"
        ]
        cells: list[tuple[str, ...]] = [("job", "ranks", "SIPs", "alone (us)", "together (us)", "slow-down")]
        for job in self.jobs:
            times = (f"{job.alone_ns / 1000:.2f}", f"{job.latency_ns / 1000:.2f}", f"{job.slowdown:.3f}x")
            cells.append((job.job, str(len(job.sips)), _shown(sorted(job.sips)), *times))
        lines += aligned(cells)
        try:
            links = self.links
        except BudgetError as error:
            links = ()
            lines.append(f"note: the links that they share are not shown: {error.findings[0].message}")
        else:
            if not links:
                lines.append("no link is used by two of them")
        if links:
            heads = [f"busy with {job.job} (us)" for job in self.jobs]
            cells = [("links that they share", *heads)]
            cells += [(one.link, *(f"{ns / 1000:.2f}" for ns in one.busy_ns)) for one in links[:SHOWN]]
            lines += aligned(cells)
            if len(links) > SHOWN:
                lines.append(f"and {len(links) - SHOWN} more links")
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)


def places(ranks: Sequence[int], sips: int, place: str) -> list[list[int]]:
    """Per job of so many ranks, the SIP of each rank.

    place: `packed`, one job after the other; `striped`, SIP by SIP to each job in turn; `random` or `random:SEED`, SIPs
    drawn with this seed (0). Raises ConfigError: AHBM-C129 for another text, C120 for more ranks than SIPs.
    """
    kind, _, seed = place.partition(":")
    if kind not in PLACES or (seed and (kind != "random" or not seed.isdecimal() or len(seed) > 18)):
        raise ConfigError("AHBM-C129", f"place must be packed, striped, random or random:SEED, not {place[:60]!r}")
    if sum(ranks) > sips:
        what = f"the jobs have {sum(ranks)} ranks, the machine has {sips} SIPs"
        raise ConfigError("AHBM-C120", what, hint=f"--ranks {sum(ranks)} gives the machine as many")
    order = list(range(sips))
    if kind == "random":
        random.Random(int(seed or 0)).shuffle(order)
    found: list[list[int]] = [[] for _ in ranks]
    if kind == "striped":
        free = iter(order)
        for turn in range(max(ranks, default=0)):
            for job, count in zip(found, ranks, strict=True):
                if turn < count:
                    job.append(next(free))
        return found
    at = 0
    for job, count in zip(found, ranks, strict=True):
        job += order[at : at + count]
        at += count
    return found


@checked
def together(*targets: str | Path | Workload, place: str = "packed", **options: Any) -> Together:
    """Replays several jobs that begin at one time on one machine, and each of them alone on the same SIPs.

    targets: traces or workloads of jobs, one of them as often as one likes. place: as in `places`. options: of jobs, as
    `ahbm.open` takes them; every job has them. Faults of the machine (`faults`) name SIPs, whichever job has them.

    Raises ConfigError: AHBM-C146 for what is no job and for options that jobs do not have, C120 for more ranks than
    SIPs, C129 for another placement; and as replaying a job.
    """
    distinct: dict[str | Path | Workload, Job] = {}  # a job that is named twice is read once
    for target in dict.fromkeys(targets):
        one = open_(target, **options)
        if not isinstance(one, Job):
            raise ConfigError("AHBM-C146", f"{target} is no job, and only jobs run beside each other")
        distinct[target] = one
    if not distinct:
        raise ConfigError("AHBM-C146", "no job is named")
    of = next(iter(distinct.values())).options
    setup, how = of.setup(), of.how
    read = {target: one.job(how) for target, one in distinct.items()}
    opened, jobs = [distinct[target] for target in targets], [read[target] for target in targets]
    setup = setup.sized(sum(job.ranks for job in jobs))
    sips = setup.emulator().machine.sips
    names = _names([one.label for one in opened])
    chosen = places([job.ranks for job in jobs], sips, place)

    def run(*members: int) -> JobReport:
        name = ", ".join(names[at] for at in members)
        pairs = [(jobs[at], chosen[at]) for at in members]
        return replay(Workload.together(name, pairs, sips), name, setup, how)

    numbers = range(len(jobs))
    report, alone = run(*numbers), tuple(map(run, numbers))
    shares = tuple(
        Share(name, tuple(mine), one.latency_ns, max((report.ranks[sip].total_ns for sip in mine), default=0.0))
        for name, mine, one in zip(names, chosen, alone, strict=True)
    )
    idle = [*idle_graphs(of.collective_algorithm, report.asked.workload.calls)]
    idle += [
        f"{name}: {note}"
        for name, one, job, by_itself in zip(names, opened, jobs, alone, strict=True)
        for note in one.idle(job, by_itself)
    ]
    return Together(place, shares, report, alone, tuple(idle))


def _shown(sips: list[int]) -> str:
    """Ascending SIPs in few words: `0-7`, `0-158 by 2`, `3, 5, 9, 12, ...`."""
    steps = {after - before for before, after in pairwise(sips)}
    if len(sips) > 2 and len(steps) == 1 and steps != {1}:
        return f"{sips[0]}-{sips[-1]} by {steps.pop()}"
    runs = span(sips).partition(" ")[2].split(", ")
    return ", ".join(runs if len(runs) <= SHOWN else [*runs[:SHOWN], "..."])


def _names(labels: Sequence[str]) -> list[str]:
    """Labels that differ: those that are there more than once have numbers."""
    seen: dict[str, int] = {}
    found = []
    for label in labels:
        seen[label] = seen.get(label, 0) + 1
        found.append(label if labels.count(label) == 1 else f"{label} ({seen[label]})")
    return found
