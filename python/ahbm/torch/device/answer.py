"""The answer: what a step takes on the machine, where communication is exposed, and what would help.

Every rank writes its journal down as it leaves its world. Rank 0's process then replays them together, as
`ahbm run JOB` would, and asks what would be.
"""

from __future__ import annotations

import atexit
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ahbm.base.logs import notice
from ahbm.base.words import aligned, lasts, number, span
from ahbm.errors import AhbmError, ConfigError
from ahbm.torch import compute, places, report
from ahbm.torch.alone import Alone
from ahbm.torch.device import advice, batches, clock, ending, fits, module, watch
from ahbm.torch.device.advice import Change
from ahbm.torch.device.bandwidth import more_bandwidth
from ahbm.torch.device.kept import Kept, common, cut
from ahbm.torch.device.lanes import Lanes
from ahbm.torch.device.likely import likely
from ahbm.torch.device.meter import FACTORS, meter
from ahbm.torch.device.work import Work
from ahbm.torch.journal import Node, write

if TYPE_CHECKING:
    from ahbm.job.best import Best
    from ahbm.job.replay import JobReport
    from ahbm.job.what_if import WhatIf
    from ahbm.ranks.setup import Setup
    from ahbm.torch.families import Families
    from ahbm.torch.place import Place

STEPS = "AHBM_STEPS"
"""Environment variable: how many steps after the first are looked at."""
PAGE = "AHBM_PAGE"
"""Environment variable: 0 leaves out the page, which takes seconds to draw."""
FOLDER = "ahbm answer"
"""The key under which torch's store has the folder of the journals."""
SEARCHED = 100_000
"""Nodes up to which a job is tried with every algorithm."""
SEARCHED_RANKS = 32
"""Ranks up to which it is: the search checks every algorithm, which takes half a minute of 64."""
NOTHING = "the script gave the device nothing to do: there was no kernel and no call"
MOST = 5
"""Changes that an answer names."""
BEST = "the best algorithm for every call"
LEAST = 0.001
"""The share of a step that a change has to save to be named."""
_met = [False]


def install() -> None:
    """Keeps a journal of every world, and answers where it ends."""
    compute.CLOCKS["model"] = lambda: meter.device_ps
    compute.usual[0] = "model"
    fits.install()
    if (os.environ.get(compute.ENV) or "model") == "model":
        try:
            lanes = meter.lanes = Lanes(int(os.environ.get(STEPS) or 3), watch.count)
        except ValueError:
            raise ConfigError("AHBM-C127", f"{STEPS}={os.environ[STEPS]!r} is no number") from None
        if lanes.limit < 0:
            raise ConfigError("AHBM-C127", f"{STEPS}={lanes.limit} is no number of iterations", hint="0 or more")
        if number := ending.wanted():
            lanes.ends_after(number, ending.enough)
        report.check()
        places.on_open.append(_opened)
        if multiprocessing.parent_process() is None:
            atexit.register(_alone)
        else:
            ending.in_child.append(_in_child)
    watch.Watch(lambda: meter.lanes).install()
    ending.install()
    clock.install()


def _opened(place: Place, opts: Any, ranks: int, setup: Setup) -> None:
    """A world was made: the first one is looked at."""
    if _met[0]:
        return
    _met[0] = True
    place.lanes = meter.lanes
    meter.on(setup.emulator().machine)
    families = None
    if isinstance(place.seat, Alone):
        folder, families = tempfile.mkdtemp(prefix="ahbm-"), place.seat.families
    elif place.rank == 0:
        folder = tempfile.mkdtemp(prefix="ahbm-")
        opts.store.set(FOLDER, folder)
    else:
        folder = opts.store.get(FOLDER).decode()
    place.keeper = Keeper(place.rank, Path(folder), ranks, setup, families)
    enough = Path(folder) / "enough"
    ending.on_enough.append(lambda: enough.touch() if enough.parent.exists() else None)
    ending.others.append(enough.exists)
    if families is not None:
        atexit.register(place.keeper.ends)


def _in_child() -> None:
    util.Finalize(None, _alone, exitpriority=50)


