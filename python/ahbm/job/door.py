"""One door for whatever can be run: a collective, a plan, a script that lowers one, a job, a report or its spec.

Which of three runs a target gets is decided here and nowhere else: it is *measured* (data moves and is compared),
*timed* (no result is known to compare with), or *replayed* as a job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os.path import isdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ahbm._core import Machine, Plan, Workload, trace_sort
from ahbm.base.arguments import checked
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.load import is_prefix
from ahbm.base.placement import DPPolicy
from ahbm.base.words import IDLE
from ahbm.check.case import Case
from ahbm.config.ccl import split_overrides
from ahbm.config.reading import PLAIN, Reading
from ahbm.config.topology import load_machine, sized
from ahbm.core.spec import Spec
from ahbm.core.with_knobs import MATH
from ahbm.dsl.script import Script
from ahbm.errors import AhbmError, ConfigError
from ahbm.job.reading import AS_IT_IS, How
from ahbm.job.reading import read as read_job
from ahbm.job.recorded import recorded
from ahbm.job.replay import JobReport, replay
from ahbm.ranks.setup import Setup
from ahbm.runs import knobs, plans, timed
from ahbm.runs.inspection import Inspection
from ahbm.runs.keywords import Arguments
from ahbm.runs.measure import measure, prepare
from ahbm.runs.report import Report
from ahbm.runs.timed import TimeReport
from ahbm.selectors.protocol import AnySelector
from ahbm.selectors.why import Explanation as ChoiceExplanation
from ahbm.selectors.why import explain
from ahbm.source.function import AnyAlgorithm, as_algorithm
from ahbm.source.plan import PROTOCOLS, SLOTS, has_known_result, is_free, read

if TYPE_CHECKING:
    from ahbm.job.best import Best
    from ahbm.job.what_if import WhatIf
    from ahbm.runs.explanation import Explanation


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The terms on which a target is run. None leaves a choice to the target, or means that it has none."""

    topology: str | Path | Machine | None = None
    ccl: str | Path | None = None
    overrides: Mapping[str, object] | None = None
    algorithm: AnyAlgorithm = None
    """Of a collective; of a job, for its all_reduces."""
    selector: AnySelector = None
    """Of a collective, and of a job for all of its collectives: `selector(algorithms, request)` chooses."""
    bytes_per_rank: int | None = None
    """Size of one rank's array."""
    dtype: str = "f16"
    op: str = "sum"
    root: int = 0
    device: bool = False
    """Device tensors: one tile of the size on every cube."""
    slots: int | None = None
    """Plans: messages a queue holds; `UNLIMITED` for no bound."""
    protocol: str | None = None
    """Plans: Simple, LL or LL128."""
    slice_bytes: int | None = None
    """Plans: size of the largest message instead of the protocol's."""
    instances: int | None = None
    """Plans: parallel copies."""
    reading: Reading = PLAIN
    """Plans: how the file is read."""
    groups: str | Path | None = None
    """Jobs: a JSON file with the ranks of the process groups by name."""
    lanes: str | None = None
    """Jobs: which nodes of a rank run side by side: "device", "streams", "astra" or "unlimited"."""
    fold: bool = True
    """Jobs: of ranks that do the same one is simulated; the times are those of all ranks."""
    factors: Sequence[tuple[str, float]] = ()
    """Jobs: computations whose name contains a text take so many times as long."""
    step: int | None = None
    """Jobs, of a profiler's trace: the step of this number; all by default."""
    host_gaps: bool = False
    """Jobs, of a profiler's trace: the time that the host takes between launches counts."""
    symmetric: bool = False
    """Jobs, of PyTorch's traces: all ranks do what the one rank with a trace does."""
    replicas: int | None = None
    """Jobs: the number of data-parallel replicas, in place of those that were recorded."""
    kind: str | None = None
    """Traces: "job" or "algorithm"; None as the trace says."""
    args: Sequence[str] = ()
    """Scripts: the arguments that follow the script's name."""
    program: str | None = None
    """Scripts: which of several programs is meant, by name or position; else the last."""
    frontend: str | None = None
    """Scripts: "upstream" leaves lowering to the installed package of the language."""
    knobs: bool = True
    """Plans: the knobs beside the file (`NAME.knobs.json`) hold for what is not said here."""

    @property
    def of_jobs(self) -> tuple[object, ...]:
        """The terms that only jobs have; each is None, False or empty by default."""
        flags = (self.host_gaps or None, self.symmetric or None, not self.fold or None)
        return (self.groups, self.lanes, self.factors, self.step, self.replicas, *flags)

    @property
    def of_plans(self) -> tuple[object, ...]:
        """The terms that only plans have."""
        return self.slots, self.protocol, self.slice_bytes, self.instances


