"""Opens whatever can be run: a collective, a plan, a script that lowers one, a job, a report or its spec.

Which kind of target a name is, is decided here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from os.path import isdir, isfile
from pathlib import Path
from typing import Any

from ahbm._core import Workload, is_pytorch_trace, trace_sort
from ahbm.base.arguments import checked
from ahbm.base.collectives import COLLECTIVES, meant
from ahbm.base.load import is_prefix
from ahbm.config.reading import PLAIN, Reading
from ahbm.core.spec import Spec
from ahbm.dsl.script import Script
from ahbm.errors import ConfigError
from ahbm.job import nsight
from ahbm.job.options import OF_FILES, OF_SCRIPTS, OfCollective, OfJob, OfPlan, given, names_of, only, refuse
from ahbm.job.reading import How
from ahbm.job.targets import Again, Collective, Job, PlanFile, Target
from ahbm.runs import plans
from ahbm.runs.report import Report
from ahbm.source.located import refuse_kernel


@checked
def open_(target: str | Path | Workload | Report | Spec, **options: Any) -> Target | Again:
    """Opens what can be run: a collective's name, the file of a plan or of a job, a job in memory, a report, or a spec.

    `options`, of names and files: fields of `ahbm.job.options.OfCollective`, `OfPlan` or `OfJob`, of `ahbm.job.reading.
    How` for a job, and of `OF_SCRIPTS` and `OF_FILES`. `open(...).run()` runs the target, `.explain()` says why it
    takes as long as it does, `.inspect()` looks into it, `.case` is what is measured.

    Raises ConfigError: AHBM-C144 for a target that is none of these, C148 for a report without a spec, C146 for options
    that the target does not have, or that do not exist; and as reading a trace, which says what it is.
    """
    if isinstance(target, Report | Spec):
        if options:
            raise ConfigError("AHBM-C146", f"a run that was made is opened as it is, without {', '.join(options)}")
        spec = target.spec if isinstance(target, Report) else target
        if spec is None:
            raise ConfigError("AHBM-C148", "a report that was read from JSON has no program", hint="run it again")
        return Again(spec)
    if isinstance(target, Workload):
        refuse_reading(target.name, said := given(options))
        return Job(target.name, OfJob.of(target.name, said), target)
    name, said = str(target), given(options)
    match kind_of(name, said):
        case "collective":
            only(name, "is no plan and no job", said, names_of(OfCollective))
            return Collective(name, OfCollective(**said))
        case "script":
            return plan_of(name, said)
        case "job":
            return Job(name, OfJob.of(name, said))
        case "plan":
            return plan_of(name, {key: value for key, value in said.items() if key not in OF_FILES})
    refuse_kernel(name)
    raise ConfigError("AHBM-C144", f"{name} is no collective, no plan and no job", hint=meant(name))


def refuse_reading(name: str, said: Mapping[str, Any]) -> None:
    """Raises ConfigError (AHBM-C146) for options of reading, of a job that is in memory."""
    of_traces = [key for key in ("groups", "step", "host_gaps", "symmetric", "reading", "kind") if key in said]
    refuse(name, "is a job in memory, of which no trace is read", of_traces)


def plan_of(name: str, said: Mapping[str, Any]) -> PlanFile:
    """The plan of a file, or of a script. Raises ConfigError (AHBM-C146) for options that it does not have."""
    script = name.endswith(".py")
    known = names_of(OfPlan)
    of_job = not script and not names_of(How).isdisjoint(said.keys() - known)
    hint = "a trace that only sends, receives and computes is an algorithm: --as job makes it a job" if of_job else None
    only(name, "is a plan", said, known | OF_SCRIPTS.keys() if script else known, hint)
    of = OfPlan(**{key: value for key, value in said.items() if key in known})
    if not script:
        return PlanFile(name, of, name)
    own = {**OF_SCRIPTS, **said}
    return PlanFile(name, of, Script(name, tuple(map(str, own["args"])), own["program"], own["frontend"]))


def kind_of(target: str, said: Mapping[str, Any]) -> str:
    """What a name is: "collective", "script", "plan", "job", or "" for none of them. Raises as reading a trace, and
    ConfigError (AHBM-C146) for a kind of what is no trace."""
    wanted, reading = said.get("kind"), said.get("reading", PLAIN)
    if target in COLLECTIVES:
        return "collective"
    if not is_plan(target):
        return ""
    if target.endswith(".py"):
        return "script"
    if wanted not in (None, "job", "algorithm"):
        raise ConfigError("AHBM-C146", f"--as {wanted}: a trace is a job or an algorithm")
    if nsight.is_export(target):
        if wanted == "algorithm":
            raise ConfigError("AHBM-C146", f"{target} is an export of Nsight Systems, so it is a job")
        return "job"
    assert isinstance(reading, Reading)
    sort = trace_sort(target, limits=reading.limits)
    if wanted == "job" and sort == "none":
        raise ConfigError("AHBM-C146", f"{target} is no trace, so it is no job")
    is_job = sort == "job" if wanted is None else wanted == "job"
    return "job" if is_job else "plan"


def is_case(target: str) -> bool:
    """Whether this is a collective or the file of a plan, by its name."""
    return target in COLLECTIVES or is_plan(target)


def is_plan(target: str) -> bool:
    """Whether this is the file of a plan, by its name, the prefix of a trace, a folder with one, or a script."""
    folder = target not in COLLECTIVES and isdir(target)
    if folder or plans.is_file(target) or is_prefix(target) or nsight.is_export(target):
        return True
    # Dumps of ranks have no ending.
    return isfile(target) and is_pytorch_trace(target)
