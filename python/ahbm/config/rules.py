"""The rules of a collective in ccl.yaml: which algorithm performs it, or which selector chooses
one, by ranks, size, and a call's place in a job."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from math import inf, isqrt
from pathlib import Path
from typing import Any, NamedTuple

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
_SELECTORS = ("ranks", *_OF_PLACES)


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


def fits(rule: Mapping[str, Any], nbytes: int, ranks: int, place: Place | None) -> bool:
    """Whether a rule is for a call of `nbytes` bytes of one rank's tensor among `ranks` ranks.

    A call without a place is in no job.
    """
    if rule.get("ranks", ranks) != ranks or nbytes > rule.get("max_bytes", nbytes):
        return False
    if place is None:
        return not is_placed(rule)
    return all(fnmatchcase(getattr(place, key), rule.get(key, "*")) for key in _OF_PLACES)


def first(
    rules: Sequence[Mapping[str, Any]], nbytes: int, ranks: int, place: Place | None, *, selectors: bool = False
) -> int | None:
    """Position of the first rule that fits and names an algorithm; with `selectors`, an algorithm or a selector."""
    named = (at for at, rule in enumerate(rules) if selectors or "selector" not in rule)
    return next((at for at in named if fits(rules[at], nbytes, ranks, place)), None)


def reached_before(rules: Sequence[Mapping[str, Any]], at: int) -> float:
    """The size up to which rules before the one at a position take all calls that it would take; -1 for none."""

    def covers(rule: Mapping[str, Any]) -> bool:
        return all(key not in rule or rule[key] == rules[at].get(key) for key in _SELECTORS)

    return max((rule.get("max_bytes", inf) for rule in rules[:at] if covers(rule)), default=-1)


def selector_told(value: str | Mapping[str, Any]) -> str:
    """A selector in words."""
    return value if isinstance(value, str) else str(value["kind"])


def told(rule: Mapping[str, Any]) -> str:
    """A rule in words: `ring of 4 ranks in groups tp* up to 64 B`."""
    words = {"ranks": "of {} ranks", "group": "in groups {!r}", "node": "at nodes {!r}", "max_bytes": "up to {} B"}
    named = rule.get("algorithm") or f"selector {selector_told(rule['selector'])}"
    return " ".join([named, *(form.format(rule[key]) for key, form in words.items() if key in rule)])


def border(below: int, above: int, ranks: int) -> int:
    """The last size of the range of `below`, of which `above` is no part: near their geometric mean.

    What begins behind it is a multiple of `ranks` bytes where one lies between them, so that no border stands inside
    the share of a rank: formats that count bytes per rank can then state it.
    """
    mean = isqrt(below * above)
    whole = (mean // ranks + 1) * ranks
    return max(min(whole if whole <= above else mean + 1, above), below + 1) - 1
