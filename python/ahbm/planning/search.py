"""Which plan is the quickest that fits: a sweep measures plans by their bounds, until none is below what was found."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ahbm.base.arguments import whole
from ahbm.base.words import aligned
from ahbm.config.topology import load_machine, name_of
from ahbm.errors import ConfigError
from ahbm.job.replay import replay
from ahbm.job.transformer import Transformer
from ahbm.planning.bounds import Bounds
from ahbm.planning.candidates import AXES, Choices, candidates
from ahbm.planning.memory import Memory, memory_of
from ahbm.ranks.setup import Setup
from ahbm.sweeps import work
from ahbm.sweeps.space import Space
from ahbm.sweeps.sweep import sweep, worth
from ahbm.table.engine import Pool

BEST = 10
"""Plans that are told."""
BATCH = 16
"""Plans that are measured together, between looks at what was found."""
SIPS = "system.sips.count"


@dataclass(frozen=True)
class Plan:
    """A way of cutting a step, what it takes and what it holds."""

    step: Transformer
    memory: Memory
    bound_ns: float
    """No step of it is quicker than this."""
    time_ns: float
    """Of a step, simulated."""
    limits: str = ""
    """What is on its critical path."""

    def __str__(self) -> str:
        of = self.step
        words = [f"TP {of.tp}", f"PP {of.pp}"] if of.pp > 1 else [f"TP {of.tp}"]
        words += [f"VPP {of.virtual_stages}"] if of.virtual_stages > 1 else []
        words += [of.schedule] if of.schedule != Transformer.schedule else []
        words += [f"CP {of.cp}"] if of.cp > 1 else []
        words += [f"EP {of.ep}"] if of.ep > 1 else []
        words += [f"DP {of.dp}"]
        words += [f"ZeRO {of.zero}"] if of.zero else []
        words += [f"micro-batch {of.micro_batch}"]
        words += [f"recompute {of.recompute}"] if of.recompute not in (False, "none") else []
        return ", ".join(words)


@dataclass(frozen=True)
class Found:
    """What a search says."""

    best: tuple[Plan, ...]
    """The quickest that fit, at most `BEST`, the quickest first."""
    front: tuple[Plan, ...]
    """Those than which no plan is both quicker and smaller, the quickest first."""
    candidates: int
    """Plans that divide ranks, batch and layers."""
    fit: int
    """Those that fit in memory."""
    measured: int
    """Those that were simulated; the bounds of all others are above what was found."""
    failed: tuple[str, ...]
    """Codes of plans that did not run."""
    ranks: int
    tokens: int
    """Of a step."""
    flops: float
    """Operations of a step on one rank, forward and backward, without what is computed again."""
    peak_flops: float
    """Of a rank, in 1/s."""
    capacity: int
    """Bytes of a rank's memory."""
    machine: str
    price_per_hour: float | None = None
    """Of one rank."""

    def mfu(self, plan: Plan) -> float:
        """Operations of the model as a share of the peak."""
        return self.flops / (plan.time_ns / 1e9) / self.peak_flops

    def cost(self, plan: Plan) -> float | None:
        """Of a million tokens, in the unit of the price."""
        if self.price_per_hour is None:
            return None
        return self.price_per_hour * self.ranks * plan.time_ns / 3.6e12 / self.tokens * 1e6

    def __str__(self) -> str:
        lines = [
            f"{self.ranks} ranks of {self.machine}: {self.candidates} plans, {self.fit} fit in "
            f"{_gib(self.capacity)} GiB, {self.measured} simulated; the bounds of all others are above what was found"
        ]
        header = ["plan", "step (s)", "MFU (%)", "memory (GiB)"]
        priced = self.price_per_hour is not None
        rows = [(*header, *(["per 1M tokens"] if priced else []), "on the critical path")]
        for plan in self.best:
            cost = [f"{self.cost(plan):.4g}"] if priced else []
            share = f"{100 * self.mfu(plan):.1f}"
            row = (str(plan), f"{plan.time_ns / 1e9:.4g}", share, _gib(plan.memory.total), *cost, plan.limits)
            rows.append(row)
        lines += aligned(rows)
        lines.append("no plan is both quicker and smaller than one of these:")
        front = [("plan", "step (s)", "memory (GiB)")]
        front += [(str(plan), f"{plan.time_ns / 1e9:.4g}", _gib(plan.memory.total)) for plan in self.front]
        lines += aligned(front)
        lines += [f"note: did not run: {', '.join(self.failed)}"] if self.failed else []
        return "\n".join(lines)

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""

        def one(plan: Plan) -> dict[str, Any]:
            found = {
                "step": asdict(plan.step),
                "time_ns": plan.time_ns,
                "bound_ns": plan.bound_ns,
                "limits": plan.limits,
            }
            memory = {**asdict(plan.memory), "total": plan.memory.total}
            return {"plan": str(plan), **found, "memory": memory, "mfu": self.mfu(plan), "cost_per_1m": self.cost(plan)}

        names = ("candidates", "fit", "measured", "ranks", "tokens", "capacity", "machine", "price_per_hour")
        plain = {name: getattr(self, name) for name in names}
        return {**plain, "failed": self.failed, "best": list(map(one, self.best)), "front": list(map(one, self.front))}


