"""A job under changes: other machines, algorithms, groups, or quicker computations, all in one process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ahbm._core import Workload
from ahbm.base.words import aligned
from ahbm.config.ccl import split_overrides
from ahbm.config.protocols import in_steps
from ahbm.config.topology import load_machine
from ahbm.errors import AhbmError
from ahbm.job.options import Where, known
from ahbm.job.reading import How, read
from ahbm.job.replay import JobReport, replay
from ahbm.runs import plans
from ahbm.runs.advice import resolved
from ahbm.table.running import outcome

if TYPE_CHECKING:
    from ahbm.job.targets import Job


@dataclass(frozen=True)
class Point:
    """A job under some changes."""

    changes: str
    """What differs from the options that the job was opened with; empty where nothing does."""
    report: JobReport | None
    error: AhbmError | None = None
    """Why it does not run; None where it does."""

    def to_json(self) -> dict[str, Any]:
        """The changes, and the report or the error, as JSON-serialisable data."""
        found = {} if self.report is None else self.report.to_json()
        return {"changes": self.changes, **found, **({} if self.error is None else {"error": self.error.to_json()})}


@dataclass(frozen=True)
class WhatIf:
    """A job under changes. The first point is the one that the others are compared with."""

    points: tuple[Point, ...]

    def to_json(self) -> list[dict[str, Any]]:
        """The points as JSON-serialisable data."""
        return [point.to_json() for point in self.points]

    def __str__(self) -> str:
        base = self.points[0].report if self.points else None
        rows: list[tuple[str, ...]] = [("changes", "time (us)", "", "exposed (us)", "on the critical path")]
        for point in self.points:
            name = point.changes or "as it is"
            if point.report is None:
                rows.append((name, f"{point.error.code if point.error else ''}", "", "", ""))
                continue
            report = point.report
            share = "" if base is None or base is report else _change(base.latency_ns, report.latency_ns)
            exposed = sum(rank.exposed_ns for rank in report.ranks) / max(len(report.ranks), 1)
            times = (f"{report.latency_ns / 1000:,.2f}", share, f"{exposed / 1000:,.2f}")
            rows.append((name, *times, report.shares()))
        ran = [(point.changes or "as it is", point.report) for point in self.points if point.report is not None]
        notes = [f"{changes}: {note}" for changes, report in ran for note in report.performed.notes]
        return "\n".join([*aligned(rows), *(f"note: {note}" for note in (*notes, *self.notes))])

    @property
    def notes(self) -> list[str]:
        """What is said of the changed machines, and not of the first."""
        reports = [point.report for point in self.points if point.report is not None]
        own = set(reports[0].notes) if reports else set()
        return list(dict.fromkeys(note for report in reports[1:] for note in report.effects if note not in own))


def _change(base_ns: float, ns: float) -> str:
    return "same" if ns == base_ns else f"{100 * (ns - base_ns) / base_ns:+.3g} %" if base_ns else ""


class Jobs:
    """Jobs that were read, by what was asked of their files: each is read once."""

    def __init__(self) -> None:
        self._read: dict[object, Workload] = {}

    def of(self, target: str, how: How) -> Workload:
        """The job of a target. Raises as `ahbm.job.replay.read`."""
        key = (target, str(how.groups), how.step, how.host_gaps, how.symmetric, how.replicas, how.reading)
        if key not in self._read:
            self._read[key] = read(target, how)
        return self._read[key]


def points(runs: Iterable[tuple[str, Job]]) -> Iterator[Point]:
    """Each run of a job, by the changes that it has, in order; one that does not run gives its error.

    Values of `overrides` may be factors ("2x") of what the machine has. Raises KeyboardInterrupt.
    """
    jobs = Jobs()
    for changes, run in runs:
        found = outcome(lambda: _replayed(run, jobs))  # noqa: B023
        yield Point(changes, None, found) if isinstance(found, AhbmError) else Point(changes, found)


def _replayed(run: Job, jobs: Jobs) -> JobReport:
    options = replace(run.options, overrides=_resolved(run.options))
    job = jobs.of(run.target, options.how) if run.workload is None else run.job(options.how)
    label = plans.label(run.target) if run.workload is None else run.target
    return replay(job, label, options.setup(), options.how)


def _resolved(where: Where) -> Mapping[str, object] | None:
    """The overrides with every factor of a machine's parameter as a value."""
    relative = {key: value for key, value in (where.overrides or {}).items() if str(value).endswith("x")}
    if not relative:
        return where.overrides
    fixed = {key: value for key, value in (where.overrides or {}).items() if key not in relative}
    machine = load_machine(where.topology, split_overrides(fixed)[0])
    parameters = dict(machine.parameters)
    found = {key: resolved(value, parameters.get(key)) for key, value in in_steps(machine, relative).items()}
    return {**fixed, **found}


def what_if(job: Job, changes: Sequence[Mapping[str, Any]]) -> WhatIf:
    """A job as it was opened, and under each of `changes`: dotted keys of the machine or of ccl.yaml, and options.

    Raises ConfigError (AHBM-C146) for options that do not exist, or that are none of jobs; AhbmError where the job does
    not run as it is.
    """
    runs = [("", job)]
    for change in changes:
        overrides = {key: value for key, value in change.items() if "." in key}
        options = dict(known({key: value for key, value in change.items() if key not in overrides}))
        if overrides:
            whole = {**(job.options.overrides or {}), **overrides, **dict(options.get("overrides") or {})}
            options["overrides"] = whole
        label = ", ".join(f"{key}={_short(value)}" for key, value in change.items())
        runs.append((label, replace(job, options=job.options.changed(job.target, options))))
    found = tuple(points(runs))
    if found[0].error is not None:
        raise found[0].error
    return WhatIf(found)


def _short(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={one}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join("=".join(map(str, one)) if isinstance(one, list | tuple) else str(one) for one in value)
    return str(value)
