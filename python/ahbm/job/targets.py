"""What can be run, each kind a type of its own: a collective, the file of a plan, a job, a run that was made before.

A collective is *measured*: data moves and is compared. So is a plan whose result is known; another is *timed*. A job is
*replayed*.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ahbm._core import Plan, Workload
from ahbm.base.arguments import checked
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.placement import DPPolicy
from ahbm.base.words import IDLE
from ahbm.check.case import Case
from ahbm.config.ccl import split_overrides
from ahbm.config.topology import load_machine, sized
from ahbm.core.spec import Spec
from ahbm.core.with_knobs import MATH
from ahbm.dsl.script import Script
from ahbm.errors import AhbmError, ConfigError
from ahbm.job.graphs import idle as idle_graphs
from ahbm.job.options import DTYPE, OP, OfCollective, OfJob, OfPlan, Where, refuse
from ahbm.job.reading import How
from ahbm.job.reading import read as read_job
from ahbm.job.recorded import recorded
from ahbm.job.replay import JobReport, replay
from ahbm.runs import knobs, plans, timed
from ahbm.runs.inspection import Inspection
from ahbm.runs.keywords import Arguments
from ahbm.runs.measure import measure, prepare
from ahbm.runs.report import Report
from ahbm.runs.timed import TimeReport
from ahbm.selectors.why import Explanation as ChoiceExplanation
from ahbm.selectors.why import explain
from ahbm.source.plan import PROTOCOLS, SLOTS, assigned_of, has_known_result, is_free, read
from ahbm.source.sized import MOST, Assigned, Unassigned

if TYPE_CHECKING:
    from ahbm.job.best import Best
    from ahbm.job.what_if import WhatIf
    from ahbm.runs.explanation import Explanation


class Target(ABC):
    """What all kinds of targets are asked for."""

    target: str
    options: Where
    is_job = False

    @property
    def measured(self) -> bool:
        """Whether data moves and is compared."""
        return True

    @property
    def case(self) -> Case:
        """The target as something to measure. Raises ConfigError (AHBM-C146) for a job, and as `ahbm.run`."""
        raise ConfigError("AHBM-C146", f"{self.target} runs for its time only: there is nothing to measure")

    @abstractmethod
    def run(
        self, *, data: bool = True, check: bool | str | None = None, seed: int = 0
    ) -> Report | TimeReport | JobReport:
        """Runs the target: a job, or a plan without a known result, for its time only. Raises as `case`."""

    def at(self, nbytes: int) -> Target:
        """The target at this size of one rank's array, unless it states sizes of its own."""
        return self

    def explain(self) -> Explanation:
        """Why the target takes as long as it does; runs it for its time."""
        return self.run(data=False).explain()

    def choice(self) -> ChoiceExplanation | None:
        """The choice of the selector that chose the algorithm of a collective, beside what the others take; None where
        none chose. Simulates every candidate."""
        return None

    def inspect(self) -> Inspection:
        """Looks into the run of the target. Raises ConfigError (AHBM-C146) for a job, which is many runs."""
        # What is timed is run first; what is measured need not come to its end.
        if self.measured:
            return Inspection.of(self.case)
        report = self.run(data=False)
        assert not isinstance(report, JobReport)
        return report.inspect()

    def best(self) -> Best:
        """The best algorithm for every call of a job. Raises ConfigError (AHBM-C146) for what is no job."""
        raise ConfigError("AHBM-C146", f"{self.target} is no job", hint="ahbm ladder compares algorithms")

    @checked
    def what_if(self, *changes: Mapping[str, Any]) -> WhatIf:
        """A job as it is, and under each of `changes`, all in one process.

        A change has dotted keys of the machine, whose values may be factors of what the machine has
        (`{"system.sips.link.bandwidth_gbs": "2x"}`), and options (`{"factors": [("gemm", 0.5)]}`,
        `{"algorithm": "ring_allreduce"}`, `{"groups": "other.json"}`, `{"replicas": 8}`).

        Raises ConfigError (AHBM-C146) for what is no job, and for options that do not exist. A change under which the
        job does not run is a point with its error.
        """
        raise ConfigError("AHBM-C146", f"{self.target} is no job", hint="explain(...).what_if changes its machine")


@dataclass(frozen=True)
class Collective(Target):
    """A collective among all ranks."""

    target: str
    options: OfCollective

    @property
    def case(self) -> Case:
        """See `Target`."""
        of = self.options
        arguments = Arguments(
            dtype=of.dtype, op=of.op, root=of.root, overrides=of.overrides, ccl=of.ccl, selector=of.selector
        )
        if of.device:
            arguments |= Arguments(bytes_per_pe=of.size, placement=DPPolicy(cube="row_wise"))
        else:
            arguments |= Arguments(size=of.size)
        return prepare(self.target, of.algorithm, of.topology, **arguments)

    @checked
    def run(self, *, data: bool = True, check: bool | str | None = None, seed: int = 0) -> Report:
        """See `Target`."""
        return measure(self.case, data=data, check=False if check is None else check, seed=seed)

    def at(self, nbytes: int) -> Collective:
        """See `Target`."""
        return replace(self, options=replace(self.options, size=nbytes))

    def choice(self) -> ChoiceExplanation | None:
        """See `Target`."""
        choice = self.case.choice
        return None if choice is None else explain(choice, self.case.emulator)


