"""The rules of a collective in ccl.yaml: which algorithm performs it, or which selector chooses
one, by ranks, size, and a call's place in a job."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from ahbm.base.rules import ANY, Query, Rule, Rules, Span
from ahbm.config.checks import Check, integer, pattern, selector, text

RULE: dict[str, Check] = {
    "ranks": integer(1),
    "max_bytes": integer(0),
    "group": pattern,
    "node": pattern,
    "algorithm": text,
    "selector": selector,
}
"""Keys of a rule."""
_OF_PLACES = ("group", "node")


class Named(NamedTuple):
    """A selector as ccl.yaml names it. Hashable."""

    text: str
    """JSON: a name, a file, or a mapping with its kind and options."""
    folder: Path
    """The folder that relative paths start from."""
    place: str
    """`file:line`, or the override that says so."""

    @property
    def value(self) -> str | dict[str, Any]:
        """What was written."""
        found: str | dict[str, Any] = json.loads(self.text)
        return found


class Place(NamedTuple):
    """Where a call stands in a job."""

    group: str
    """Name of its process group; "" for that of all ranks."""
    node: str
    """Name of its node."""


def is_placed(rule: Mapping[str, Any]) -> bool:
    """Whether a rule is for calls of jobs: it names groups or nodes."""
    return any(key in rule for key in _OF_PLACES)


def rule_of(collective: str, written: Mapping[str, Any], line: int = 0) -> Rule:
    """A rule of ccl.yaml, but for the places that it names, and for its selector, whose name is "" here."""
    ranks = written.get("ranks")
    sizes = Span(0, written.get("max_bytes"))
    return Rule(
        collective, written.get("algorithm", ""), sizes, ANY if ranks is None else Span(ranks, ranks), line=line
    )


@dataclass(frozen=True)
class Written:
    """The rules of one collective as they are written."""

    collective: str
    rules: tuple[Mapping[str, Any], ...]
    ordered: Rules

    @staticmethod
    def of(collective: str, rules: Sequence[Mapping[str, Any]]) -> Written:
        """The rules of a collective, in order."""
        return Written(collective, tuple(rules), Rules(tuple(rule_of(collective, rule) for rule in rules)))

    def first(self, nbytes: int, ranks: int, place: Place | None, *, selectors: bool = False) -> int | None:
        """Position of the first rule for a call of `nbytes` bytes of one rank's tensor among `ranks` ranks that names
        an algorithm; with `selectors`, an algorithm or a selector. A call without a place is in no job."""
        fitting = self.ordered.fitting(Query(self.collective, nbytes, ranks))
        return next((at for at in fitting if self._names(at, selectors) and self._is_at(at, place)), None)

    def of_other_ranks(self, nbytes: int, ranks: int) -> list[str]:
        """The rules before the one that holds for a call, in words, that are for such a call of other ranks."""
        passed = self.rules[: self.first(nbytes, ranks, None, selectors=True)]
        return [
            described(rule)
            for rule, one in zip(passed, self.ordered, strict=False)
            if ranks not in one.ranks and nbytes in one.nbytes and not is_placed(rule)
        ]

    def _names(self, at: int, selectors: bool) -> bool:
        return selectors or "selector" not in self.rules[at]

    def _is_at(self, at: int, place: Place | None) -> bool:
        rule = self.rules[at]
        if place is None:
            return not is_placed(rule)
        return all(fnmatchcase(getattr(place, key), rule.get(key, "*")) for key in _OF_PLACES)


def hiding(rules: Sequence[Mapping[str, Any]], at: int) -> list[Mapping[str, Any]]:
    """The rules before the one at a position that take all of its calls."""
    own, one = rules[at], rule_of("", rules[at])
    return [
        rule
        for rule in rules[:at]
        if all(key not in rule or rule[key] == own.get(key) for key in _OF_PLACES) and rule_of("", rule).includes(one)
    ]


def described_selector(value: str | Mapping[str, Any]) -> str:
    """A selector in words."""
    return value if isinstance(value, str) else str(value["kind"])


def described(rule: Mapping[str, Any]) -> str:
    """A rule in words: `ring of 4 ranks in groups tp* up to 64 B`."""
    words = {"ranks": "of {} ranks", "group": "in groups {!r}", "node": "at nodes {!r}", "max_bytes": "up to {} B"}
    named = rule.get("algorithm") or f"selector {described_selector(rule['selector'])}"
    return " ".join([named, *(form.format(rule[key]) for key, form in words.items() if key in rule)])