def search(
    model: Mapping[str, Any],
    ranks: int,
    *,
    topology: str | Path | None = None,
    overrides: Mapping[str, object] | None = None,
    batch: int | None = None,
    choices: Choices | None = None,
    capacity: int | None = None,
    price_per_hour: float | None = None,
    store: str | Path | None = None,
    executor: Executor | Callable[[], Executor] | None = None,
    jobs: int | None = None,
    exhaustive: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Found:
    """The quickest plans of `model` (fields of `Transformer`) on so many ranks of a machine.

    batch: sequences of a step, over all ranks; one for each rank without it. capacity: bytes of a rank, else those of
    the machine's memory. price_per_hour: of one rank. store, executor, jobs: as of `ahbm.sweep`, for the whole search.
    exhaustive: simulates every plan that fits, whatever its bound. progress: is told how far the search is.

    Raises ConfigError: AHBM-C157 where no plan divides ranks, batch and layers, or none fits; and what a machine that
    does not load raises.
    """
    ranks = whole("ranks", ranks, 1, 1 << 17)
    batch = ranks if batch is None else whole("batch", batch, 1, 1 << 30)
    given = {**(overrides or {}), SIPS: ranks}
    machine = load_machine(topology, given)
    parameters = dict(machine.parameters)
    room = capacity or int(float(parameters["cube.memory_map.hbm_total_gb"]) * 2**30) * machine.cubes
    node = machine.node_size if machine.node_size > 1 else ranks
    bounds = Bounds(machine)
    plans = list(candidates(model, ranks, batch, choices or Choices(), node))
    fit = [(plan, memory) for plan in plans if (memory := memory_of(plan)).total <= room]
    if not fit:
        least = min(memory_of(plan).total for plan in plans)
        what = f"no plan fits in {_gib(room)} GiB: the smallest of {len(plans)} takes {_gib(least)}"
        raise ConfigError("AHBM-C157", what, hint="more ranks, or a smaller --batch")
    waiting = [Plan(plan, memory, bounds.least_ps(plan) / 1000, 0.0) for plan, memory in fit]
    # Equal bounds: the order of the candidates.
    waiting.sort(key=lambda plan: plan.bound_ns)
    done: list[Plan] = []
    failed: dict[str, None] = {}
    with tempfile.TemporaryDirectory() as folder, _processes(len(fit), jobs, executor) as (executor, jobs):
        while batch_of := _next(waiting, done, exhaustive):
            rows = _measured(batch_of, Path(folder), topology, given, store, executor, jobs)
            for plan, (code, time_ns) in zip(batch_of, rows, strict=True):
                if code is None:
                    done.append(replace(plan, time_ns=time_ns))
                else:
                    failed[code] = None
            if progress is not None and done:
                found = min(plan.time_ns for plan in done)
                progress(f"{len(done)} of {len(fit)} plans simulated; the quickest step takes {found / 1e9:.4g} s")
    done.sort(key=lambda plan: plan.time_ns)
    setup = Setup(topology, overrides=given)
    best = tuple(replace(plan, limits=_limits(plan, setup)) for plan in done[:BEST])
    tokens = batch * (model.get("sequence") or Transformer.sequence)
    return Found(
        best,
        tuple(_front(done)),
        len(plans),
        len(fit),
        len(done),
        tuple(failed),
        ranks,
        tokens,
        model_flops(fit[0][0]) * tokens / ranks,
        machine.roofline.operations_per_ns * 1e9,
        room,
        name_of(machine),
        price_per_hour,
    )


@contextmanager
def _processes(
    plans: int, jobs: int | None, executor: Executor | Callable[[], Executor] | None
) -> Iterator[tuple[Executor | Callable[[], Executor] | None, int | None]]:
    """Processes for the whole of a search: those of a sweep of so many cases; what is given is taken as it is."""
    count = worth(plans, jobs)
    if executor is not None or count < 2:
        yield executor, jobs
        return
    pool = Pool(count, work.__name__)
    done = False
    try:
        yield pool.open(), count
        done = True
    finally:
        pool.close(done)


def model_flops(of: Transformer) -> float:
    """Operations of a token, forward and backward: six for a parameter that it meets, and those of attention over half
    of the sequence."""
    heads = of.heads or max(of.hidden // 128, 1)
    kv = (of.kv_heads or heads) * (of.hidden // heads)
    ffn = (3 if of.gated else 2) * of.hidden * (of.ffn or 4 * of.hidden) * (of.top_k if of.experts else 1)
    layer = 2 * of.hidden * of.hidden + 2 * of.hidden * kv + ffn
    return 6.0 * (of.layers * layer + of.hidden * of.vocabulary) + 6.0 * of.layers * of.hidden * of.sequence


def _next(waiting: list[Plan], done: Sequence[Plan], exhaustive: bool) -> list[Plan]:
    """Takes those that are measured next: the lowest bounds among plans that may still be told."""
    times = sorted(plan.time_ns for plan in done)
    worst = times[BEST - 1] if len(times) >= BEST else float("inf")

    def hopeless(plan: Plan) -> bool:
        behind = any(other.memory.total <= plan.memory.total and other.time_ns <= plan.bound_ns for other in done)
        return plan.bound_ns >= worst and behind and not exhaustive

    chosen: list[Plan] = []
    left: list[Plan] = []
    for plan in waiting:
        if len(chosen) == BATCH:
            left.append(plan)
        elif not hopeless(plan):
            chosen.append(plan)
    waiting[:] = left
    return chosen


def _front(done: Sequence[Plan]) -> Iterator[Plan]:
    least: int | None = None
    for plan in sorted(done, key=lambda plan: (plan.time_ns, plan.memory.total)):
        if least is None or plan.memory.total < least:
            least = plan.memory.total
            yield plan


def _measured(
    plans: Sequence[Plan],
    folder: Path,
    topology: str | Path | None,
    overrides: Mapping[str, object],
    store: str | Path | None,
    executor: Executor | Callable[[], Executor] | None,
    jobs: int | None,
) -> list[tuple[str | None, float]]:
    """Per plan the code of its error, if it does not run, and its time in ns."""
    files = [str(_manifest(plan.step, folder)) for plan in plans]
    space = Space(jobs=files, topologies=topology, overrides=dict(overrides))
    table = sweep(space, store=store, executor=executor, jobs=jobs)
    # A store has the path that a plan's file had when it was measured.
    names = [Path(job).name for job in table.column("job")]
    found = dict(zip(names, zip(table.column("code"), table.column("latency_ns"), strict=True), strict=True))
    return [found[Path(file).name] for file in files]


def _manifest(of: Transformer, folder: Path) -> Path:
    """The file of a step, named by what it differs in."""
    name = "-".join(f"{getattr(of, axis)}" for axis in AXES)
    path = folder / f"{name}.yaml"
    values = {key: value for key, value in asdict(of).items() if value is not None}
    # JSON is YAML.
    path.write_text(json.dumps(values))
    return path


def _limits(plan: Plan, setup: Setup) -> str:
    from ahbm.job.options import OfJob

    return replay(plan.step.workload(thin=True), "plan", setup, OfJob().how).shares()


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f}"
