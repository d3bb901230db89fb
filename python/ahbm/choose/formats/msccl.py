"""MSCCL-IR files as rules: each says the sizes (`minBytes` to `maxBytes`) and the number of ranks that it is for.

The executor takes the first file that fits a call; for every other call NCCL chooses. A file says, too, whether it is
for calls in place, out of place or both (`inplace`, `outofplace`), and RCCL ships one for each. torch calls all_reduce,
broadcast and reduce in place, so that a plan for calls out of place alone is taken where there is no other. What is
written here are the plans themselves, by `ahbm.choose.files`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ahbm.base.rules import Rule, Rules, Span
from ahbm.choose.formats.format import Read
from ahbm.choose.names import MSCCL
from ahbm.choose.rules import bounded, unreached
from ahbm.config.reading import PLAIN
from ahbm.errors import Finding, FormatError
from ahbm.source.plan import read as read_plan

NAME = "msccl"
IN_PLACE = ("all_reduce", "broadcast", "reduce")
"""Collectives that torch has in place: their calls have one array."""


def files(path: Path) -> list[Path]:
    """The files of a folder in the order of their names; a file itself. Raises FormatError (AHBM-F189) for none."""
    if not path.is_dir():
        return [path]
    found = sorted(path.glob("*.xml"))
    if not found:
        raise FormatError("AHBM-F189", f"{path} has no MSCCL-IR files", hint="a folder of .xml files, or one file")
    return found


def read(path: Path) -> Read:
    """The rules of a file or of a folder of files; an algorithm is the path of its file. Raises what reading a plan
    raises, and BudgetError (AHBM-B214)."""
    rules: list[tuple[Rule, tuple[bool, bool]]] = []
    notes = []
    for file in files(path):
        plan = read_plan(str(file), PLAIN)
        least, most = plan.sizes
        rule = Rule(plan.collective, str(file), Span(least, most), Span(plan.ranks, plan.ranks), line=1)
        match serves := (plan.in_place, plan.out_of_place):
            case False, False:
                notes.append(f"{file.name} is for calls neither in place nor out of place: passed over")
                continue
            case False, True if plan.collective in IN_PLACE:
                notes.append(
                    f"{file.name} is for calls out of place alone, and torch's {plan.collective} is in place: "
                    "it is timed where no plan is for calls in place"
                )
        rules.append((rule, serves))
    ordered = sorted(rules, key=lambda each: each[0].collective in IN_PLACE and not each[1][0])
    found = bounded((rule for rule, _ in ordered), str(path))
    return Read(NAME, MSCCL, found, tuple(_hidden(rules, str(path))), tuple(notes))


def _hidden(rules: Sequence[tuple[Rule, tuple[bool, bool]]], origin: str) -> Iterator[Finding]:
    """A warning for each rule that is reached by none of the kinds of calls that it serves."""
    kinds = [Rules(tuple(rule for rule, serves in rules if serves[kind])) for kind in (0, 1)]
    hidden = [{finding.sites[0].label: finding for finding in unreached(kind, origin)} for kind in kinds]
    for rule, serves in rules:
        found = [hidden[kind].get(rule.algorithm) for kind in (0, 1) if serves[kind]]
        if found[0] is not None and None not in found:
            yield found[0]