def _alone() -> None:
    """The process ends: one that has met no others answers for itself."""
    busy = _met[0] or bool(meter.kernels)
    if multiprocessing.parent_process() is not None:
        if busy:
            ending.answers()
    elif not (ending.children() or busy or meter.lanes is None) and os.environ.get("RANK", "0") == "0":
        held = fits.facts()
        size = f"{fits.words([held])}; " if held["peak"] or held["failed"] else ""
        print(f"ahbm: {size}no answer: {NOTHING}", file=sys.stderr)
    if not _met[0] and meter.kernels and meter.lanes is not None:
        Keeper(0, Path(tempfile.mkdtemp(prefix="ahbm-")), 1, places.options(None).sized(1)).ends()


@dataclass
class Keeper:
    """Keeps one rank's journal, and rank 0's answers."""

    rank: int
    folder: Path
    ranks: int
    setup: Setup
    families: Families | None = None
    """The groups that ranks have in each other's place: the rank stands for all of them."""
    limit: int = 0
    kept: Kept | None = None
    """This rank's."""
    restore: Callable[[], None] | None = None
    """Gives signals back to the script."""

    def ends(self) -> None:
        """The process ends, of a rank that meets no others."""
        self.leaves()
        self.left()

    def leaves(self) -> None:
        """The rank leaves: writes its journal down."""
        lanes, meter.lanes = meter.lanes, None
        if lanes is None:
            return
        if (error := sys.exc_info()[1]) is not None:
            ending.note(error)
        self.restore = ending.undisturbed()
        how, self.limit = ending.how(), lanes.limit
        try:
            self.kept = kept = lanes.keep(over=how in ("", ending.ENOUGH))
            kept.facts = {
                "memory": fits.facts(),
                "weights": fits.weights(),
                "flops": meter.flops,
                "kernels": meter.by_name,
                "how": how,
            }
            if self.rank and self.families is None:
                kept.store(self.folder / f"{self.rank}.json")
        except (AhbmError, OSError) as error:
            print(f"ahbm: rank {self.rank} keeps no journal: {error}", file=sys.stderr)

    def left(self) -> None:
        """All ranks have left: rank 0, or the one that stands for all, answers."""
        try:
            if (self.rank == 0 or self.families is not None) and self.folder.exists():
                print(self._answer(), file=sys.stderr)
        except AhbmError as error:
            print(f"ahbm: what a step takes is not known: {error}", file=sys.stderr)
        finally:
            if self.rank == 0 or self.families is not None:
                shutil.rmtree(self.folder, ignore_errors=True)
            if self.restore is not None:
                self.restore()

    def _answer(self) -> str:
        others = range(1, self.ranks) if self.families is None else ()
        silent = [rank for rank in others if not (self.folder / f"{rank}.json").exists()]
        if silent or self.kept is None:
            who = span(silent or [self.rank])
            return f"ahbm: what a step takes is not known: {who} left no journal, and what others did waits for theirs"
        ranks = [self.kept, *(Kept.load(self.folder / f"{rank}.json") for rank in others)]
        if not any(kept.nodes for kept in ranks):
            size = fits.words([kept.facts["memory"] for kept in ranks])
            return f"ahbm: {size + '; ' if size else ''}no answer: {NOTHING}"
        how = ending.first([f"{kept.facts['how']}" for kept in ranks])
        numbers = common(ranks, self.limit)
        if not numbers and how not in ("", ending.ENOUGH) and len(ranks) > 1:
            return f"ahbm: what a step takes is not known: the script was interrupted before all had ended one: {how}"
        try:
            found = self._found(ranks, numbers, how)
        except AhbmError:
            if not numbers or ranks[0].marked or not all(kept.whole for kept in ranks):
                raise
            found = self._found(ranks, [], how)  # names of kernels had the calls of ranks apart
        if (folder := report.target()) is not None:
            with report.saving():
                keep(folder, f"{found}", found.to_json())
                for old in folder.glob("step.*.et"):
                    old.unlink()
                for file in self.folder.glob("step.*.et"):
                    shutil.copy(file, folder / file.name)
                self._page(folder, found)
        else:
            notice(f"{report.ENV}=FOLDER keeps the page, the recording and all figures")
        return f"{found}"

    def _found(self, ranks: list[Kept], numbers: list[int], how: str) -> Answer:
        """The answer for iterations of these numbers; without any, for all that there is."""
        done = [cut(kept, numbers) if numbers else (kept.nodes, [len(kept.nodes)]) for kept in ranks]
        opened = self._opened([advice.plain(nodes) for nodes, _ in done])
        changes = advice.changed([nodes for nodes, _ in done], meter.machine)
        held = [kept.facts["memory"] for kept in ranks]
        if numbers and len(ranks) == 1 and (more := batches.asked(done[0][0], ranks[0].facts)) is not None:
            changes.append((batches.TWICE, [advice.plain(more)]))
        others = [(what, self._opened(nodes, f"with_{number}")) for number, (what, nodes) in enumerate(changes)]
        found = Answer.of(opened, len(numbers), held, others, alike=self.families is not None)
        found.numbers, found.how, found.ended = numbers, how, max(kept.steps for kept in ranks)
        found.clock, found.work = clock.note(watch.source()), [Work.of(nodes) for nodes, _ in done]
        found.each_ns = spread(found.job, [ends for _, ends in done]) if numbers else []
        found.beside, found.odd = max(map(Beside.of, ranks)), max(map(_odd, ranks))
        return found

    def _opened(self, ranks: list[list[Node]], name: str = "step") -> Any:
        """The job of these nodes, of every rank that was played."""
        from ahbm.job.open import open_

        alike = None if self.families is None else self.families.known
        for rank, nodes in enumerate(ranks):
            write(nodes, self.folder / name, self.rank if alike is not None else rank, self.ranks, alike)
        return open_(
            self.folder / name,
            topology=self.setup.topology,
            ccl=self.setup.ccl,
            overrides=self.setup.overrides,
            algorithm=self.setup.algorithm,
            selector=self.setup.selector,
            factors=meter.factors,
            kind="job",
        )

    def _page(self, folder: Path, found: Answer) -> None:
        """Writes the page of the recording and of the answer."""
        setup = self.setup
        facts = {
            "job": str(folder / "step"),
            "topology": None if setup.topology is None else str(setup.topology),
            "ccl": None if setup.ccl is None else str(setup.ccl),
            "overrides": setup.overrides and dict(setup.overrides),
            "factors": meter.factors,
            "answer": found.to_json(),
            "text": f"{found}".splitlines()[0].removeprefix("ahbm: "),
            "capacity": module.capacity(),
        }
        draw(folder, facts)