NOTHING_OF_JOBS = Terms().of_jobs
OPTIONS_OF_JOBS = "--groups, --lanes, --compute, --step, --host-gaps, --symmetric, --replicas, --no-fold"

UNLIMITED = -1
"""Depth of a queue that holds every message."""


@dataclass(frozen=True)
class Opened:
    """A target and how it is run."""

    target: str
    terms: Terms = Terms()

    @property
    def source(self) -> str | Script:
        """The file of a plan, or the script that lowers one. Raises ConfigError (AHBM-C146) for terms of scripts."""
        terms = self.terms
        if self.target.endswith(".py"):
            return Script(self.target, tuple(map(str, terms.args)), terms.program, terms.frontend)
        if (tuple(terms.args), terms.program, terms.frontend) != ((), None, None):
            raise ConfigError("AHBM-C146", f"{self.target} is no script: it takes no arguments, program or frontend")
        return self.target

    @property
    def case(self) -> Case:
        """The target as something to measure.

        Raises ConfigError (AHBM-C146) for terms that do not go with it, and as `ahbm.run`.
        """
        if self._knobbed is not None:
            return self._knobbed[0].case
        terms = self.terms
        arguments = Arguments(dtype=terms.dtype, op=terms.op, root=terms.root, overrides=terms.overrides, ccl=terms.ccl)
        if terms.device:
            arguments |= Arguments(bytes_per_pe=terms.bytes_per_rank, placement=DPPolicy(cube="row_wise"))
        else:
            arguments |= Arguments(bytes_per_rank=terms.bytes_per_rank)
        if is_plan(self.target):
            if terms.algorithm is not None or terms.root != 0 or terms.device:
                raise ConfigError("AHBM-C146", f"{self.target} is a plan: it takes no --algorithm, --root or --device")
            if terms.selector is not None:
                raise ConfigError("AHBM-C146", f"{self.target} is a plan: it takes no selector")
            self.refuse_terms_of_jobs()
            if (terms.slice_bytes, terms.slots) != (None, None) or terms.reading.lenient:
                self._refuse_lowering(read(self.source, terms.reading))
            return plans.prepare(self.source, terms.topology, _options(terms, SLOTS), **arguments)
        refuse_terms_of_plans(terms)
        return prepare(self.target, terms.algorithm, terms.topology, **(arguments | Arguments(selector=terms.selector)))

    @property
    def measured(self) -> bool:
        """Whether data moves and is compared: of a collective, and of a plan whose result is known. Raises as `run`."""
        if not is_plan(self.target):
            return True
        if self.is_job:
            return False
        plan = read(self.source, self.terms.reading)
        return plan.buffers and has_known_result(plan)

    @cached_property
    def _knobbed(self) -> tuple[Opened, str] | None:
        """The target under the knobs beside it, and a note of what they do; None where there are none.

        Raises FormatError (AHBM-F188, F199) for knobs that are none, or of another program.
        """
        target, terms = self.target, self.terms
        if not terms.knobs or not is_plan(target) or target.endswith(".py") or self.is_job:
            return None
        found = knobs.read(target)
        if found is None:
            return None
        given = {
            "protocol": terms.protocol,
            "channels": terms.instances,
            "chunk_bytes": terms.slice_bytes,
            "threads": (terms.overrides or {}).get(MATH),
        }
        found = replace(found, **{name: None for name, value in given.items() if value is not None})
        plan = read(self.source, terms.reading)
        overrides = sized(plan.ranks, terms.topology, terms.overrides)
        machine = load_machine(terms.topology, split_overrides(overrides)[0])
        applied = knobs.apply(found, plan, machine, target)
        modelled = applied.modelled
        with_them = replace(
            terms,
            knobs=False,
            overrides={**(terms.overrides or {}), **applied.overrides} or None,
            protocol=terms.protocol or (modelled.protocol and PROTOCOLS[modelled.protocol]),
            instances=terms.instances or modelled.channels,
            slice_bytes=terms.slice_bytes or modelled.chunk_bytes,
        )
        return replace(self, terms=with_them), applied.note

    def at(self, nbytes: int) -> Opened:
        """The target at this size, unless it is a trace that states sizes of its own."""
        if self.is_job:
            return self
        if is_plan(self.target) and not read(self.source, self.terms.reading).buffers:
            return self
        return replace(self, terms=replace(self.terms, bytes_per_rank=nbytes))

    @checked
    def run(
        self, *, data: bool = True, check: bool | str | None = None, seed: int = 0
    ) -> Report | TimeReport | JobReport:
        """Runs the target: a job, or a plan without a known result, for its time only. Raises as `case`."""
        if self._knobbed is not None:
            opened, told = self._knobbed
            report = opened.run(data=data, check=check, seed=seed)
            assert not isinstance(report, JobReport)
            return replace(report, notes=(*report.notes, told))
        target, terms = self.target, self.terms
        if not is_plan(target):
            return measure(self.case, data=data, check=False if check is None else check, seed=seed)
        if self.is_job:
            if check is not None:
                raise ConfigError("AHBM-C146", f"{target} is a job, which runs for its time only: no --check")
            return self._replayed()
        self.refuse_terms_of_jobs()
        plan = read(self.source, terms.reading)
        if not plan.buffers and (terms.protocol, terms.instances, terms.slice_bytes) != (None,) * 3:
            raise ConfigError("AHBM-C146", f"{target} names no buffers: it has no protocol, slices or instances")
        self._refuse_lowering(plan)
        nbytes, note = terms.bytes_per_rank, tuple[str, ...]()
        if plan.buffers and nbytes is None:
            nbytes = plans.default_bytes(plan, terms.dtype, terms.instances or 1)
            note = (f"{nbytes} B per rank: no size was given",)
        if plan.buffers and has_known_result(plan):
            report = measure(self.case, data=data, check=False if check is None else check, seed=seed)
            return replace(report, notes=(*report.notes, *note))
        if terms.algorithm is not None or terms.selector is not None or terms.root != 0 or terms.device:
            what = "it takes no --algorithm, selector, --root or --device"
            raise ConfigError("AHBM-C146", f"{target} is a plan: {what}")
        if not plan.buffers and (terms.dtype, terms.op) != (Terms.dtype, Terms.op):
            raise ConfigError("AHBM-C146", f"{target} names no buffers: it has no --dtype or --op")
        if check is not None:
            raise ConfigError(
                "AHBM-C146",
                f"{target} runs for its time only: --check is for plans with a known result",
                hint="ahbm check FILE looks at its chunks, messages and orders",
            )
        return timed.run(
            plan,
            plans.label(target),
            terms.topology,
            self.options(plan),
            nbytes=nbytes,
            dtype=terms.dtype if plan.buffers else "u8",
            op=terms.op,
            overrides=terms.overrides,
            ccl=terms.ccl,
        )

    def _refuse_lowering(self, plan: Plan) -> None:
        """Raises ConfigError (AHBM-C146) for ways of lowering that the plan itself states, and of reading that are for
        other files."""
        if self.terms.slice_bytes is not None and plan.buffers and not is_free(plan):
            raise ConfigError("AHBM-C146", f"{self.target} states its messages: it runs without --slice")
        if self.terms.slots is not None and not plan.queues:
            raise ConfigError("AHBM-C146", f"{self.target} has no queues: it runs without --slots")
        if self.terms.reading.lenient and not plan.format.startswith("chakra"):
            raise ConfigError("AHBM-C146", f"{self.target} is no trace: --lenient is for dependencies of nodes")

    @checked
    def options(self, plan: Plan) -> plans.Options:
        """How a plan without a known result is read and lowered; queues of a trace hold what is sent."""
        return _options(self.terms, SLOTS if plan.buffers or self.terms.slots is not None else None)

    def explain(self) -> Explanation:
        """Why the target takes as long as it does; runs it for its time."""
        return self.run(data=False).explain()

    def choice(self) -> ChoiceExplanation | None:
        """The choice of the selector that chose the algorithm of a collective, beside what the others take; None where
        none chose. Simulates every candidate."""
        choice = self.case.choice if self.measured and not is_plan(self.target) else None
        return None if choice is None else explain(choice, self.case.emulator)

    def inspect(self) -> Inspection:
        """Looks into the run of the target. Raises ConfigError (AHBM-C146) for a job, which is many runs."""
        # What is timed is run first; what is measured need not come to its end.
        if self.measured:
            return Inspection.of(self.case)
        report = self.run(data=False)
        if isinstance(report, JobReport):
            hint = "look into one of its collectives: ahbm inspect all_reduce"
            raise ConfigError("AHBM-C146", f"{self.target} is a job: what happens inside it is not followed", hint=hint)
        return report.inspect()

    @cached_property
    def is_job(self) -> bool:
        """Whether the target is a training job. Raises as reading it, and ConfigError (AHBM-C146) for a kind of what is
        no trace."""
        if not is_plan(self.target) or self.target.endswith(".py"):
            if self.terms.kind is not None and self.target.endswith(".py"):
                raise ConfigError("AHBM-C146", f"{self.target} is no trace: no --as")
            return False
        if self.terms.kind not in (None, "job", "algorithm"):
            raise ConfigError("AHBM-C146", f"--as {self.terms.kind}: a trace is a job or an algorithm")
        sort = trace_sort(self.target, limits=self.terms.reading.limits)
        if self.terms.kind == "job" and sort == "none":
            raise ConfigError("AHBM-C146", f"{self.target} is no trace, so it is no job")
        return sort == "job" if self.terms.kind is None else self.terms.kind == "job"

    def refuse_terms_of_jobs(self) -> None:
        """Raises ConfigError (AHBM-C146) for terms that only jobs have."""
        if self.terms.of_jobs != NOTHING_OF_JOBS:
            hint = "a trace that only sends, receives and computes is an algorithm: --as job makes it a job"
            raise ConfigError("AHBM-C146", f"{self.target} is no job: no {OPTIONS_OF_JOBS}", hint=hint)

    def best(self) -> Best:
        """The best algorithm for every call of a job. Raises ConfigError (AHBM-C146) for what is no job."""
        from ahbm.job.best import best

        if not self.is_job:
            raise ConfigError("AHBM-C146", f"{self.target} is no job", hint="ahbm ladder compares algorithms")
        setup, how = self.replaying()
        return best(read_job(self.target, how), plans.label(self.target), setup, how)

    @checked
    def what_if(self, *changes: Mapping[str, Any]) -> WhatIf:
        """A job as it is, and under each of `changes`, all in one process.

        A change has dotted keys of the machine, whose values may be factors of what the machine has
        (`{"system.sips.link.bandwidth_gbs": "2x"}`), and terms (`{"factors": [("gemm", 0.5)]}`,
        `{"algorithm": "ring_allreduce"}`, `{"groups": "other.json"}`, `{"replicas": 8}`).

        Raises ConfigError (AHBM-C146) for what is no job, and for terms that do not exist. A change under which the job
        does not run is a point with its error.
        """
        from ahbm.job.what_if import what_if

        return what_if(self, changes)

    def _replayed(self) -> JobReport:
        setup, how = self.replaying()
        label = plans.label(self.target)
        report, found = replay(self.target, label, setup, how), recorded(self.target, how.step)
        if idle := tuple(self._idle(report, how)):
            performed = replace(report.performed, notes=(*report.performed.notes, *idle))
            report = replace(report, performed=performed)
        if found is None:
            return report
        if not how.host_gaps:
            gaps = replay(self.target, label, setup, replace(how, host_gaps=True)).latency_ns - report.latency_ns
            found = replace(found, host_gaps_ns=gaps)
        return replace(report, recorded=found)

    def _idle(self, report: JobReport, how: How) -> Iterator[str]:
        """Notes on terms that change nothing in this job, because it states itself what they would say."""
        calls = report.performed.calls
        if how.dtype != Terms.dtype and all(call.dtype is not None for call in calls):
            yield f"every call states its element type: dtype {how.dtype} {IDLE}"
        if how.op != Terms.op and all(call.op is not None for call in calls if COLLECTIVES[call.collective].reduces):
            yield f"every call states its operator: op {how.op} {IDLE}"
        if how.reading.lenient and report.asked.workload.left_out == (0, 0):
            yield f"every dependency is on a node that exists: lenient {IDLE}"
        for name, other in (("groups", replace(how, groups=None)), ("symmetric", replace(how, symmetric=False))):
            if getattr(how, name):
                try:
                    same = _shape(read_job(self.target, other)) == _shape(report.asked.workload)
                except AhbmError:
                    same = False
                if same:
                    yield f"the job says itself which ranks do what: {name} {IDLE}"

    def replaying(self) -> tuple[Setup, How]:
        """The machine that a job is replayed on, and how. Raises ConfigError (AHBM-C146) for terms of plans."""
        target, terms = self.target, self.terms
        if (terms.bytes_per_rank, *terms.of_plans) != (None,) * 5:
            options = "--size, --slots, --protocol, --slice or --instances"
            raise ConfigError("AHBM-C146", f"{target} is a job: it takes no {options}")
        if terms.root != 0 or terms.device or terms.reading.quirks or (terms.program, terms.frontend) != (None, None):
            options = "--root, --device, --quirks, --program or --frontend"
            raise ConfigError("AHBM-C146", f"{target} is a job: it takes no {options}")
        setup = Setup(terms.topology, terms.ccl, dict(terms.overrides or {}) or None, as_algorithm(terms.algorithm))
        how = How(
            groups=terms.groups,
            dtype=terms.dtype,
            op=terms.op,
            lanes=terms.lanes or AS_IT_IS.lanes,
            fold=terms.fold,
            factors=terms.factors,
            step=terms.step,
            host_gaps=terms.host_gaps,
            symmetric=terms.symmetric,
            replicas=terms.replicas,
            reading=terms.reading,
        )
        return replace(setup, selector=terms.selector), how


