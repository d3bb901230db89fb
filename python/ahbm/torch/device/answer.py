"""The answer: what a step takes on the machine, where communication is exposed, and what would help.

Every rank writes its journal down as it leaves its world. Rank 0's process then replays them together, as
`ahbm run JOB` would, and asks what would be.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from ahbm.base.logs import notice
from ahbm.base.words import aligned, span
from ahbm.errors import AhbmError, ConfigError
from ahbm.torch import compute, places, report
from ahbm.torch.alone import Alone
from ahbm.torch.device import fits, module
from ahbm.torch.device.bandwidth import more_bandwidth
from ahbm.torch.device.lanes import Lanes
from ahbm.torch.device.meter import FACTORS, meter

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
MOST = 5
"""Changes that an answer names."""
_failed = [False]
_met = [False]


def install() -> None:
    """Keeps a journal of every world, and answers where it ends."""
    compute.CLOCKS["model"] = lambda: meter.busy_ps
    compute.usual[0] = "model"
    if (os.environ.get(compute.ENV) or "model") != "model":
        return
    try:
        meter.lanes = Lanes(int(os.environ.get(STEPS) or 3))
    except ValueError:
        raise ConfigError("AHBM-C127", f"{STEPS}={os.environ[STEPS]!r} is no number") from None
    report.check()
    places.on_open.append(_opened)
    register_optimizer_step_post_hook(_stepped)
    fits.install()
    atexit.register(_alone)
    before = sys.excepthook

    def hook(*args: Any) -> None:
        _failed[0] = True
        before(*args)

    sys.excepthook = hook


def _stepped(*_: object) -> None:
    if meter.lanes is not None:
        meter.lanes.step()


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
    if families is not None:
        atexit.register(place.keeper.ends)


def _alone() -> None:
    """The process ends: one that has met no others answers for itself."""
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
    steps: int = 0

    def ends(self) -> None:
        """The process ends, of a rank that meets no others."""
        self.leaves()
        self.left()

    def leaves(self) -> None:
        """The rank leaves: writes its journal down."""
        lanes, meter.lanes = meter.lanes, None
        if lanes is None or (_failed[0] and self.families is None and not fits.ended[0]):
            return
        try:
            alike = None if self.families is None else self.families.known
            self.steps = lanes.keep(self.folder / "step", self.rank, self.ranks, alike)
            facts = {"memory": fits.facts(), "flops": meter.flops, "kernels": meter.by_name}
            (self.folder / f"facts.{self.rank}.json").write_text(json.dumps(facts))
        except (AhbmError, OSError) as error:
            print(f"ahbm: rank {self.rank} keeps no journal: {error}", file=sys.stderr)

    def left(self) -> None:
        """All ranks have left: rank 0, or the one that stands for all, answers."""
        if (self.rank and self.families is None) or not self.folder.exists():
            return
        try:
            if self.families is not None or not _failed[0] or fits.ended[0]:
                print(self._answer(), file=sys.stderr)
        except AhbmError as error:
            print(f"ahbm: what a step takes is not known: {error}", file=sys.stderr)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _answer(self) -> str:
        from ahbm.job.open import open_

        played = range(self.ranks) if self.families is None else [self.rank]
        files = 1 if self.families is not None else self.ranks
        silent = [rank for rank in range(files) if not (self.folder / f"step.{rank}.et").exists()]
        if silent:
            return f"ahbm: what a step takes is not known: {span(silent)} left no journal"
        opened = open_(
            self.folder / "step",
            topology=self.setup.topology,
            ccl=self.setup.ccl,
            overrides=self.setup.overrides,
            algorithm=self.setup.algorithm,
            selector=self.setup.selector,
            factors=meter.factors,
            kind="job",
        )
        facts = [json.loads((self.folder / f"facts.{rank}.json").read_text()) for rank in played]
        found = Answer.of(opened, self.steps, [one["memory"] for one in facts], alike=self.families is not None)
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
class Change:
    """What a change of the machine or of the algorithms gives."""

    what: str
    latency_ns: float


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

    @classmethod
    def of(cls, opened: Any, steps: int, held: list[dict[str, Any]], *, alike: bool = False) -> Answer:
        """Replays a job, and asks what would be. Raises as `ahbm.open(...).run`."""
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
        if "f32" in meter.types and roofline.tf32_share > roofline.f32_share:
            wanted["products of f32 in TF32 (torch.set_float32_matmul_precision)"] = {
                "pe.roofline.f32_share": roofline.tf32_share
            }
        found = cls(job, steps, held, alike)
        asked: WhatIf = opened.what_if(*wanted.values())
        for what, point in zip(wanted, asked.points[1:], strict=True):
            if point.report is not None:
                found.changes.append(Change(what, point.report.latency_ns))
        if job.calls and len(job.ranks) <= SEARCHED_RANKS and sum(map(len, job.replayed.nodes)) <= SEARCHED * 3:
            found.best = opened.best()
            found.changes.append(Change("the best algorithm for every call", found.best.after.latency_ns))
        found.changes.sort(key=lambda change: (change.latency_ns, change.what))
        return found

    @property
    def notes(self) -> list[str]:
        """What is said beside the figures."""
        factors = ", ".join(f"{name} takes {factor:g} times as long" for name, factor in meter.factors)
        return [*([f"{FACTORS}: {factors}"] if factors else []), *self.job.notes]

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
            "compute_ns": compute_ns,
            "exposed_ns": [rank.exposed_ns / per for rank in job.ranks],
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

        def us(ns: float) -> str:
            return f"{ns / 1000:,.2f}"

        def share(ns: float) -> str:
            return f"{100 * ns / step:.1f} %" if step else "-"

        count = max(len(job.ranks), 1)
        computes = sum(rank.compute_ns for rank in job.ranks) / count / per
        exposed = sum(rank.exposed_ns for rank in job.ranks) / count / per
        what = f"a step (mean of {self.steps})" if self.steps else "the job"
        like = " like this one" if self.alike else ""
        lines = [
            f"ahbm: {fits.words(self.memory)}; {what} takes {us(step)} us on {len(job.ranks)} ranks{like} of a "
            f"{job.topology}: computing {us(computes)} us ({share(computes)}), exposed communication and waiting "
            f"{us(exposed)} us ({share(exposed)})"
        ]
        rows: list[tuple[str, ...]] = [("line", "collective", "calls", "takes (us)", "exposed (us)", "by")]
        rows += [
            (line, collective, f"{calls / per:g}", us(takes / per), us(hidden / per), algorithm)
            for line, collective, calls, takes, hidden, algorithm in self.lines()
        ]
        if len(rows) > 1:
            lines += aligned(rows)
        helps = [change for change in self.changes if change.latency_ns < job.latency_ns][:MOST]
        for change in helps:
            saved = 100 * (1 - change.latency_ns / job.latency_ns)
            lines.append(f"with {change.what}: {us(change.latency_ns / per)} us (-{saved:.1f} %)")
        if not helps and self.changes:
            lines.append("nothing that was tried helps: " + ", ".join(change.what for change in self.changes))
        if self.best is not None:
            for choice in self.best.choices:
                if choice.best != choice.algorithm:
                    lines.append(
                        f"  {choice.collective} of {choice.bytes} B on {choice.ranks} ranks: {choice.best} instead of "
                        f"{choice.algorithm}"
                    )
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)
