"""The plans that a tuning writes: for each range of sizes the quickest, as a runtime of MSCCL-IR would run its file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from ahbm._core import Plan
from ahbm.base.request import Request
from ahbm.base.rules import Rule, Span, merged, spans
from ahbm.base.store import make_folders, writing
from ahbm.base.words import slug
from ahbm.choose.card import PLANS
from ahbm.choose.names import NCCL
from ahbm.choose.outcomes import request_of
from ahbm.choose.tune import Tuned, candidates
from ahbm.choose.turning import stated
from ahbm.config.ccl import CclConfig
from ahbm.config.reading import PLAIN
from ahbm.core.compiled import Cost
from ahbm.core.emulator import Emulator
from ahbm.errors import AhbmError
from ahbm.runs import knobs
from ahbm.source.plan import PlanAlgorithm, runnable
from ahbm.table.ladder import is_for_every_size


def plans(tuned: Tuned, folder: Path, config: CclConfig) -> tuple[dict[str, Rule], dict[str, str]]:
    """Writes the plan of every range in which one is quicker than all that NCCL has; the ranges by path, and why
    algorithms that are quickest there have no file.

    Raises FormatError (AHBM-F102).
    """
    found: dict[str, Rule] = {}
    missing: dict[str, str] = {}
    for name, machine in tuned.table.machines.items():
        emulator = Emulator(machine, config)
        home = folder / folder_of(name)
        for old in home.glob(f"{tuned.collective}_[0-9]*_*.xml"):
            # An earlier tuning's: a library would load them too.
            old.unlink()
            knobs.beside(old).unlink(missing_ok=True)
        sizes = sorted({point.nbytes for point in tuned.table.points() if point.machine == name})
        for at, rule in enumerate(_ranges(tuned, name, emulator, sizes, missing)):
            file = f"{folder_of(name)}/{tuned.collective}_{at}_{slug(rule.algorithm, 'plan')}.xml"
            path = folder / file
            largest = max(size for size in sizes if size in rule.nbytes)
            with writing(path):
                request = request_of(tuned.collective, largest, emulator.machine.sips, tuned.dtype)
                plan = emulator.plan(request, rule.algorithm)
                make_folders(home)
                plan.save(path, min_bytes=rule.nbytes.least, max_bytes=rule.nbytes.most or 0)
                given = stated(tuned.table.catalogue.entry(rule.algorithm))
                if given.knobs:
                    knobs.write(given, path)
            found[file] = rule
    return found, missing


def folder_of(machine: str) -> str:
    """The path of a machine's plans within the folder of a tuning."""
    return f"{PLANS}/{slug(machine, 'machine')}"


def _ranges(
    tuned: Tuned, name: str, emulator: Emulator, sizes: Sequence[int], missing: dict[str, str]
) -> Iterator[Rule]:
    """The ranges of a machine in which a plan is quickest."""
    ranks = emulator.machine.sips
    won = [
        Rule(tuned.collective, winner, span, Span(ranks, ranks))
        for size, span in zip(sizes, spans(sizes, ranks), strict=True)
        if (winner := _winner(tuned, name, emulator, size, missing)) is not None
    ]
    return merged(won, lambda rule: is_for_every_size(emulator, rule.algorithm))


def _winner(tuned: Tuned, name: str, emulator: Emulator, size: int, missing: dict[str, str]) -> str | None:
    """The algorithm whose plan is the quickest at a size, run as its file says; None where NCCL has a quicker one."""
    times = tuned.table.times(name, size)
    point = next(point for point in tuned.table.points() if (point.machine, point.nbytes) == (name, size))
    best: int | None
    if (fitted := tuned.fitted.get(name)) is not None:
        # NCCL's own time has been measured, and the plan's is the emulator's: it has to be quicker beyond the band.
        own, spread = fitted.own_us(point, tuned.nodes(point)), fitted.spread(point, tuned.nodes(point))
        if own is None or spread is None:
            return None
        known = candidates(NCCL, tuned.collective, times).values()
        best = min([round(own * 1e6 / (1 + spread)), *(times[ours] for ours in known)])
    else:
        best = min(tuned.timed(NCCL, point).values(), default=None)
    winner = None
    request = request_of(tuned.collective, size, emulator.machine.sips, tuned.dtype)
    ours = [own for own in times if NCCL.theirs(tuned.collective, own) is None]
    for algorithm in sorted(ours, key=lambda own: (times[own], own)):
        # A file leaves a runtime less room than the algorithm has here: fewer slots, shorter messages.
        if best is not None and times[algorithm] >= best:
            break
        try:
            ps = _as_written(tuned, emulator, request, algorithm)
        except AhbmError as error:
            missing[f"{algorithm} on {name}"] = f"{error.code} {error.message}"
            continue
        if ps is not None and (best is None or ps < best):
            best, winner = ps, algorithm
    return winner


def _as_written(tuned: Tuned, emulator: Emulator, request: Request, algorithm: str) -> int | None:
    """Simulated ps of the file of an algorithm's plan; None where the size does not split into its chunks."""
    plan: Plan = emulator.plan(request, algorithm)
    with TemporaryDirectory() as folder:
        path = Path(folder, "plan.xml")
        plan.save(path)
        read = PlanAlgorithm.of(algorithm, runnable(path, PLAIN), path.read_text(encoding="utf-8"), path)
    given = stated(tuned.table.catalogue.entry(algorithm))
    cost = emulator.cost(request, emulator.with_knobs(request, read, given))
    return cost.ps if isinstance(cost, Cost) else None