@dataclass(frozen=True)
class Reopened:
    """A run that was made before: the same program, the same times."""

    spec: Spec

    @property
    def case(self) -> Case:
        """The case that was run. Raises ConfigError (AHBM-C163) when the algorithm is not what it was."""
        return Case.of(self.spec)

    def run(self, *, data: bool | None = None, check: bool | str | None = None, seed: int | None = None) -> Report:
        """Runs it again, as it was run where nothing else is said."""
        spec = self.spec
        return measure(
            self.case,
            data=spec.data if data is None else data,
            seed=spec.seed if seed is None else seed,
            mode=spec.mode,
            check=spec.checks or False if check is None else check,
        )

    def inspect(self) -> Inspection:
        """Looks into the run."""
        return Inspection.of(self.case, self.spec.mode, self.spec.seed)

    def explain(self) -> Explanation:
        """Why the run takes as long as it does."""
        return self.run(data=False, check=False).explain()


@checked
def open_(target: str | Path | Report | Spec, **terms: Any) -> Opened | Reopened:
    """Opens what can be run: a collective's name, the file of a plan or of a job, a report, or a spec.

    `terms`: fields of `Terms`, for names and files. `open(...).run()` runs the target, `.explain()` says why it takes
    as long as it does, `.inspect()` looks into it, `.case` is what is measured.

    Raises ConfigError: AHBM-C144 for a target that is none of these, C148 for a report without a spec, C146 for terms
    that a report or a spec does not take, or that do not exist.
    """
    if isinstance(target, Report | Spec):
        if terms:
            raise ConfigError("AHBM-C146", f"a run that was made is opened as it is, without {', '.join(terms)}")
        spec = target.spec if isinstance(target, Report) else target
        if spec is None:
            raise ConfigError("AHBM-C148", "a report that was read from JSON has no program", hint="run it again")
        return Reopened(spec)
    name = str(target)
    known = terms_of(terms)
    if not is_case(name):
        raise ConfigError("AHBM-C144", f"{name} is no collective, no plan and no job", hint=", ".join(COLLECTIVES))
    return Opened(name, known)


