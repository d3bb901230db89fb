"""Random cases: a program with or without a planted bug, what the judge says of it, and what the check says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from ahbm.base.codes import CHECKS
from ahbm.runs.verdict import Checked, CheckOptions, check_file, check_kernel
from planted.judge.blocks import Blocks
from planted.judge.calls import NUMBERS, Kernel
from planted.judge.onesided import OneSided
from planted.judge.world import CALLS, InvalidError, judge

from . import kernels, onesided, queued
from .mutations import BUGS, NONE, PLANT, InapplicableError
from .recorded import module

SOURCES = tuple(BUGS)
RANKS = (2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 6, 8)
CHECKED = ",".join(check for check in CHECKS if check != "divergence")
"""All but the check for differing bits: no result of the cases needs rounding."""
LEFTOVER = "AHBM-V410"


@dataclass(frozen=True)
class Case:
    """A program, its bug, and two opinions of it."""

    name: str
    source: str
    bug: str
    """Class of the planted bug, or `none`."""
    judged: str | None
    """What the judge saw: `result`, `deadlock`, `race`, `leftover`; None for nothing wrong."""
    checked: Checked
    text: str
    """The program: a file, or the module of a kernel."""

    @property
    def reported(self) -> bool:
        """Whether the check says that something is wrong."""
        if self.checked.verdict in ("race", "wrong", "deadlock", "malformed"):
            return True
        return any(finding.code == LEFTOVER for finding in self.checked.findings)

    @property
    def undecided(self) -> bool:
        """Whether the check says that it cannot tell."""
        return self.checked.verdict == "unsupported"

    @property
    def agreed(self) -> bool:
        """Whether the check reports what is wrong and leaves alone what is right."""
        return self.reported == (self.judged is not None)


def cases(count: int, seed: int, folder: Path) -> Iterator[Case]:
    """Random cases, the same for the same seed; files are written into `folder`."""
    for index in range(count):
        yield case(f"{seed}/{index}", SOURCES[index % len(SOURCES)], folder)


def case(name: str, source: str, folder: Path, bug: str | None = None) -> Case:
    """The case of a name; of a bug of a certain class, where one is given."""
    chance = Random(name)
    while True:
        ranks, slots = chance.choice(RANKS), chance.choice([1, 2, None])
        wanted = bug or (NONE if chance.random() < 0.1 else chance.choice(BUGS[source]))
        try:
            return _case(name, source, wanted, ranks, slots, chance, folder)
        except (InapplicableError, InvalidError):
            continue


def _case(name: str, source: str, bug: str, ranks: int, slots: int | None, chance: Random, folder: Path) -> Case:
    if source == "kernel":
        kernel = kernels.source(chance, ranks)
        if bug != NONE:
            kernel = PLANT[source](kernel, bug, chance)
        text = module(kernel)
        return Case(name, source, bug, judge(kernel, name), check(kernel, text, folder), text)
    if source == "xml":
        plan = queued.source(chance, ranks)
        text = (plan if bug == NONE else PLANT[source](plan, bug, chance)).text()
        judged = judge(Blocks(text, slots), name)
    else:
        document = onesided.source(chance, ranks, folder)
        text = json.dumps(document if bug == NONE else PLANT[source](document, bug, chance))
        judged = judge(OneSided(text), name)
    path = folder / f"case.{'xml' if source == 'xml' else 'json'}"
    path.write_text(text, encoding="utf-8")
    return Case(name, source, bug, judged, check_file(path, CheckOptions(slots=slots, calls=CALLS - 1)), text)


def check(kernel: Kernel, text: str, folder: Path) -> Checked:
    """What `ahbm check` says of a kernel."""
    path = folder / "case.py"
    path.write_text(text, encoding="utf-8")
    overrides = {"system.sips.count": kernel.ranks, "sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1}
    return check_kernel(
        str(path),
        None,
        checks=CHECKED,
        dtype=kernel.dtype,
        op=kernel.op,
        root=kernel.root,
        bytes_per_rank=np.dtype(NUMBERS[kernel.dtype]).itemsize * kernel.elements,
        overrides={**overrides, "defaults.n_slots": kernel.slots},
    )


def table(found: Sequence[Case]) -> str:
    """By class of bug and source: reported of those that the judge calls wrong. Then the false alarms."""
    lines = ["| planted | " + " | ".join(SOURCES) + " | reported | missed |", "|---|" + "---|" * (len(SOURCES) + 2)]

    def row(name: str, chosen: Sequence[Case], last: bool = True) -> str:
        cells = []
        for source in SOURCES:
            here = [case.reported for case in chosen if case.source == source]
            cells.append(f"{sum(here)}/{len(here)}" if here else "")
        reported = sum(case.reported for case in chosen)
        missed = str(len(chosen) - reported) if last else ""
        return f"| {name} | " + " | ".join(cells) + f" | {reported}/{len(chosen)} | {missed} |"

    wrong = [case for case in found if case.judged]
    names = dict.fromkeys(bug for source in SOURCES for bug in (*BUGS[source], NONE))
    lines += [row(bug, [case for case in wrong if case.bug == bug]) for bug in sorted(names, key=lambda b: b == NONE)]
    lines.append(row("all that are wrong", wrong))
    clean = [case for case in found if not case.judged]
    lines.append(row("right, with a change", [case for case in clean if case.bug != NONE], last=False))
    lines.append(row("right, as they were", [case for case in clean if case.bug == NONE], last=False))
    return "\n".join(lines)
