"""`ahbm features`: the columns that a selector learns from, of algorithms and of the calls of jobs.

Nothing is simulated. `docs/features.md` says what every column means.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ahbm._core import Plan, Program
from ahbm.base.arguments import checked
from ahbm.base.collectives import COLLECTIVES
from ahbm.check.case import Case
from ahbm.core.emulator import Emulator
from ahbm.core.limits import Limits
from ahbm.dsl.script import Script
from ahbm.errors import AhbmError, ConfigError, Finding, InterruptedRun, UnsupportedError
from ahbm.job.open import is_plan, open_
from ahbm.job.options import OfCollective, given, names_of, only, refuse
from ahbm.job.reading import left_out
from ahbm.job.reading import read as read_job
from ahbm.job.targets import Collective, Job, PlanFile
from ahbm.runs import plans, timed
from ahbm.runs.shape import shape_of
from ahbm.source.function import AnyAlgorithm, as_algorithm
from ahbm.source.sized import overlap_capable
from ahbm.table.columns import FAILED
from ahbm.table.rows import Rows

OF_ALGORITHMS: dict[str, str] = {
    "target": "",
    "algorithm": "",
    "collective": "",
    "topology": "",
    "ranks": "ranks",
    "bytes": "B",
    "dtype": "",
    "message_size_bin": "log2 B",
    "algorithm_id": "",
    "algorithm_kind": "",
    "out_degree": "ranks",
    "overlap_capable": "",
    "chunk_count": "chunks",
    "branch_factor": "chunks",
    "dependency_depth": "chunks",
    "messages": "messages",
    "ops": "operations of the program",
    "sent_bytes": "B",
    "busiest_bytes": "B",
    "operations": "operations",
    "compute_ns": "ns",
    "arithmetic_intensity": "operations/B",
    "compute_to_comm_ratio": "ns/B",
    "queue_depth": "messages",
    "cut_bytes": "B",
    "path_ns": "ns",
    "link_ns": "ns",
    "rounds_ns": "ns",
    "bound_latency_ns": "ns",
    "bound_bandwidth_ns": "ns",
}
"""The columns of an algorithm, each with its unit."""
OF_CALLS: dict[str, str] = {
    "target": "",
    "call": "",
    "collective": "",
    "group": "",
    "node": "",
    "ranks": "ranks",
    "bytes": "B",
    "dtype": "",
    "op": "",
    "message_size_bin": "log2 B",
    "pipelined": "",
    "fused": "",
    "overlap_capable": "",
    "producers": "computations",
    "branch_factor": "nodes",
    "dependency_depth": "calls and messages",
    "model_intensity": "computations/B",
    "arithmetic_intensity": "operations/B",
    "compute_to_comm_ratio": "ns/B",
}
"""The columns of a job's call, each with its unit."""
_COUNTED = ("message_size_bin", "pipelined", "fused", "overlap_capable", "producers", "branch_factor")
_OF_JOBS = ("model_intensity", "arithmetic_intensity", "compute_to_comm_ratio")
_BOUNDS = ("bound_latency_ns", "bound_bandwidth_ns")
_OF_PROGRAMS = tuple(OF_ALGORITHMS)[tuple(OF_ALGORITHMS).index("chunk_count") : -len(_BOUNDS)]


class Features(Rows):
    """A row for each algorithm, or for each collective of a job.

    The columns are those of `OF_ALGORITHMS` and, for algorithms that cannot perform a collective, `FAILED`; or those of
    `OF_CALLS`.
    """

    def __init__(
        self,
        columns: Sequence[str],
        values: Sequence[Sequence[Any]],
        units: Mapping[str, str],
        warnings: Sequence[Finding] = (),
        notes: Sequence[str] = (),
    ) -> None:
        super().__init__(columns, values)
        self.units = units
        """Of the columns that have one."""
        self.warnings = tuple(warnings)
        """What was left out in reading jobs, and what their sources leave open."""
        self.notes = tuple(notes)
        """What the reader should know of the number of ranks."""

    def _facts(self) -> tuple[object, ...]:
        return *super()._facts(), self.units, self.warnings, self.notes

    def to_json(self) -> dict[str, Any]:
        """Units, rows and warnings as JSON-serialisable data."""
        warnings = [warning.to_json() for warning in self.warnings]
        notes = {} if not self.notes else {"notes": list(self.notes)}
        return {"units": dict(self.units), "rows": list(self.rows), "warnings": warnings, **notes}

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *map(str, self.warnings), *(f"note: {note}" for note in self.notes)])

    def _shown(self) -> list[str]:
        """The columns in which any row has something."""
        return [name for name in self.columns if any(value not in (None, "") for value in self.column(name))]

    def _cell(self, value: object) -> str:
        return f"{value:.4g}" if isinstance(value, float) else super()._cell(value)