def terms_of(given: Mapping[str, Any]) -> Terms:
    """`given` as terms. Raises ConfigError (AHBM-C146) for one that there is not."""
    unknown = [name for name in given if name not in Terms.__dataclass_fields__]
    if unknown:
        known = ", ".join(Terms.__dataclass_fields__)
        raise ConfigError("AHBM-C146", f"open: there is no term {unknown[0]!r}", hint=f"one of {known}")
    return Terms(**given)


def _shape(job: Workload) -> object:
    """What tells jobs from each other that were read from the same files."""
    return job.ranks, job.nodes, [(call.collective, call.ranks, call.bytes) for call in job.calls]


def is_case(target: str) -> bool:
    """Whether this is a collective or the file of a plan, by its name."""
    return target in COLLECTIVES or is_plan(target)


def is_plan(target: str) -> bool:
    """Whether this is the file of a plan, by its name, the prefix of a trace, a folder with one, or a script."""
    folder = target not in COLLECTIVES and isdir(target)
    return folder or plans.is_file(target) or is_prefix(target)


def refuse_terms_of_plans(terms: Terms) -> None:
    """Raises ConfigError (AHBM-C146) for what only plans have."""
    of_files = (*terms.of_plans, terms.kind, terms.program, terms.frontend)
    if of_files != (None,) * 7 or terms.of_jobs != NOTHING_OF_JOBS or terms.reading != PLAIN:
        options = (
            f"--slots, --protocol, --slice, --instances, {OPTIONS_OF_JOBS}, --limit, --lenient, --program, --frontend"
        )
        raise ConfigError("AHBM-C146", f"{options} and --quirks are for plans")


def _options(terms: Terms, depth: int | None) -> plans.Options:
    slots = depth if terms.slots is None else None if terms.slots == UNLIMITED else terms.slots
    return plans.Options(terms.protocol, terms.instances or 1, terms.slice_bytes, terms.reading, slots=slots)
