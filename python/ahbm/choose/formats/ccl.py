"""This project's own ccl.yaml: the rules of `collectives`, and the entries of the algorithms that they name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import yaml

from ahbm.base.collectives import COLLECTIVES
from ahbm.base.rules import ANY, Rules
from ahbm.base.yaml_source import parse
from ahbm.choose.formats.format import Format, Read, comments, exactly, first_rows, malformed, unwritable
from ahbm.choose.names import AHBM
from ahbm.choose.rules import bounded, unreached
from ahbm.config.rules import RULE, is_placed, rule_of


def read(text: str, origin: str) -> Read:
    """The rules of all collectives that calls outside of jobs can meet, in their order.

    Raises FormatError (AHBM-F190) for a file without such rules, ConfigError (AHBM-C102) for what is no YAML.
    """
    source = parse(text, origin)
    chosen = source.values.get("collectives")
    rules = []
    for collective, choice in (chosen if isinstance(chosen, dict) else {}).items():
        listed = [{"algorithm": choice}] if isinstance(choice, str) else choice
        if collective not in COLLECTIVES or not isinstance(listed, list):
            raise malformed(origin, 1, f"collectives.{str(collective)[:40]} is no collective with rules")
        for at, rule in enumerate(listed):
            place = source.place(("collectives", collective, at)).rpartition(":")[2]
            line = int(place) if place.isdecimal() else 1
            if not isinstance(rule, dict) or any(key not in RULE or RULE[key](rule[key]) for key in rule):
                raise malformed(origin, line, "no rule of ccl.yaml", f"{{{', '.join(RULE)}}}")
            if "algorithm" not in rule:
                raise malformed(origin, line, "a rule without an algorithm", f"{{{', '.join(RULE)}}}")
            if not is_placed(rule):
                rules.append(rule_of(collective, rule, line))
    if not rules:
        raise malformed(origin, 1, "no rules of sizes", "collectives: {all_reduce: [{max_bytes: 65536, algorithm: a}]}")
    found = bounded(rules, origin)
    return Read(FORMAT.name, AHBM, found, tuple(unreached(found, origin)))


def document(rules: Rules, entries: Mapping[str, Mapping[str, object]], notes: Sequence[str] = ()) -> str:
    """A whole file: the entries, and the rules by their upper ends.

    Raises UnsupportedError (AHBM-U292) for a rule whose calls its ranks and sizes do not describe.
    """
    chosen: dict[str, list[dict[str, object]]] = {}
    reached: dict[tuple[object, ...], int | None] = {}
    for rule in rules:
        ranks = exactly(rule.ranks)
        plain = (rule.ranks_per_node, rule.per_rank, rule.pipe_ops, rule.registered) == (ANY, False, None, None)
        if not plain or exactly(rule.nodes) not in (-1, 1) or ranks is None:
            raise unwritable("ccl.yaml", rule, "such calls")
        end = reached.get(rule.condition, -1)
        if end is None or rule.nbytes.least != end + 1:
            raise unwritable("ccl.yaml", rule, "sizes that are left out")
        reached[rule.condition] = rule.nbytes.most
        chosen.setdefault(rule.collective, []).append(
            ({} if ranks < 0 else {"ranks": ranks})
            | ({} if rule.nbytes.most is None else {"max_bytes": rule.nbytes.most})
            | {"algorithm": rule.algorithm}
        )
    content = {"algorithms": {name: dict(entry) for name, entry in entries.items()}, "collectives": chosen}
    return "\n".join([*comments(notes), yaml.safe_dump(content, sort_keys=False)])


def write(rules: Rules, notes: Sequence[str] = ()) -> str:
    """The rules, without entries."""
    return document(rules, {}, notes)


def _claims(text: str) -> bool:
    lines = first_rows(text)
    return bool(lines) and any(
        line.startswith(("algorithms:", "collectives:", "defaults:")) for line in text.splitlines()
    )


FORMAT = Format("ccl", AHBM, "ccl.yaml", _claims, read, write)