@dataclass(frozen=True)
class PlanFile(Target):
    """A plan: in a file, or of a script that lowers one."""

    target: str
    options: OfPlan
    source: str | Script

    @cached_property
    def plan(self) -> Plan:
        """The plan as it is read. Raises as reading it."""
        return read(self.source, self.options.reading)

    @property
    def measured(self) -> bool:
        """See `Target`: where its result is known. Raises as reading it."""
        if self.plan.buffers:
            return has_known_result(self.plan)
        chunks = self._chunks
        # A run of messages that no program knows is refused as a run for the time is.
        runs = isinstance(chunks, Assigned) and (chunks.most <= MOST or self.options.size is not None)
        return runs and not self.options.reading.lenient

    @cached_property
    def _chunks(self) -> Assigned | Unassigned | None:
        """The chunks of a graph that states sizes only."""
        return (
            None
            if isinstance(self.source, Script)
            else assigned_of(self.plan, self.source, reading=self.options.reading)
        )

    @property
    def case(self) -> Case:
        """See `Target`."""
        if self._with_knobs is not None:
            return self._with_knobs[0].case
        of = self.options
        if (of.slice_bytes, of.slots) != (None, None) or of.reading.lenient:
            self._refuse_lowering()
        arguments = Arguments(dtype=of.dtype, op=of.op, overrides=of.overrides, ccl=of.ccl, size=of.size)
        return plans.prepare(self.source, of.topology, of.lowering(SLOTS), **arguments)

    @cached_property
    def _with_knobs(self) -> tuple[PlanFile, str] | None:
        """The target under the knobs beside it, and a note of what they do; None where there are none.

        Raises FormatError (AHBM-F188, F199) for knobs that are none, or of another program.
        """
        of = self.options
        found = None if not of.knobs or isinstance(self.source, Script) else knobs.read(self.target)
        if found is None:
            return None
        said = {
            "protocol": of.protocol,
            "channels": of.instances,
            "chunk_bytes": of.slice_bytes,
            "threads": (of.overrides or {}).get(MATH),
        }
        found = replace(found, **{name: None for name, value in said.items() if value is not None})
        overrides = sized(self.plan.ranks, of.topology, of.overrides)
        machine = load_machine(of.topology, split_overrides(overrides)[0])
        applied = knobs.apply(found, self.plan, machine, self.target)
        modelled = applied.modelled
        changed = replace(
            of,
            knobs=False,
            overrides={**(of.overrides or {}), **applied.overrides} or None,
            protocol=of.protocol or (modelled.protocol and PROTOCOLS[modelled.protocol]),
            instances=of.instances or modelled.channels,
            slice_bytes=of.slice_bytes or modelled.chunk_bytes,
        )
        return replace(self, options=changed), applied.note

    def at(self, nbytes: int) -> PlanFile:
        """See `Target`."""
        sized_ = self.plan.buffers or self.measured
        return replace(self, options=replace(self.options, size=nbytes)) if sized_ else self

    @checked
    def run(self, *, data: bool = True, check: bool | str | None = None, seed: int = 0) -> Report | TimeReport:
        """See `Target`."""
        if self._with_knobs is not None:
            opened, with_knobs = self._with_knobs
            report = opened.run(data=data, check=check, seed=seed)
            return replace(report, notes=(*report.notes, with_knobs))
        of, plan = self.options, self.plan
        if not plan.buffers:
            unfit = {"protocol": of.protocol, "instances": of.instances, "slice_bytes": of.slice_bytes}
            names = [name for name, value in unfit.items() if value is not None]
            if not self.measured:
                names += [name for name, usual in (("dtype", DTYPE), ("op", OP)) if getattr(of, name) != usual]
            refuse(self.target, "names no buffers", names)
        self._refuse_lowering()
        nbytes, note = of.size, tuple[str, ...]()
        if plan.buffers and nbytes is None:
            nbytes, message = plans.usual_bytes(plan, self.source, of.dtype, of.instances or 1, data=data)
            note = (message,)
        if self.measured:
            case = self.case if nbytes is None else self.at(nbytes).case
            measured = measure(case, data=data, check=False if check is None else check, seed=seed)
            return replace(measured, notes=(*measured.notes, *note))
        if check is not None:
            hint = "--check is for plans with a known result; ahbm check FILE looks at its chunks, messages and orders"
            refuse(self.target, "runs for its time only", ["check"], hint)
        report = timed.run(
            plan,
            plans.label(self.target),
            of.topology,
            of.lowering_timed(plan.buffers),
            nbytes=nbytes,
            dtype=of.dtype if plan.buffers else "u8",
            op=of.op,
            overrides=of.overrides,
            ccl=of.ccl,
        )
        chunks = self._chunks
        return replace(report, notes=(*report.notes, chunks.why)) if isinstance(chunks, Unassigned) else report

    def _refuse_lowering(self) -> None:
        """Raises ConfigError (AHBM-C146) for ways of lowering that the plan itself states, and of reading that are for
        other files."""
        of, plan = self.options, self.plan
        if of.slice_bytes is not None and plan.buffers and not is_free(plan):
            refuse(self.target, "states its messages", ["slice_bytes"])
        if of.slots is not None and not plan.queues:
            refuse(self.target, "has no queues", ["slots"])
        if of.reading.lenient and not plan.format.startswith("chakra"):
            refuse(self.target, "is no trace", ["lenient"], "--lenient is for dependencies of nodes")


