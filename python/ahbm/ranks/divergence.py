"""Ranks whose selectors do not choose alike: what differs between them, and a failing selector's call.

A choice is compared before the call moves any data. Ranks that chose differently are told apart by the first fact that
their choices rest on and that differs. Where a selector failed on one rank, ccl.yaml chooses on all of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ahbm.base.words import span
from ahbm.errors import SelectionError, SelectorWarning, Site
from ahbm.ranks.terms import unselected

if TYPE_CHECKING:
    from ahbm.ranks.operation import Part
    from ahbm.selectors.why import Why

ABSENT = "nothing"
"""Stands for the value of a fact that one of two ranks does not have."""


def pardon(label: str, parts: Sequence[Part]) -> None:
    """Leaves a call to ccl.yaml on all ranks where a selector failed on one, and warns of it (AHBM-X112)."""
    failed = [part for part in parts if part.why is not None and part.why.failure is not None]
    if not failed:
        return
    for part in parts:
        part.terms = unselected(part.terms)
    first = min(failed, key=lambda part: part.rank)
    assert first.why is not None and first.why.failure is not None
    who = span(sorted(part.rank for part in failed))
    finding = first.why.failure
    text = f"{finding.code} {label}: on {who} {finding.message}; ccl.yaml chooses on all ranks"
    warnings.warn(SelectorWarning(text), stacklevel=2)


def divergence(label: str, parts: Sequence[Part]) -> SelectionError:
    """The error (AHBM-X111) for parts whose ranks have chosen differently; it names two ranks and what differs."""
    chosen: dict[object, list[Part]] = {}
    for part in parts:
        chosen.setdefault(part.terms.choice, []).append(part)
    (here, *_), (there, *_), *_ = chosen.values()
    feature, ours, theirs = differing(here.why, there.why)
    sides = [(part, _described(part)) for part in (here, there)]
    choices = "; ".join(f"{span([part.rank for part in side])}: {_described(side[0])}" for side in chosen.values())
    what = (
        f"{feature} is {ours} on rank {here.rank} and {theirs} on rank {there.rank}"
        if feature
        else "nothing that can be seen differs: a selector rests on a value of its own rank"
    )
    return SelectionError(
        "AHBM-X111",
        f"{label}: the selectors of the ranks diverge ({choices}): {what}",
        sites=[Site(f"rank {part.rank} chose {text}", part.origin) for part, text in sides],
        hint="choose from values that are equal on all ranks; ahbm.selectors.mixed says what a library would do",
        ranks=(here.rank, there.rank),
        feature=feature,
        values=(ours, theirs),
        choices={part.rank: _described(part) for part in parts},
    )


def differing(here: Why | None, there: Why | None) -> tuple[str, str, str]:
    """Name and both values of the first fact that differs; an empty name where none does."""
    if here is None or there is None:
        names = tuple(ABSENT if why is None else why.selector for why in (here, there))
        return "selector", names[0], names[1]
    ours, theirs = here.facts_in_order(), there.facts_in_order()
    for (name, value), (other, another) in zip(ours, theirs, strict=False):
        if name != other:
            break
        if value != another:
            return name, str(value), str(another)
    mine, yours = dict(ours), dict(theirs)
    for name in (*mine, *yours):
        if mine.get(name, ABSENT) != yours.get(name, ABSENT):
            return name, str(mine.get(name, ABSENT)), str(yours.get(name, ABSENT))
    return "", "", ""


def _described(part: Part) -> str:
    choice = part.terms.choice
    if choice is None:
        return "what ccl.yaml says"
    return ", ".join([choice.name, *(f"{name} {value}" for name, value in choice.knobs.items())])