@dataclass(frozen=True, order=True)
class Beside:
    """What lies beside the iterations of a rank."""

    ps: int = 0
    """What its kernels take."""
    calls: int = 0
    evaluations: int = 0
    """Places that have products."""
    others: int = 0
    """Those that have none."""

    @classmethod
    def of(cls, kept: Kept) -> Beside:
        """Of a rank."""
        ps, calls, places = 0, 0, [0, 0]
        for start, end in kept.found.beside.values():
            flops = 0
            for kind, name, _, _, _, described in kept.nodes[start:end]:
                if kind != "COMP_NODE":
                    calls += 1
                    continue
                facts: dict[str, Any] = dict(described)
                if "is_cpu_op" in facts:
                    continue
                flops += (done := facts["num_ops"])
                of, host = facts.get("num_ops_dtype", "f16"), "host_copy" in facts
                ps += meter.machine.kernel_ps(
                    name,
                    done,
                    facts["tensor_size"],
                    arithmetic=of,
                    host=host,
                    kind=facts.get("kernel_kind", "plain"),
                    dims=facts.get("kernel_dims", ()),
                    factors=meter.factors,
                )
            places[not flops] += 1
        return cls(ps, calls, *places)

    def __str__(self) -> str:
        def many(count: int, what: str, rest: str = "") -> list[str]:
            return [f"{count} {what}{'s' * (count != 1)}{rest}"] if count else []

        where = many(self.evaluations, "evaluation", " or the like") + many(self.others, "other place")
        what = [lasts(self.ps / 1000)] if self.ps or not self.calls else []
        return f"{' and '.join(what + many(self.calls, 'call'))} in {' and '.join(where)}" if where else ""


def _odd(kept: Kept) -> int:
    """Iterations that are unlike the others, and are not looked at."""
    return max(len(kept.found.whole) - 1, 0) - len(kept.found.looked.keys() - {0})