@checked
def features(*targets: AnyAlgorithm | Path, **options: Any) -> Features:
    """What selectors learn from: a row for every algorithm, or for every collective of a job.

    targets: algorithms in every form that `ahbm.run` takes; collectives, which stand for all algorithms of ccl.yaml
    that perform them; files of plans; or the traces of jobs.
    options: as of `ahbm.open`. An algorithm is looked at on the machine's ranks, at `size`.

    Raises ConfigError (AHBM-C146) for jobs beside algorithms and for options that do not go with a target, and for an
    algorithm that is named what `ahbm.run` raises before it runs; DeadlockError (AHBM-D201) for one that gets stuck.
    """
    return gathered([(target, options) for target in targets])


def gathered(asked: Sequence[tuple[AnyAlgorithm | Path, Mapping[str, Any]]]) -> Features:
    """The rows of all targets, each with its own options. Raises as `features`."""
    rows: dict[bool, list[dict[str, Any]]] = {}
    warnings: dict[Finding, None] = {}
    notes: dict[str, None] = {}
    for target, options in asked:
        name, said = str(target) if isinstance(target, str | Path) else "", given(options)
        # What is no file is an algorithm, or a collective that stands for all of its algorithms.
        opened = open_(name, **said) if is_plan(name) else None
        if isinstance(opened, Job):
            rows.setdefault(True, []).extend(_calls(opened, warnings))
        elif isinstance(opened, PlanFile):
            rows.setdefault(False, []).append(_plan(opened))
        else:
            rows.setdefault(False, []).extend(_algorithms(target, name, said, notes))
    if len(rows) > 1:
        raise ConfigError("AHBM-C146", "jobs and algorithms have other columns", hint="one table for each")
    of_calls = True in rows
    units = OF_CALLS if of_calls else OF_ALGORITHMS
    found = rows.get(of_calls, [])
    failed = FAILED if any("code" in row for row in found) else ()
    columns = (*units, *failed)
    made = tuple(tuple(row.get(name) for name in columns) for row in found)
    return Features(columns, made, {name: unit for name, unit in units.items() if unit}, [*warnings], [*notes])


def _calls(job: Job, warnings: dict[Finding, None]) -> Iterator[dict[str, Any]]:
    """A row for every collective of a job, whose warnings are added."""
    chosen = {"algorithm": job.options.algorithm, "selector": job.options.selector}
    refuse(
        job.target, "is a job, whose columns depend on no algorithm", [n for n, v in chosen.items() if v is not None]
    )
    setup, how = job.options.setup(), job.options.how
    workload = read_job(job.target, how)
    warnings |= dict.fromkeys(left_out(workload))
    found = workload.features(setup.sized(workload.ranks).emulator().machine, factors=list(how.factors))
    of_job = {name: getattr(found, name) for name in _OF_JOBS}
    for number, (call, own) in enumerate(zip(workload.calls, found.calls, strict=False)):
        yield {
            "target": plans.label(job.target),
            "call": number,
            "collective": call.collective,
            "group": call.group,
            "node": call.node,
            "ranks": len(call.ranks),
            "bytes": call.bytes,
            "dtype": call.dtype,
            "op": call.op,
            **{name: getattr(own, name) for name in (*_COUNTED, "dependency_depth")},
            **of_job,
        }


