"""The card of a tuning: what was chosen, what each file of it loses, and what is not known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ahbm.base.rules import Query, Rule
from ahbm.choose.evaluation import Evaluation
from ahbm.choose.names import NCCL
from ahbm.choose.regret import Regret
from ahbm.choose.tune import CHANNELS, Tuned
from ahbm.runs import bands

ALONE = "nothing gains over NCCL by itself beyond the band: leave NCCL alone."
PLANS = "msccl"
"""The folder of the plans, one folder in it for each machine."""


@dataclass(frozen=True)
class Card:
    """The files of a tuning and what is known of them."""

    tuned: Tuned
    files: tuple[Path, ...]
    evaluations: Mapping[str, Evaluation]
    """By the name of a file, what it loses on the machines that were tuned, read back as its library reads it."""
    missing: Mapping[str, str]
    """By the name of a file, why it was not written."""
    plans: Mapping[str, Rule]
    """By path within the folder, the range that an MSCCL-IR file is for."""

    def to_json(self) -> dict[str, Any]:
        """The card as JSON-serialisable data: the choices, what they lose, the files."""
        tuned = self.tuned
        held = {name: None if found is None else found.to_json() for name, found in tuned.held_networks().items()}
        return {
            "collective": tuned.collective,
            "dtype": tuned.dtype,
            "machines": {name: machine.sips for name, machine in tuned.table.machines.items()},
            "candidates": [entry.name for entry in tuned.table.catalogue],
            "sizes": sorted({point.nbytes for point in tuned.table.points()}),
            "dropped_sizes": list(tuned.dropped),
            "resized": list(tuned.resized),
            "runs": self.runs,
            "choices": [_choice(rule) for rule in tuned.rules],
            "regret": {
                "tuned": tuned.regret.to_json(),
                "held_back_sizes": None if tuned.held_sizes is None else tuned.held_sizes.to_json(),
                "held_back_networks": held,
            },
            "refused": tuned.table.refused,
            "wrong": tuned.wrong,
            "undecided": tuned.undecided,
            "files": {name: found.to_json() for name, found in self.evaluations.items()},
            "not_written": dict(self.missing),
            "plans": {name: _choice(rule) for name, rule in self.plans.items()},
            "given": vars(tuned.given),
            **({} if not (errors := self.errors) else {"errors": errors}),
        }

    @property
    def runs(self) -> int:
        """Runs of the tuning, and of the plans that it wrote."""
        return self.tuned.runs + sum(one.runs for name, one in self.evaluations.items() if name.startswith(f"{PLANS}/"))

    @property
    def errors(self) -> list[str]:
        """What is known of the error of the choices, on calibrated machines."""
        tuned, found = self.tuned, []
        for point in tuned.table.points():
            rule = tuned.rules.choose(Query(point.collective, point.nbytes, point.ranks))
            if rule is not None:
                machine = tuned.table.machines[point.machine]
                note = bands.note_of(machine, point.collective, rule.algorithm, point.ranks, point.nbytes)
                found.append(bands.Noted(point.machine, point.nbytes, note))
        return bands.over(found)

    def lines(self) -> Iterator[str]:
        """The card for people, as Markdown."""
        tuned = self.tuned
        yield f"# {tuned.collective} of {tuned.dtype}"
        yield ""
        yield f"{self.runs} runs of {len(tuned.table.catalogue)} algorithms. All times are simulated."
        yield ""
        yield "| ranks | from B | to B | algorithm |"
        yield "|---|---|---|---|"
        for rule in tuned.rules:
            most = "any size" if rule.nbytes.most is None else rule.nbytes.most
            yield f"| {rule.ranks.least} | {rule.nbytes.least} | {most} | {rule.algorithm} |"
        yield ""
        yield "## What it loses against the quickest algorithm of each point"
        yield ""
        yield "| at | mean | p95 | within 1 % | points |"
        yield "|---|---|---|---|---|"
        yield _row("sizes that were tuned", tuned.regret)
        yield _row("sizes held back", tuned.held_sizes)
        for name, regret in tuned.held_networks().items():
            yield _row(f"{name}, by rules of the others", regret)
        yield ""
        yield "## Files"
        yield ""
        yield "| file | mean | p95 | within 1 % | points |"
        yield "|---|---|---|---|---|"
        for name, found in self.evaluations.items():
            yield _row(name, found.regret)
        yield ""
        yield from self._notes()

    def _notes(self) -> Iterator[str]:
        tuned = self.tuned
        for name, why in self.missing.items():
            yield f"- {name} was not written: {why}."
        for name, rule in self.plans.items():
            most = "any size" if rule.nbytes.most is None else f"{rule.nbytes.most} B"
            yield f"- {name} is {rule.algorithm} from {rule.nbytes.least} B to {most} among {rule.ranks.least} ranks."
        if self.plans:
            yield "- NCCL cannot run these; where no such file is loaded, its tuner file names the best that NCCL has."
        names = ", ".join(
            f"{theirs} is {ours}"
            for found in self.evaluations.values()
            if found.read.library.algorithms is not None
            for theirs, ours in found.stands.items()
        )
        if names:
            yield f"- What stands for the libraries' algorithms: {', '.join(dict.fromkeys(names.split(', ')))}."
        yield from self._of_nccl()
        nodes = {point.machine: tuned.nodes(point) for point in tuned.table.points()}
        yield f"- Computers of the ranks: {', '.join(f'{nodes[name]} of {name}' for name in nodes)}."
        yield from (f"- The error of the quickest: {note}." for note in self.errors)
        yield from (f"- {note}." for note in tuned.resized)
        if tuned.dropped:
            yield f"- The budget left out {len(tuned.dropped)} sizes: {', '.join(map(str, tuned.dropped))} B."
        for name, why in tuned.table.refused.items():
            yield f"- {name} did not run everywhere: {why}."
        for name, why in tuned.wrong.items():
            yield f"- {name} gives wrong results, and was not chosen there: {why}."
        for name, why in tuned.undecided.items():
            yield f"- {name} was not chosen where it is not known whether its result is right: {why}."

    def _of_nccl(self) -> Iterator[str]:
        """How NCCL's lines came about."""
        tuned, given = self.tuned, self.tuned.given
        if set(tuned.table.machines) - set(tuned.fitted):
            protocol = f"the protocol {given.protocol}" if given.protocol else "the quickest protocol"
            yield (
                f"- {given.channels or CHANNELS} channels and {protocol} of the machine's library are written where an "
                f"algorithm's entry says neither. The lines of NCCL's files were timed with them, as far as the "
                f"algorithm and the machine have such."
            )
        if not tuned.fitted:
            return
        names = ", ".join(tuned.fitted)
        yield (
            f"- {names}: NCCL itself was measured. Its lines are judged against what it takes by itself, by --measured "
            f"tables where there are any, else by its own model, by which no line is quicker than its own choice."
        )
        if tuned.lets_nccl_be:
            yield f"- {names}: {ALONE}"
        for name, found in self.evaluations.items():
            if found.read.library is NCCL:
                yield from (f"- {name}: {line}." for line in found.beside())


def _row(name: str, regret: Regret | None) -> str:
    if regret is None or not regret.points:
        return f"| {name} | - | - | - | 0 |"
    return f"| {name} | {regret.mean:.2%} | {regret.p95:.2%} | {regret.within_1_percent:.0%} | {regret.points} |"


def _choice(rule: Rule) -> dict[str, object]:
    return {
        "ranks": rule.ranks.least,
        "min_bytes": rule.nbytes.least,
        "max_bytes": rule.nbytes.most,
        "algorithm": rule.algorithm,
    }