def spread(job: JobReport, edges: list[list[int]]) -> list[float]:
    """What each iteration takes, in ns: from the end of the one before on all ranks to its own. `edges`: per rank, or
    for all, how many nodes lie before the end of each."""
    rank, number, _, end, _ = job.replayed.nodes
    ends = np.zeros(len(edges[0]), np.uint64)
    for one in np.unique(rank):
        mine = rank == one
        which = np.searchsorted(edges[int(one) if len(edges) > 1 else 0], number[mine], side="right")
        np.maximum.at(ends, np.minimum(which, len(ends) - 1), end[mine])
    ends = np.maximum.accumulate(ends)
    return [float(ns) / 1000 for ns in np.diff(ends, prepend=np.uint64(0))]


def keep(folder: Path, text: str, facts: Mapping[str, object]) -> None:
    """Writes an answer as text and as JSON."""
    from ahbm.base.store import make_folders, store

    make_folders(folder)
    store({folder / "answer.txt": f"{text}\n".encode(), folder / "answer.json": json.dumps(facts, indent=1).encode()})


def draw(folder: Path, facts: Mapping[str, object]) -> None:
    """Writes the page `step.html`, unless the environment leaves it out. `facts`: those of `ahbm.views.step.Facts`."""
    if os.environ.get(PAGE) == "0":
        return
    command = [sys.executable, "-m", "ahbm.views.step", str(folder / "step.html")]
    made = subprocess.run(command, input=json.dumps(facts), capture_output=True, text=True, check=False)
    if made.returncode:
        print(f"ahbm: no page: {made.stderr.strip().splitlines()[-1] if made.stderr else ''}", file=sys.stderr)


