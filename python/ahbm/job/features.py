"""`ahbm features`: the columns that a selector learns from, of algorithms and of the calls of jobs.

Nothing is simulated. `docs/features.md` says what every column means.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ahbm._core import Machine, Program
from ahbm.base.arguments import checked
from ahbm.base.collectives import COLLECTIVES
from ahbm.core.compiled import Compiled
from ahbm.core.emulator import Emulator
from ahbm.core.limits import Limits
from ahbm.errors import AhbmError, ConfigError, Finding, InterruptedRun
from ahbm.job.door import Opened, Terms, is_plan, refuse_terms_of_plans, terms_of
from ahbm.job.reading import left_out
from ahbm.job.reading import read as read_job
from ahbm.runs import plans, timed
from ahbm.runs.rows import FAILED, Rows
from ahbm.source.function import AnyAlgorithm, as_algorithm
from ahbm.source.plan import has_known_result, read

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
_OF_PROGRAMS = tuple(OF_ALGORITHMS)[tuple(OF_ALGORITHMS).index("algorithm_id") : -len(_BOUNDS)]


@dataclass(frozen=True, repr=False)
class Features(Rows):
    """A row for each algorithm, or for each collective of a job.

    The columns are those of `OF_ALGORITHMS` and, for algorithms that cannot perform a collective, `FAILED`; or those of
    `OF_CALLS`.
    """

    units: Mapping[str, str]
    """Of the columns that have one."""
    warnings: tuple[Finding, ...] = ()
    """What was left out in reading jobs, and what their sources leave open."""
    notes: tuple[str, ...] = ()
    """What the reader should know of the number of ranks."""

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
def features(*targets: AnyAlgorithm | Path, **terms: Any) -> Features:
    """What selectors learn from: a row for every algorithm, or for every collective of a job.

    targets: algorithms in every form that `ahbm.run` takes; collectives, which stand for all algorithms of ccl.yaml
    that perform them; files of plans; or the traces of jobs.
    terms: as of `ahbm.open`. An algorithm is looked at on the machine's ranks, at `bytes_per_rank`.

    Raises ConfigError (AHBM-C146) for jobs beside algorithms and for terms that do not go with a target, and for an
    algorithm that is named what `ahbm.run` raises before it runs; DeadlockError (AHBM-D201) for one that gets stuck.
    """
    return gathered([(target, terms_of(terms)) for target in targets])


def gathered(asked: Sequence[tuple[AnyAlgorithm | Path, Terms]]) -> Features:
    """The rows of all targets, each on its own terms. Raises as `features`."""
    rows: dict[bool, list[dict[str, Any]]] = {}
    warnings: dict[Finding, None] = {}
    notes: dict[str, None] = {}
    for target, terms in asked:
        name = str(target) if isinstance(target, str | Path) else ""
        opened = Opened(name, terms)
        of_job = is_plan(name) and opened.is_job
        rows.setdefault(of_job, []).extend(_calls(opened, warnings) if of_job else _algorithms(target, opened, notes))
    if len(rows) > 1:
        raise ConfigError("AHBM-C146", "jobs and algorithms have other columns", hint="one table for each")
    of_calls = True in rows
    units = OF_CALLS if of_calls else OF_ALGORITHMS
    found = rows.get(of_calls, [])
    failed = FAILED if any("code" in row for row in found) else ()
    columns = (*units, *failed)
    made = tuple(tuple(row.get(name) for name in columns) for row in found)
    return Features(columns, made, {name: unit for name, unit in units.items() if unit}, tuple(warnings), tuple(notes))


def _calls(opened: Opened, warnings: dict[Finding, None]) -> Iterator[dict[str, Any]]:
    """A row for every collective of a job, whose warnings are added."""
    if opened.terms.algorithm is not None or opened.terms.selector is not None:
        raise ConfigError("AHBM-C146", f"{opened.target} is a job: its columns depend on no algorithm")
    setup, how = opened.replaying()
    workload = read_job(opened.target, how)
    warnings |= dict.fromkeys(left_out(workload))
    found = workload.features(setup.sized(workload.ranks).emulator().machine, factors=list(how.factors))
    of_job = {name: getattr(found, name) for name in _OF_JOBS}
    for number, (call, own) in enumerate(zip(workload.calls, found.calls, strict=False)):
        yield {
            "target": plans.label(opened.target),
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


def _algorithms(target: AnyAlgorithm | Path, opened: Opened, notes: dict[str, None]) -> Iterator[dict[str, Any]]:
    """A row for every algorithm that a target stands for; what is to be said of the number of ranks is added."""
    terms, name = opened.terms, opened.target
    if is_plan(name):
        yield from _plan(opened)
        return
    refuse_terms_of_plans(terms)
    emulator = Emulator.load(terms.topology, terms.ccl, terms.overrides)
    if name in COLLECTIVES:
        asked = [terms.algorithm] if terms.algorithm is not None else emulator.algorithms(name)
        for one in asked:
            try:
                case = Opened(name, replace(terms, algorithm=one)).case
                notes |= dict.fromkeys(case.overruled)
                yield _row(name, case.compiled())
            except InterruptedRun:
                raise
            except AhbmError as error:
                if terms.algorithm is not None:
                    raise
                told = {"target": name, "algorithm": one, "collective": name, "code": error.code}
                yield told | {"message": error.message}
        return
    chosen = as_algorithm(target)
    if chosen is None or terms.algorithm is not None:
        what = f"{name or chosen} is no collective: it takes no -a"
        raise ConfigError("AHBM-C146", what, hint=", ".join(COLLECTIVES))
    for collective in emulator.algorithm(chosen).collectives:
        case = Opened(collective, replace(terms, algorithm=chosen)).case
        notes |= dict.fromkeys(case.overruled)
        compiled = case.compiled()
        yield _row(name or compiled.algorithm, compiled)


def _plan(opened: Opened) -> Iterator[dict[str, Any]]:
    target, terms = opened.target, opened.terms
    opened.refuse_terms_of_jobs()
    plan = read(opened.source, terms.reading)
    if plan.buffers and has_known_result(plan):
        case = opened.case
        yield _row(plans.label(target), case.compiled())
        return
    dtype = terms.dtype if plan.buffers else "u8"
    nbytes = terms.bytes_per_rank
    if plan.buffers and nbytes is None:
        nbytes = plans.default_bytes(plan, dtype, terms.instances or 1)
    program, _, _ = timed.prepare(
        plan, terms.topology, opened.options(plan), nbytes, dtype, terms.op, terms.overrides, terms.ccl
    )
    name = plans.label(target)
    dtype_of = terms.dtype if plan.buffers else None
    yield _columns(name, name, plan.collective, nbytes, dtype_of, plan.ranks, program, program.machine)


def _row(target: str, compiled: Compiled) -> dict[str, Any]:
    request = compiled.request
    if compiled.program is None:
        raise ConfigError("AHBM-C148", f"{compiled.algorithm}: there is nothing to do", hint="ask for bytes")
    given = (compiled.algorithm, request.collective, request.nbytes, request.dtype, request.parties)
    return _columns(target, *given, compiled.program, compiled.program.machine)


def _columns(
    target: str,
    algorithm: str,
    collective: str,
    nbytes: int | None,
    dtype: str | None,
    ranks: int,
    program: Program,
    machine: Machine,
) -> dict[str, Any]:
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
        **{name: getattr(found, name) for name in _OF_PROGRAMS},
        **dict(zip(_BOUNDS, terms, strict=True)),
    }