@dataclass(frozen=True)
class Job(Target):
    """A training job, in the trace of a recording or of a generator."""

    target: str
    options: OfJob
    workload: Workload | None = None
    """The job, where it is no trace."""
    is_job = True

    @property
    def measured(self) -> bool:
        """See `Target`."""
        return False

    @checked
    def run(self, *, data: bool = True, check: bool | str | None = None, seed: int = 0) -> JobReport:
        """See `Target`."""
        if check is not None:
            refuse(self.target, "is a job, which runs for its time only", ["check"])
        return self._replayed()

    def inspect(self) -> Inspection:
        """See `Target`."""
        hint = "look into one of its collectives: ahbm inspect all_reduce"
        raise ConfigError("AHBM-C146", f"{self.target} is a job: what happens inside it is not followed", hint=hint)

    def best(self) -> Best:
        """See `Target`."""
        from ahbm.job.best import best

        how = self.options.how
        return best(self.job(how), self.label, self.options.setup(), how)

    @checked
    def what_if(self, *changes: Mapping[str, Any]) -> WhatIf:
        """See `Target`."""
        from ahbm.job.what_if import what_if

        return what_if(self, changes)

    @property
    def label(self) -> str:
        """Its name for people."""
        return plans.label(self.target) if self.workload is None else self.target

    def job(self, how: How) -> Workload:
        """The job, read where it is a trace. Raises as `ahbm.job.reading.read`."""
        if self.workload is None:
            return read_job(self.target, how)
        return self.workload if how.replicas is None else self.workload.replicated(how.replicas)

    def _replayed(self) -> JobReport:
        setup, how = self.options.setup(), self.options.how
        label = self.label
        if self.workload is not None:
            return replay(self.job(how), label, setup, how)
        report, found = replay(self.target, label, setup, how), recorded(self.target, how.step)
        graphs = idle_graphs(self.options.collective_algorithm, report.asked.workload.calls)
        if idle := (*graphs, *self.idle(report.asked.workload, report)):
            performed = replace(report.performed, notes=(*report.performed.notes, *idle))
            report = replace(report, performed=performed)
        if found is None:
            return report
        if not how.host_gaps:
            gaps = replay(self.target, label, setup, replace(how, host_gaps=True)).latency_ns - report.latency_ns
            found = replace(found, host_gaps_ns=gaps)
        return replace(report, recorded=found)

    def idle(self, job: Workload, report: JobReport) -> Iterator[str]:
        """Notes on options that change nothing in this `job`, of which `report` has the calls, because it states itself
        what they would say. A job in memory was read by nobody's options."""
        calls, how = report.performed.calls, self.options.how
        if how.dtype != DTYPE and all(call.dtype is not None for call in calls):
            yield f"every call states its element type: dtype {how.dtype} {IDLE}"
        if how.op != OP and all(call.op is not None for call in calls if COLLECTIVES[call.collective].reduces):
            yield f"every call states its operator: op {how.op} {IDLE}"
        if how.reading.lenient and job.left_out == (0, 0):
            yield f"every dependency is on a node that exists: lenient {IDLE}"
        for name, other in (("groups", replace(how, groups=None)), ("symmetric", replace(how, symmetric=False))):
            if getattr(how, name) and self.workload is None:
                try:
                    same = _shape(read_job(self.target, other)) == _shape(job)
                except AhbmError:
                    same = False
                if same:
                    yield f"the job says itself which ranks do what: {name} {IDLE}"


@dataclass(frozen=True)
class Again:
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


def _shape(job: Workload) -> object:
    """What tells jobs from each other that were read from the same files."""
    return job.ranks, job.nodes, [(call.collective, call.ranks, call.bytes) for call in job.calls]