@dataclass
class Answer:
    """What a step takes, and what would help."""

    job: JobReport
    steps: int
    """How many steps the job is; 0 where no optimizer made one."""
    memory: list[dict[str, Any]]
    """What `fits.facts` says, per rank that was played."""
    alike: bool = False
    """One rank was played, for all."""
    changes: list[Change] = field(default_factory=list)
    """Those that help most first."""
    best: Best | None = None
    numbers: list[int] = field(default_factory=list)
    """Which iterations the steps are."""
    each_ns: list[float] = field(default_factory=list)
    """What each of them takes."""
    beside: Beside = Beside()
    """What lies beside them, of the rank that has most."""
    odd: int = 0
    """Iterations that were left aside."""
    how: str = ""
    """How the script ended, where it did not by itself."""
    ended: int = 0
    """After how many iterations."""
    clock: str = ""
    """Which time the script was told."""
    work: list[Work] = field(default_factory=list)
    """Of all iterations, per rank that was played."""

    @classmethod
    def of(
        cls,
        opened: Any,
        steps: int,
        held: list[dict[str, Any]],
        others: Sequence[tuple[str, Any]] = (),
        *,
        alike: bool = False,
    ) -> Answer:
        """Replays a job, and asks what would be; `others`: the job as it would be otherwise. Raises as
        `ahbm.open(...).run`."""
        job = opened.run()
        machine = job.emulator.machine
        roofline, pes = machine.roofline, machine.cubes * machine.pes
        between, both = more_bandwidth(machine, (made.program for made in job.performed.programs))
        wanted = {
            between: both,
            "twice the peak of arithmetic": {"pe.roofline.peak_tflops": 2 * roofline.operations_per_ns / pes / 1000},
            "twice the bandwidth of the memory": {"pe.roofline.memory_gbs": 2 * roofline.bytes_per_ns / pes},
        }
        if meter.host_bytes:
            wanted["twice the bandwidth to the host"] = {"pe.roofline.host_gbs": 2 * roofline.host_bytes_per_ns}
        found = cls(job, steps, held, alike)
        asked: WhatIf = opened.what_if(*wanted.values())
        for what, point in zip(wanted, asked.points[1:], strict=True):
            if point.report is not None:
                found.changes.append(Change(what, point.report.latency_ns))
        found.changes += [Change.of(what, other.run().latency_ns, steps) for what, other in others]
        if job.calls and len(job.ranks) <= SEARCHED_RANKS and sum(map(len, job.replayed.nodes)) <= SEARCHED * 3:
            found.best = opened.best()
            found.changes.append(Change(BEST, found.best.after.latency_ns))
        found.changes.sort(key=lambda change: (change.latency_ns, change.what))
        return found

    @property
    def utilization(self) -> float:
        """The share of the step that the operations would take at the peak of their types, as a mean over ranks: model
        FLOPs utilization (A. Chowdhery et al., PaLM, arXiv 2204.02311, appendix B), by what was computed."""
        machine = self.job.emulator.machine
        peak = sum(work.at_peak_ns(machine) for work in self.work) / max(len(self.work), 1)
        return peak / self.job.latency_ns if self.job.latency_ns else 0.0

    @property
    def range_ns(self) -> tuple[float, float]:
        """Between what a step is likely to be."""
        return likely(self.job.emulator.machine, self.job.latency_ns / max(self.steps, 1), self._mean_ns("host_ns"))

    def _mean_ns(self, part: str) -> float:
        """A part of a step's time, as a mean over ranks."""
        ranks = self.job.ranks
        total: float = sum(getattr(rank, part) for rank in ranks)
        return total / max(len(ranks), 1) / max(self.steps, 1)

    def _done(self, what: str) -> float:
        """Of a step's work, as a mean over ranks."""
        total: float = sum(getattr(work, what) for work in self.work)
        return total / max(len(self.work), 1) / max(self.steps, 1)

    @property
    def rates(self) -> str:
        """What a rank does in a second, and of its peak; empty on a machine that has no model of kernels."""
        step = self.job.latency_ns / max(self.steps, 1)
        if self.job.emulator.machine.compute is None or not step:
            return ""
        name = "tokens" if self._done("tokens") else "samples"
        made = self._done(name)
        parts = [f"{number(1e9 * made / step)} {name}/s a rank"] if made else []
        if self.utilization:
            parts.append(f"MFU {100 * self.utilization:.1f} %")
        return ", ".join(parts)

    @property
    def notes(self) -> list[str]:
        """What is said beside the figures."""
        factors = ", ".join(f"{name} takes {factor:g} times as long" for name, factor in meter.factors)
        found = [f"{FACTORS}: {factors}"] if factors else []
        if self.odd:
            found.append(
                f"{self.odd} of the iterations {'is' if self.odd == 1 else 'are'} unlike the others and not looked at"
            )
        if self.clock:
            found.append(self.clock)
        return [*found, *self.job.notes]

    @property
    def ending(self) -> str:
        """How the script ended, in a line; empty where it did by itself."""
        after = f"after {self.ended} step{'s' * (self.ended != 1)}"
        if self.how == ending.ENOUGH:
            return f"the script was ended {after}, as --steps asks"
        return self.how and f"the script was interrupted {after}: {self.how}"

    @property
    def spread(self) -> str:
        """In brackets behind what a step takes."""
        if self.numbers == [0]:
            return "the first one, with all before it"
        many = f"{self.steps} iteration{'s' * (self.steps != 1)}"
        near = ""
        if self.range_ns[0] < self.range_ns[1]:
            near = "likely {} to {}; ".format(*map(lasts, self.range_ns))
        least, most = lasts(min(self.each_ns)), lasts(max(self.each_ns))
        if least == most:
            return near + (f"{many} alike" if self.steps > 1 else many)
        return f"{near}least {least}, most {most}; {many}"

    def lines(self) -> list[tuple[str, str, int, float, float, str]]:
        """Per line of the script and collective: line, collective, calls, their time and the exposed part of it, as
        means over ranks in ns, and the algorithm; the most exposed first."""
        job, sums = self.job, dict[tuple[str, str], list[Any]]()
        for at, call in enumerate(job.performed.order):
            made, record = job.performed.calls[call], job.calls[at]
            line = made.node.partition(" ")[2] or "?"
            row = sums.setdefault((line, record.collective), [0, 0.0, 0.0, dict[str, None]()])
            row[0] += 1
            row[1] += record.latency_ns * len(made.ranks)
            row[3][record.algorithm] = None
        for part in job.exposed:
            if part.call is not None:
                made = job.performed.calls[job.performed.order[part.call]]
                key = (made.node.partition(" ")[2] or "?", job.calls[part.call].collective)
                sums[key][2] += part.exposed_ns
        count = max(len(job.ranks), 1)
        rows = [(*key, row[0], row[1] / count, row[2] / count, ", ".join(row[3])) for key, row in sums.items()]
        return sorted(rows, key=lambda row: (-row[4], -row[3], row[:2]))

    def to_json(self) -> dict[str, Any]:
        """All figures, per step, times in ns."""
        per = max(self.steps, 1)
        job = self.job
        names = ("line", "collective", "calls", "time_ns", "exposed_ns", "algorithm")
        compute_ns = [rank.compute_ns / per for rank in job.ranks]
        return {
            "steps": self.steps,
            "step_ns": job.latency_ns / per,
            "step_range_ns": list(self.range_ns),
            "iterations": [{"number": at, "ns": ns} for at, ns in zip(self.numbers, self.each_ns, strict=True)],
            "beside_ns": self.beside.ps / 1000,
            "beside_calls": self.beside.calls,
            "beside": f"{self.beside}" or None,
            "ended": self.ending or None,
            "ended_after": self.ended,
            "compute_ns": compute_ns,
            "kernels": max((work.kernels for work in self.work), default=0) / per,
            "flops": self._done("flops"),
            "utilization": self.utilization,
            "tokens": self._done("tokens"),
            "samples": self._done("samples"),
            "exposed_ns": [rank.exposed_ns / per for rank in job.ranks],
            "host_ns": [rank.host_ns / per for rank in job.ranks],
            "memory_peak_bytes": [one["peak"] for one in self.memory],
            "memory": self.memory,
            "lines": [
                dict(zip(names, (*who, calls / per, time_ns / per, exposed_ns / per, by), strict=True))
                for *who, calls, time_ns, exposed_ns, by in self.lines()
            ],
            "changes": [{"what": change.what, "step_ns": change.latency_ns / per} for change in self.changes],
            "best": None if self.best is None else self.best.to_json(),
            "notes": self.notes,
            "machine": job.machine_hash,
            "times": job.times_hash,
        }

    def __str__(self) -> str:
        job, per = self.job, max(self.steps, 1)
        step = job.latency_ns / per

        def share(ns: float) -> str:
            return f"{100 * ns / step:.1f} %" if step else "-"

        count = max(len(job.ranks), 1)
        computes, exposed, hosted = map(self._mean_ns, ("compute_ns", "exposed_ns", "host_ns"))
        what = f"a step takes {lasts(step)} ({self.spread})" if self.steps else f"the job takes {lasts(step)}"
        like = " like this one" if self.alike else ""
        lines = [
            f"ahbm: {fits.words(self.memory)}; {what} on {count} rank{'s' * (count != 1)}{like} of a {job.topology}: "
            f"computing {lasts(computes)} ({share(computes)}), "
            + (f"waiting for the host {lasts(hosted)} ({share(hosted)}), " if hosted else "")
            + f"exposed communication and waiting {lasts(exposed)} ({share(exposed)})"
        ]
        if rates := self.rates:
            lines.append(rates)
        if self.ending:
            lines.append(self.ending)
        if beside := f"{self.beside}":
            lines.append(f"beside steps: {beside}, not counted")
        rows: list[tuple[str, ...]] = [("line", "collective", "calls", "takes", "exposed", "by")]
        rows += [
            (line, collective, f"{calls / per:g}", lasts(takes / per), lasts(hidden / per), algorithm)
            for line, collective, calls, takes, hidden, algorithm in self.lines()
        ]
        if len(rows) > 1:
            lines += aligned(rows)
        most = job.latency_ns * (1 - LEAST)
        helps = [change for change in self.changes if change.latency_ns <= most][:MOST]
        for change in helps:
            saved = 100 * (1 - change.latency_ns / job.latency_ns)
            lines.append(f"with {change.what}: {lasts(change.latency_ns / per)} (-{saved:.1f} %)")
        if not helps and self.changes:
            lines.append("nothing that was tried helps: " + ", ".join(change.what for change in self.changes))
        if self.best is not None and any(change.what == BEST for change in helps):
            for choice in self.best.choices:
                if choice.best != choice.algorithm:
                    lines.append(
                        f"  {choice.collective} of {choice.bytes} B on {choice.ranks} ranks: {choice.best} instead of "
                        f"{choice.algorithm}"
                    )
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)