def _algorithms(
    target: AnyAlgorithm | Path, name: str, said: dict[str, Any], notes: dict[str, None]
) -> Iterator[dict[str, Any]]:
    """A row for every algorithm that a target stands for; what is to be said of the number of ranks is added."""
    only(name or target, "is an algorithm", said, names_of(OfCollective))
    of = OfCollective(**said)
    emulator = Emulator.load(of.topology, of.ccl, of.overrides)
    if name in COLLECTIVES:
        asked = [of.algorithm] if of.algorithm is not None else emulator.algorithms(name)
        for one in asked:
            try:
                case = Collective(name, replace(of, algorithm=one)).case
                notes |= dict.fromkeys(case.overruled)
                yield _row(name, case)
            except InterruptedRun:
                raise
            except AhbmError as error:
                if of.algorithm is not None:
                    raise
                failure = {"target": name, "algorithm": one, "collective": name, "code": error.code}
                yield failure | {"message": error.message}
        return
    chosen = as_algorithm(target)
    if chosen is None or of.algorithm is not None:
        refuse(name or chosen, "is no collective", ["algorithm"], ", ".join(COLLECTIVES))
    assert chosen is not None
    for collective in emulator.algorithm(chosen).collectives:
        case = Collective(collective, replace(of, algorithm=chosen)).case
        notes |= dict.fromkeys(case.overruled)
        yield _row(name or case.compiled().algorithm, case)


def _plan(opened: PlanFile) -> dict[str, Any]:
    of, plan, name = opened.options, opened.plan, plans.label(opened.target)
    overlaps: dict[str, Any] = {"overlap_capable": None}
    if not plan.buffers and not isinstance(opened.source, Script):
        overlaps = {"overlap_capable": overlap_capable(opened.source, of.reading)}
    if opened.measured:
        return _row(name, opened.case) | overlaps
    dtype = of.dtype if plan.buffers else "u8"
    nbytes = of.size
    if plan.buffers and nbytes is None:
        nbytes, _ = plans.usual_bytes(plan, opened.source, dtype, of.instances or 1)
    how = of.lowering_timed(plan.buffers)
    program, _, _ = timed.prepare(plan, of.topology, how, nbytes, dtype, of.op, of.overrides, of.ccl)
    dtype_of = of.dtype if plan.buffers else None
    return _columns(name, name, plan.collective, nbytes, dtype_of, plan.ranks, program, plan) | overlaps


def _row(target: str, case: Case) -> dict[str, Any]:
    compiled, request = case.compiled(), case.request
    if compiled.program is None:
        raise ConfigError("AHBM-C148", f"{compiled.algorithm}: there is nothing to do", hint="ask for bytes")
    given = (compiled.algorithm, request.collective, request.nbytes, request.dtype, request.parties)
    plan = None
    with suppress(UnsupportedError):
        plan = case.emulator.plan(request, case.by)
    return _columns(target, *given, compiled.program, plan)


def _columns(
    target: str,
    algorithm: str,
    collective: str,
    nbytes: int | None,
    dtype: str | None,
    ranks: int,
    program: Program,
    plan: Plan | None,
) -> dict[str, Any]:
    machine, shape = program.machine, None if plan is None else shape_of(plan)
    kind = COLLECTIVES.get(collective)
    known = kind is not None and not kind.paired and nbytes is not None
    limit = Limits(machine).limit(collective, ranks) if known else None
    found = program.features(limit)
    terms: tuple[float | None, ...] = (None, None)
    if limit is not None and kind is not None and nbytes is not None:
        latency, through = limit.terms(0 if collective == "barrier" else nbytes // kind.chunks(ranks))
        terms = (latency + machine.launch_ps) / 1000, through / 1000
    return {
        "target": target,
        "algorithm": algorithm,
        "collective": collective,
        "topology": program.machine.topology,
        "ranks": ranks,
        "bytes": nbytes,
        "dtype": dtype,
        "message_size_bin": None if nbytes is None else max(nbytes.bit_length() - 1, 0),
        "algorithm_id": found.algorithm_id if shape is None else shape.id,
        "algorithm_kind": None if shape is None else shape.kind,
        "out_degree": None if shape is None else shape.out_degree,
        **{name: getattr(found, name) for name in _OF_PROGRAMS},
        **dict(zip(_BOUNDS, terms, strict=True)),
    }
