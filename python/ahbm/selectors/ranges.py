"""Ordered rules by size, ranks and nodes: the first that fits a call, and whose algorithm is not masked, is taken."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from typing import Any

from ahbm.base.arguments import shown
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.knobs import KNOBS
from ahbm.base.rules import UNLIMITED, Query, Rule, Rules
from ahbm.base.yaml_source import did_you_mean
from ahbm.core.choice import SELECTOR, Choice
from ahbm.errors import ConfigError
from ahbm.selectors.files import digest
from ahbm.selectors.protocol import BaseSelector, Call, CostTable

Range = Rule.between
"""A rule by its bounds, which are included; without one, there is no bound."""


class Ranges(BaseSelector):
    """First-match rules; a ladder is such rules with ascending sizes. Calls that no rule fits are left to ccl.yaml."""

    name = "ranges"
    pure = True

    def __init__(self, rules: Iterable[Rule | Mapping[str, Any]]) -> None:
        """rules: as `Range` makes them, or mappings of its arguments. Raises ConfigError (AHBM-C181)."""
        found = [rule if isinstance(rule, Rule) else _rule(at, rule) for at, rule in enumerate(rules)]
        self.rules = Rules(tuple(found))
        self._choices = [Choice(SELECTOR, rule.algorithm, **rule.knobs) for rule in self.rules]

    @property
    def fingerprint(self) -> str:
        """Digest of the rules."""
        return digest(json.dumps([rule.bounds for rule in self.rules]))

    def __deepcopy__(self, _: object) -> Ranges:
        return self  # It never changes.

    def get_coll_info(self, call: Call, table: CostTable) -> Choice | None:
        """See `Selector`."""
        for at in self.rules.fitting(Query(call.collective, call.nbytes, call.ranks, call.nodes)):
            if self._choices[at].algorithm not in table.reasons:
                return self._choices[at]
        return None


def _rule(at: int, fields: Mapping[str, Any]) -> Rule:
    def refuse(what: str, hint: str | None = None) -> ConfigError:
        return ConfigError("AHBM-C181", f"rule {at} of a selector {what}", hint=hint)

    known: Sequence[str] = list(signature(Rule.between).parameters)
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
            else optional or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= UNLIMITED)
        )
        if not good:
            raise refuse(f"must have {'a text' if texts else 'an integer'} as {name}, not {shown(value)}")
    if missing := [name for name in ("collective", "algorithm") if name not in fields]:
        raise refuse(f"has no {' and no '.join(missing)}")
    if fields["collective"] not in COLLECTIVES:
        name = fields["collective"]
        raise refuse(f"names an unknown collective {name!r}", did_you_mean(name, COLLECTIVES))
    return Rule.between(**fields)
