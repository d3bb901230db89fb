"""Ordered rules by size, ranks and nodes: the first that fits a call, and whose algorithm is not masked, is taken."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ahbm._core import RuleTable
from ahbm.base.arguments import shown
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.yaml_source import did_you_mean
from ahbm.core.selection import KNOBS, SELECTOR, Choice
from ahbm.errors import ConfigError
from ahbm.selectors.files import digest
from ahbm.selectors.protocol import BaseSelector, Call, CostTable

MOST = 2**64 - 1
"""The largest size and the largest number of ranks: no bound."""


@dataclass(frozen=True)
class Range:
    """A rule: the calls that it is for, and what they run. Bounds are included."""

    collective: str
    algorithm: str
    min_bytes: int = 0
    """Of one rank's array; with `per_rank`, of that divided by the ranks, rounded down."""
    max_bytes: int = MOST
    min_ranks: int = 0
    max_ranks: int = MOST
    min_nodes: int = 0
    max_nodes: int = MOST
    per_rank: bool = False
    protocol: str | None = None
    channels: int | None = None
    threads: int | None = None
    chunk_bytes: int | None = None

    @property
    def choice(self) -> Choice:
        """What it chooses."""
        return Choice(SELECTOR, self.algorithm, **{name: getattr(self, name) for name in KNOBS})


class Ranges(BaseSelector):
    """First-match rules; a ladder is such rules with ascending sizes. Calls that no rule fits are left to ccl.yaml."""

    name = "ranges"
    pure = True

    def __init__(self, rules: Iterable[Range | Mapping[str, Any]]) -> None:
        """rules: `Range`s, or mappings with their fields. Raises ConfigError (AHBM-C181)."""
        self.rules = [rule if isinstance(rule, Range) else _range(at, rule) for at, rule in enumerate(rules)]
        self._choices: list[Choice] = [rule.choice for rule in self.rules]
        self._table = RuleTable(
            [
                (
                    rule.collective,
                    rule.min_bytes,
                    rule.max_bytes,
                    rule.per_rank,
                    rule.min_ranks,
                    rule.max_ranks,
                    rule.min_nodes,
                    rule.max_nodes,
                )
                for rule in self.rules
            ]
        )

    @property
    def fingerprint(self) -> str:
        """Digest of the rules."""
        return digest(json.dumps([asdict(rule) for rule in self.rules]))

    def __deepcopy__(self, _: object) -> Ranges:
        return self  # It never changes.

    def get_coll_info(self, call: Call, table: CostTable) -> Choice | None:
        """See `Selector`."""
        at = self._table.first(call.collective, call.nbytes, call.ranks, call.nodes)
        while at is not None:
            chosen = self._choices[at]
            if not table.reasons or chosen.algorithm not in table.reasons:
                return chosen
            at = self._table.first(call.collective, call.nbytes, call.ranks, call.nodes, at + 1)
        return None


def _range(at: int, fields: Mapping[str, Any]) -> Range:
    def refuse(what: str, hint: str | None = None) -> ConfigError:
        return ConfigError("AHBM-C181", f"rule {at} of a selector {what}", hint=hint)

    known: Sequence[str] = list(Range.__dataclass_fields__)
    if not isinstance(fields, Mapping):
        raise refuse(f"must be a mapping, not {shown(fields)}")
    for name, value in fields.items():
        if name not in known:
            raise refuse(f"has an unknown key {name!r}", did_you_mean(str(name), known))
        texts = name in ("collective", "algorithm") or (name == "protocol" and value is not None)
        optional = value is None and name in KNOBS
        good = (
            isinstance(value, str)
            if texts
            else isinstance(value, bool)
            if name == "per_rank"
            else optional or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST)
        )
        if not good:
            raise refuse(f"must have {'a text' if texts else 'an integer'} as {name}, not {shown(value)}")
    if missing := [name for name in ("collective", "algorithm") if name not in fields]:
        raise refuse(f"has no {' and no '.join(missing)}")
    if fields["collective"] not in COLLECTIVES:
        name = fields["collective"]
        raise refuse(f"names an unknown collective {name!r}", did_you_mean(name, COLLECTIVES))
    return Range(**fields)
