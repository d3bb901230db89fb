"""The best algorithm for every call of a job, found by simulation, and what each choice saves end to end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ahbm._core import Workload
from ahbm.base.request import Request
from ahbm.base.words import aligned
from ahbm.job.preparation import Preparation
from ahbm.job.reading import AS_IT_IS, How
from ahbm.job.replay import JobReport, replay
from ahbm.ranks.setup import Setup
from ahbm.runs import rivals
from ahbm.selectors.protocol import Function


@dataclass(frozen=True)
class Choice:
    """The choice for one kind of call: a collective of so many bytes on groups of one size."""

    collective: str
    ranks: int
    bytes: int
    """In the sense of nccl-tests, as `CallRecord.bytes`."""
    calls: int
    algorithm: str
    """What performed these calls."""
    best: str
    """The quickest for them in the job as it would be with all choices; the same where nothing is quicker."""
    alone_ns: float
    """Time of one call alone by `algorithm`."""
    best_alone_ns: float
    saves_ns: float
    """What the choice saves of the job's time, beside the choices of kinds with more time; less than 0 where it helps
    only with those that follow."""


@dataclass(frozen=True)
class Best:
    """A job with the best algorithms for its calls."""

    before: JobReport
    after: JobReport
    """With all choices that make the job quicker."""
    choices: tuple[Choice, ...]
    """Per kind of call, those that save most first."""
    wrong: Mapping[str, str] = field(default_factory=dict)
    """The algorithms that would make the job quicker and give wrong results, and the first reason: none is chosen
    there."""
    undecided: Mapping[str, str] = field(default_factory=dict)
    """The same of those whose results are not known to be right."""

    def to_json(self) -> dict[str, Any]:
        """As JSON-serialisable data: times in ns, the choices."""
        return {
            "job": self.before.job,
            "latency_ns": self.before.latency_ns,
            "best_latency_ns": self.after.latency_ns,
            "choices": [vars(choice) for choice in self.choices],
            "wrong": dict(self.wrong),
            "undecided": dict(self.undecided),
        }

    def __str__(self) -> str:
        before, after = self.before.latency_ns, self.after.latency_ns
        share = 100 * (before - after) / before if before else 0.0
        gain = f"-{share:.3g} %" if before > after else "nothing is quicker"
        lines = [
            f"{self.before.job}: {before / 1000:,.2f} us as it is, {after / 1000:,.2f} us with the best algorithm per "
            f"call ({gain}, simulated)"
        ]
        rows: list[tuple[str, ...]] = [
            ("collective", "ranks", "bytes", "calls", "alone (us)", "best", "saves (us)", "")
        ]
        rows += [
            (
                choice.collective,
                f"{choice.ranks}",
                f"{choice.bytes}",
                f"{choice.calls}",
                f"{choice.alone_ns / 1000:.2f}",
                f"{choice.best_alone_ns / 1000:.2f}",
                f"{choice.saves_ns / 1000:.2f}",
                choice.best if choice.best == choice.algorithm else f"{choice.best} instead of {choice.algorithm}",
            )
            for choice in self.choices
        ]
        notes = [f"{name} gives wrong results, and was not chosen there: {why}" for name, why in self.wrong.items()]
        notes += [
            f"{name} was not chosen where it is not known whether its result is right: {why}"
            for name, why in self.undecided.items()
        ]
        return "\n".join([*lines, *aligned(rows), *notes])


def best(workload: Workload, name: str, setup: Setup, how: How = AS_IT_IS, candidates: int = 3) -> Best:
    """Tries, for every kind of call, the `candidates` algorithms of ccl.yaml that are quickest alone, in the whole job.

    It begins with the best single algorithm for each collective. A kind then keeps its algorithm unless another makes
    the job quicker, with the choices made before it; kinds with the most time are tried first. So the job with all
    choices is never slower than as it is, or than by one algorithm per collective. What gives a wrong result, or one
    that is not known to be right, is not chosen. Raises as `replay`.
    """
    before = replay(workload, name, setup, how)
    kinds = _kinds(Preparation(before.emulator, setup, how), workload)
    ranked = {kind: rivals.alone(before.emulator, calls.request) for kind, calls in kinds.items()}
    chosen: dict[Kind, str] = {}
    latency = before.latency_ns
    judge = rivals.Judge(before.emulator)

    def attempt(choices: dict[Kind, str]) -> None:
        nonlocal latency, chosen
        tried = replay(workload, name, setup, how, chooser=_choosing({**chosen, **choices}))
        if tried.latency_ns < latency and all(judge.right(kinds[kind].request, by) for kind, by in choices.items()):
            latency, chosen = tried.latency_ns, {**chosen, **choices}

    for collective in dict.fromkeys(kind[0] for kind in kinds):
        own = [kind for kind in kinds if kind[0] == collective]
        if len(own) > 1:
            for algorithm in sorted(set.intersection(*(set(ranked[kind]) for kind in own))):
                attempt(dict.fromkeys(own, algorithm))
    for kind, calls in kinds.items():
        for algorithm in list(ranked[kind])[:candidates]:
            if algorithm != chosen.get(kind, calls.algorithm):
                attempt({kind: algorithm})
    found = []
    after, made = before, dict[Kind, str]()
    for kind, calls in kinds.items():
        saves_ns = 0.0
        if kind in chosen:
            made[kind] = chosen[kind]
            then, after = after, replay(workload, name, setup, how, chooser=_choosing(made))
            saves_ns = then.latency_ns - after.latency_ns
        alone, winner = ranked[kind], chosen.get(kind, calls.algorithm)
        times = (alone.get(calls.algorithm, calls.alone_ps) / 1000, alone.get(winner, calls.alone_ps) / 1000)
        found.append(Choice(*kind[:3], calls.count, calls.algorithm, winner, *times, saves_ns))
    found.sort(key=lambda choice: -choice.saves_ns)
    return Best(before, after, tuple(found), judge.wrong, judge.undecided)


Kind = tuple[str, int, int, str, str]
"""Collective, ranks, bytes, dtype and operator."""


@dataclass
class _Calls:
    """The calls of a kind, the first of which stands for all."""

    request: Request
    algorithm: str
    alone_ps: int
    count: int = 0


def _kind(request: Request) -> Kind:
    return request.collective, request.world_size, request.nbytes, request.dtype, request.op


def _kinds(preparation: Preparation, workload: Workload) -> dict[Kind, _Calls]:
    """The kinds of calls, those that take most time first."""
    found: dict[Kind, _Calls] = {}
    for call in workload.calls:
        compiled = preparation.of(call)
        request = compiled.request
        if compiled.program is not None and request.collective != "send_recv":
            first = _Calls(request, compiled.algorithm, compiled.latency_ps)
            found.setdefault(_kind(request), first).count += 1
    return dict(sorted(found.items(), key=lambda item: -item[1].count * item[1].alone_ps))


def _choosing(chosen: dict[Kind, str]) -> Function:
    return lambda algorithms, request: chosen.get(_kind(request))
