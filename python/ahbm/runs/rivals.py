"""Other algorithms for a request, simulated: which are quicker, and whether their results are right."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ahbm.base import codes
from ahbm.base.request import Request
from ahbm.check.case import Case
from ahbm.choice.configured import COMPARED_PES
from ahbm.core.choice import Candidates
from ahbm.core.emulator import Emulator
from ahbm.errors import AhbmError
from ahbm.runs.advice import SIMULATED, Advice
from ahbm.source.plan import options_of

if TYPE_CHECKING:
    from ahbm.runs.report import Report


MOST_RIVALS = 3
"""Other algorithms that are told: the quickest."""


class Alternatives(Protocol):
    """What may be done otherwise than on another machine; `Explanation` asks it."""

    def simulated(self, latency_ps: int, budget: int | None) -> list[Advice]:
        """What was simulated, against a run of `latency_ps`. budget: operations of all runs together; None does not
        limit them."""

    def command(self, entry: Advice) -> str:
        """The command line that shows it; empty for none."""


def alone(emulator: Emulator, request: Request, budget: int | None = None) -> dict[str, int]:
    """The time of every algorithm that can perform a request, in ps, the quickest first; with a `budget`, of as many as
    have no more operations together."""
    found, left = dict[str, int](), budget
    for algorithm in Candidates(emulator, request.collective):
        try:
            compiled = emulator.compile_timed(request, algorithm)
            if left is not None and compiled.ops > left:
                continue
            found[algorithm] = compiled.latency_ps
            left = None if left is None else left - compiled.ops
        except AhbmError:
            # It cannot perform this call: no candidate.
            continue
    return dict(sorted(found.items(), key=lambda item: (item[1], item[0])))


class Judge:
    """Looks at the results of algorithms that would be chosen, of each once."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self._known: dict[tuple[Request, str], bool] = {}
        self.wrong: dict[str, str] = {}
        self.undecided: dict[str, str] = {}

    def right(self, request: Request, algorithm: str) -> bool:
        """Whether an algorithm's result is right; true of what says how many bytes travel and not which."""
        key = (request, algorithm)
        if key not in self._known:
            self._known[key] = self._emulator.compile_timed(request, algorithm).timed or self._decide(*key)
        return self._known[key]

    def _decide(self, request: Request, algorithm: str) -> bool:
        from ahbm.runs.measure import verify

        try:
            verify(Case(self._emulator, request, algorithm), data=None, seed=0, mode="integers", check="result")
        except AhbmError as error:
            kind = self.wrong if codes.says_wrong(error.code) else self.undecided
            if kind is self.undecided and error.code != codes.RESULT_UNDECIDED:
                raise
            kind.setdefault(
                algorithm, f"{error.code} {error.message} ({request.nbytes} B on {request.world_size} ranks)"
            )
            return False
        return True


@dataclass(frozen=True)
class Measured:
    """What may be done otherwise in a run that was measured."""

    case: Case
    report: Report

    def simulated(self, latency_ps: int, budget: int | None) -> list[Advice]:
        """The quickest other algorithms that are quicker and whose results are right."""
        emulator, request = self.case.emulator, self.case.request
        many = request.world_size * (emulator.machine.cubes if request.placement is None else request.tiles)
        if budget is not None and (many > COMPARED_PES or self.report.ops > budget):
            return []
        judge, own = Judge(emulator), self.report.algorithm
        quicker = (
            Advice(f"{name} instead of {own}", latency_ps - ps, SIMULATED, ps, algorithm=name)
            for name, ps in alone(emulator, request, budget).items()
            if name != own and ps < latency_ps and judge.right(request, name)
        )
        return list(islice(quicker, MOST_RIVALS))

    def command(self, entry: Advice) -> str:
        """As in `Alternatives`."""
        report, request, emulator = self.report, self.case.request, self.case.emulator
        if request.placement is not None:
            return ""
        settings = emulator.settings(self.case.algorithm or report.algorithm)
        own = _path(options_of(settings)[0]) if settings.kind == "plan" else report.algorithm
        asked = ["-a", entry.algorithm or own, "-t", report.machine, "--size", f"{report.bytes}"]
        asked += ["-d", report.dtype] if report.dtype != "f16" else []
        asked += ["--op", report.op] if report.op not in ("none", "sum") else []
        asked += ["-r", f"{report.root}"] if report.root > 0 else []
        asked += ["--ccl", emulator.ccl.file] if emulator.ccl.file else []
        return command(report.collective, asked, entry)


def _path(file: str) -> str:
    """A file, from the working folder where it is below it."""
    here = Path.cwd()
    return str(Path(file).relative_to(here)) if Path(file).is_relative_to(here) else file


def command(target: str, asked: Sequence[str], entry: Advice) -> str:
    """The command line on which a change was simulated."""
    if entry.changes or entry.algorithm:
        return shlex.join(["ahbm", "run", target, *asked, *settings(entry.changes)])
    return shlex.join(["ahbm", "explain", target, *asked, "--what-if", "all"])


def settings(changes: Mapping[str, str]) -> list[str]:
    """The options that make changes of the machine."""
    return [part for key, value in changes.items() for part in ("--set", f"{key}={value}")]
