"""What would make a job shorter, simulated on the job itself: the best algorithms, and quicker computations."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ahbm._core import Machine, Workload
from ahbm.base.yaml_source import scalar_text
from ahbm.config.topology import read_for
from ahbm.core.spec import machine_name
from ahbm.job.best import Best, best
from ahbm.job.options import DTYPE
from ahbm.job.reading import AS_IT_IS
from ahbm.job.replay import JobReport, replay
from ahbm.ranks.setup import Setup
from ahbm.runs.advice import SIMULATED, Advice
from ahbm.runs.rivals import settings

if TYPE_CHECKING:
    from ahbm.job.replay import Asked

SEARCHED = 100_000
"""Nodes up to which a job is tried with every algorithm, unless more is asked for."""
NAMES = 3
"""Kinds of computations that are tried: those that the critical path spends the most time on."""
LEAST = 0.01
"""Part of the job's time that a kind of computations must have on the critical path to be tried."""
_NUMBER = re.compile(r"\d+$")


@dataclass(frozen=True)
class OfJob:
    """What may be done otherwise in a job; as `ahbm.runs.rivals.Alternatives`."""

    report: JobReport
    asked: Asked

    def simulated(self, latency_ps: int, budget: int | None) -> list[Advice]:
        """The best algorithms together, and the computations of each of the most important kinds in half their time;
        with a budget, of jobs up to `SEARCHED` nodes alone."""
        if budget is not None and (not budget or self.asked.workload.nodes > SEARCHED):
            return []
        found = [*self._algorithms(latency_ps), *self._computations(latency_ps)]
        return [entry for entry in found if entry.gain_ps > 0]

    def command(self, entry: Advice) -> str:
        """As in `Alternatives`."""
        if not self.asked.target or entry.line:
            return ""
        changes = dict(entry.changes)
        if entry.algorithm:
            return shlex.join([*self._asked({}), "--best"])
        if text := changes.pop(COMPUTE, ""):
            return shlex.join([*self._asked({}), "--compute", text])
        return shlex.join(self._asked(changes)) if changes else ""

    def _algorithms(self, latency_ps: int) -> Iterator[Advice]:
        if not self.report.performed.calls:
            return
        found = best(*self._job, self.asked.how)
        ps = round(1000 * found.after.latency_ns)
        yield Advice(described(found), latency_ps - ps, SIMULATED, ps, algorithm="best")

    def _computations(self, latency_ps: int) -> Iterator[Advice]:
        on_path: Counter[str] = Counter()
        for stretch in self.report.path:
            if stretch.what == "compute" and stretch.node:
                on_path[_kind(stretch.node)] += round(1000 * (stretch.end_ns - stretch.start_ns))
        for kind, ps in on_path.most_common(NAMES):
            if kind and ps >= LEAST * latency_ps:
                factors = (*self.asked.how.factors, (kind, 0.5))
                again = replay(*self._job, replace(self.asked.how, factors=factors))
                quicker = round(1000 * again.latency_ns)
                what = f"computations named {kind!r} in half their time"
                yield Advice(what, latency_ps - quicker, SIMULATED, quicker, {COMPUTE: f"{kind}=0.5"})

    @property
    def _job(self) -> tuple[Workload, str, Setup]:
        return self.asked.workload, self.report.job, self.asked.setup

    def _asked(self, changes: dict[str, str]) -> list[str]:
        """The command line of the job, on a changed machine."""
        setup, how = self.asked.setup, self.asked.how
        given = setup.topology
        machine = machine_name(given) if isinstance(given, Machine) else read_for(given)
        kept = {key: scalar_text(value) for key, value in (setup.overrides or {}).items()}
        line = ["ahbm", "run", self.asked.target, "-t", machine, *settings({**kept, **changes})]
        line += ["--ccl", str(setup.ccl)] if setup.ccl is not None else []
        line += ["-a", str(getattr(setup.algorithm, "name", setup.algorithm))] if setup.algorithm is not None else []
        line += [part for name, factor in how.factors for part in ("--compute", f"{name}={factor:g}")]
        line += ["-d", how.dtype] if how.dtype != DTYPE else []
        for option in ("groups", "step", "replicas", "lanes", "op"):
            if (value := getattr(how, option)) != getattr(AS_IT_IS, option):
                line += [f"--{option}", str(value)]
        flags = {"--host-gaps": how.host_gaps, "--symmetric": how.symmetric, "--no-fold": not how.fold}
        return [*line, *(flag for flag, on in flags.items() if on)]


COMPUTE = "--compute"
"""The option of a change that is none of the machine."""


def described(found: Best) -> str:
    """The algorithms that make a job quicker, in words."""
    better = [choice for choice in found.choices if choice.best != choice.algorithm]
    if len(better) == 1:
        (one,) = better
        call = f"{one.collective} of {one.bytes:,} B on {one.ranks} ranks"
        return f"{one.best} instead of {one.algorithm} for {call}"
    names = ", ".join(dict.fromkeys(choice.best for choice in better))
    return f"the best algorithm for every call ({names})" if names else "the best algorithm for every call"


def _kind(node: str) -> str:
    """What the computations of a kind have in their names: `layer` of `layer7.mlp.down`."""
    return _NUMBER.sub("", node.split(".")[0])
