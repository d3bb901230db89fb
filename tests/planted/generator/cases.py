"""Random cases: a program with or without a planted bug, what the judge says of it, and what the check says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from ahbm.base import codes
from ahbm.base.codes import CHECKS
from ahbm.runs.verdict import Checked, CheckOptions, check_file, check_kernel
from planted.judge.blocks import Blocks
from planted.judge.calls import NUMBERS, Kernel
from planted.judge.onesided import OneSided
from planted.judge.world import CALLS, InvalidError, Subject, judge

from . import kernels, mutations, onesided, queued
from .mutations import BUGS, NONE, InapplicableError
from .recorded import module

SOURCES = tuple(BUGS)
SUFFIXES = {"xml": "xml", "plan": "json", "kernel": "py"}
RANKS = (2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 6, 8)
CHECKED = ",".join(check for check in CHECKS if check != "divergence")
"""All but the check for differing bits: no result of the cases needs rounding."""
LEFTOVER = (codes.UNRECEIVED, codes.UNAWAITED)


@dataclass(frozen=True)
class Program:
    """A program, and the bug that was planted in it."""

    name: str
    """Chooses everything about it."""
    source: str
    bug: str
    """Class of the planted bug, or `none`."""
    text: str
    """A file, or the module of a kernel."""
    slots: int | None
    """Of a plan of thread blocks."""
    subject: Subject

    def judged(self) -> str | None:
        """What the judge sees: `result`, `deadlock`, `race`, `leftover`, `refused`; None for nothing wrong.

        Raises InvalidError for what is no program at all.
        """
        return judge(self.subject, self.name)

    def checked(self, folder: Path) -> Checked:
        """What the check says; the text is written into `folder`."""
        path = folder / f"case.{SUFFIXES[self.source]}"
        path.write_text(self.text, encoding="utf-8")
        if not isinstance(self.subject, Kernel):
            return check_file(path, CheckOptions(slots=self.slots, calls=CALLS - 1))
        return check_kernel(str(path), None, checks=CHECKED, **arguments(self.subject))


def arguments(kernel: Kernel) -> dict[str, Any]:
    """How a kernel is run, for `ahbm.run`."""
    overrides = {"system.sips.count": kernel.ranks, "sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1}
    return {
        "dtype": kernel.dtype,
        "op": kernel.op,
        "root": kernel.root,
        "bytes_per_rank": np.dtype(NUMBERS[kernel.dtype]).itemsize * kernel.elements,
        "overrides": {**overrides, "defaults.n_slots": kernel.slots},
    }


@dataclass(frozen=True)
class Case:
    """A program and two opinions of it."""

    program: Program
    judged: str | None
    checked: Checked

    @property
    def reported(self) -> bool:
        """Whether the check says that something is wrong."""
        if self.checked.verdict in ("race", "wrong", "deadlock", "malformed"):
            return True
        # A warning of leftovers is enough where nothing else is wrong, and too much where nothing is.
        warned = any(finding.code in LEFTOVER for finding in self.checked.findings)
        return warned and self.judged in (None, "leftover")

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
        wanted = bug or (NONE if chance.random() < 0.1 else chance.choice(BUGS[source]))
        try:
            program = planted(name, source, wanted, chance, folder)
            return Case(program, program.judged(), program.checked(folder))
        except (InapplicableError, InvalidError):
            continue


def planted(name: str, source: str, bug: str, chance: Random, folder: Path) -> Program:
    """A random program with a bug. Raises InapplicableError where it has no place for one, InvalidError where nothing
    is left that could run."""
    ranks, slots = chance.choice(RANKS), chance.choice([1, 2, None])
    if source == "kernel":
        kernel = kernels.source(chance, ranks)
        kernel = kernel if bug == NONE else mutations.kernel(kernel, bug, chance)
        return Program(name, source, bug, module(kernel), None, kernel)
    if source == "xml":
        plan = queued.source(chance, ranks)
        text = (plan if bug == NONE else mutations.queued(plan, bug, chance)).text()
        return Program(name, source, bug, text, slots, Blocks(text, slots))
    document = onesided.source(chance, ranks, folder)
    text = json.dumps(document if bug == NONE else mutations.onesided(document, bug, chance))
    return Program(name, source, bug, text, None, OneSided(text))


def table(found: Sequence[Case]) -> str:
    """By class of bug and source: reported of those that the judge calls wrong. Then the false alarms."""
    lines = ["| planted | " + " | ".join(SOURCES) + " | reported | missed |", "|---|" + "---|" * (len(SOURCES) + 2)]

    def row(name: str, chosen: Sequence[Case], last: bool = True) -> str:
        cells = []
        for source in SOURCES:
            here = [case.reported for case in chosen if case.program.source == source]
            cells.append(f"{sum(here)}/{len(here)}" if here else "")
        reported = sum(case.reported for case in chosen)
        missed = str(len(chosen) - reported) if last else ""
        return f"| {name} | " + " | ".join(cells) + f" | {reported}/{len(chosen)} | {missed} |"

    wrong = [case for case in found if case.judged]
    names = dict.fromkeys(bug for source in SOURCES for bug in (*BUGS[source], NONE))
    lines += [
        row(bug, [case for case in wrong if case.program.bug == bug]) for bug in sorted(names, key=lambda b: b == NONE)
    ]
    lines.append(row("all that are wrong", wrong))
    clean = [case for case in found if not case.judged]
    lines.append(row("right, with a change", [case for case in clean if case.program.bug != NONE], last=False))
    lines.append(row("right, as they were", [case for case in clean if case.program.bug == NONE], last=False))
    return "\n".join(lines)
