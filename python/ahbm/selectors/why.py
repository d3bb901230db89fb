"""Why a selector chose what it did, and what else there was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ahbm.base.words import aligned
from ahbm.core.choice import Choice
from ahbm.core.compiled import Cost
from ahbm.errors import AhbmError, Finding
from ahbm.selectors.evidence import Fact
from ahbm.selectors.protocol import UNKNOWN, Call, CostTable

if TYPE_CHECKING:
    from ahbm.core.emulator import Emulator


@dataclass(frozen=True, eq=False)
class Why:
    """The evidence for one choice, on one rank."""

    selector: str
    """Its name."""
    call: Call
    table: CostTable
    """The candidates, with the costs that the selector gave them."""
    facts: tuple[Fact, ...] = ()
    """All that the choice rests on besides the call, in the order in which it was looked at."""
    failure: Finding | None = None
    """Why the selector chose nothing, though it was asked."""
    error: BaseException | None = None
    """What it raised."""

    def facts_in_order(self) -> list[Fact]:
        """The facts about the call, and all others."""
        names = ("collective", "nbytes", "ranks", "nodes", "dtype", "op", "root", "number")
        return [*((name, getattr(self.call, name)) for name in names), ("selector", self.selector), *self.facts]


@dataclass(frozen=True)
class Candidate:
    """An algorithm that could have been chosen."""

    algorithm: str
    predicted_us: float | None
    """By the selector; None where it gave no estimate."""
    emulated_ns: float | None
    """Simulated; None where it does not run."""
    masked: str = ""
    """Why it could not be chosen, or does not run."""


@dataclass(frozen=True)
class Explanation:
    """A choice beside all others."""

    selector: str
    chosen: str
    knobs: Mapping[str, str | int]
    bound_ns: float | None
    """The least time that any algorithm could take."""
    candidates: tuple[Candidate, ...]
    """Those that run, the quickest first, then the others by name."""
    facts: tuple[Fact, ...] = field(default=())

    @property
    def own(self) -> Candidate | None:
        """The chosen one; None where ccl.yaml does not name it."""
        return next((one for one in self.candidates if one.algorithm == self.chosen), None)

    @property
    def margin(self) -> float | None:
        """Time of the quickest other candidate / time of the chosen one - 1: negative where another is quicker. None
        where only one of them runs."""
        own = self.own
        others = [one.emulated_ns for one in self.candidates if one is not own and one.emulated_ns is not None]
        if own is None or not own.emulated_ns or not others:
            return None
        return min(others) / own.emulated_ns - 1

    def to_json(self) -> dict[str, Any]:
        """As JSON-serialisable data: us as predicted, ns as simulated."""
        return {
            "selector": self.selector,
            "algorithm": self.chosen,
            "knobs": dict(self.knobs),
            "bound_ns": self.bound_ns,
            "margin": self.margin,
            "candidates": [vars(one) for one in self.candidates],
            "facts": {name: value if isinstance(value, int | float) else str(value) for name, value in self.facts},
        }

    def __str__(self) -> str:
        knobs = "".join(f", {name} {value}" for name, value in self.knobs.items())
        bound = "" if self.bound_ns is None else f"; no algorithm takes less than {self.bound_ns / 1000:.2f} us"
        margin = self.margin
        if margin is None:
            compared = ""
        elif margin >= 0:
            compared = f"; the second takes {100 * margin:.3g} % more"
        else:
            compared = f"; the quickest takes {-100 * margin:.3g} % less"
        rows: list[tuple[str, ...]] = [("algorithm", "predicted (us)", "emulated (us)", "")]
        for one in self.candidates:
            predicted = "-" if one.predicted_us is None else f"{one.predicted_us:.2f}"
            emulated = "-" if one.emulated_ns is None else f"{one.emulated_ns / 1000:.2f}"
            rows.append((one.algorithm, predicted, emulated, "chosen" if one is self.own else one.masked))
        head = f"{self.selector} chose {self.chosen}{knobs}{compared}{bound}"
        return "\n".join([head, *(f"  {line}" for line in aligned(rows))])


def explain(choice: Choice, emulator: Emulator) -> Explanation | None:
    """A selector's choice beside what every candidate takes on `emulator`; None for what no selector chose. Simulates
    all candidates. Raises what compiling the chosen one raises, where ccl.yaml does not name it."""
    why: Why | None = choice.why
    if why is None or why.call.request is None:
        return None
    request = why.call.request
    found = []
    for name, us in zip(why.table.algorithms, why.table.us, strict=True):
        predicted, masked = None if us in (-1.0, UNKNOWN) else us, why.table.reasons.get(name, "")
        cost = None if masked else emulator.cost(request, name)
        if isinstance(cost, Cost):
            found.append(Candidate(name, predicted, cost.ps / 1000))
        else:
            found.append(Candidate(name, predicted, None, masked or (cost.message if cost is not None else "")))
    found.sort(key=lambda one: (one.emulated_ns is None, one.emulated_ns or 0.0, one.algorithm))
    try:
        bound = emulator.bound(request).ps
    except AhbmError:
        bound = None
    return Explanation(
        why.selector, choice.name, choice.knobs, None if bound is None else bound / 1000, tuple(found), why.facts
    )


def brief(choice: Choice) -> str:
    """A selector's choice in one line, from what it knew when it chose: nothing is simulated."""
    evidence: Why = choice.why
    costs = dict(zip(evidence.table.algorithms, evidence.table.us, strict=True))
    known = {name: us for name, us in costs.items() if 0 <= us < UNKNOWN}
    sentences = [f"{choice.name} runs: the selector {evidence.selector} chose it"]
    if choice.name in known:
        sentences.append(f"predicts {known[choice.name]:.2f} us")
        others = {name: us for name, us in known.items() if name != choice.name}
        if others:
            second = min(others, key=lambda name: others[name])
            sentences.append(f"{others[second]:.2f} us for {second}")
    sentences += [f"{name} {value}" for name, value in choice.knobs.items()]
    masked = [f"{name} ({evidence.table.reasons[name]})" for name in sorted(evidence.table.reasons)]
    return ", ".join(sentences) + (f"; masked: {', '.join(masked)}" if masked else "")
