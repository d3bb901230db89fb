"""UCC's tune strings (`UCC_TL_UCP_TUNE`, in the environment or in ucc.conf).

Tokens between `#`, each of parts between `:` in any order: collectives, memory types, ranges of message sizes
(`0-4K,1M-inf`), team sizes (`[2-8]`), a score (`inf` or a number), `@algorithm`. Ranges include both ends; the higher
score holds, and of equal ones at a shared border the upper range. Source: `src/coll_score` of openucx/ucc.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import inf

from ahbm.base.rules import ANY, UNLIMITED, Rule, Rules, Span
from ahbm.choose.formats.format import Format, Read, collective_of, comments, exactly, malformed, unwritable
from ahbm.choose.names import UCC
from ahbm.choose.rules import bounded, unreached

VARIABLE = "UCC_TL_UCP_TUNE"
_LINE = re.compile(r"\s*(?:export\s+)?(UCC_[A-Z0-9_]+_TUNE)\s*=\s*([\"']?)(.*?)\2\s*")
_MEMORIES = ("host", "cuda", "cuda_managed", "rocm", "rocm_managed")
_SIZE = re.compile(r"([0-9]{1,20})([KMGT]?)B?")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
PER_RANK = ("reduce_scatter",)
"""Collectives whose message size is the share of one rank, not the whole array."""


def read(text: str, origin: str) -> Read:
    """The rules of a file with one tune string."""
    found = []
    for line, row in enumerate(text.split("\n"), 1):
        if not row.strip() or row.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(row)
        if match is None or match[1] != VARIABLE:
            line_text = match[1] if match else row.strip()[:40]
            raise malformed(
                origin, line, f"{line_text!r} is not {VARIABLE}=...", "the strings of other layers are not read"
            )
        found.append((line, match[3]))
    if len(found) != 1:
        raise malformed(origin, 1, f"{len(found)} lines with {VARIABLE}", "one holds")
    line, value = found[0]
    scored = bounded_tokens(value, origin, line)
    # A stable order: equal scores and starts stay in the order of the string.
    scored.sort(key=lambda item: (-item[0], -item[1].nbytes.least))
    rules = Rules(tuple(rule for _, rule in scored))
    return Read(FORMAT.name, UCC, rules, tuple(unreached(rules, origin)))


def bounded_tokens(value: str, origin: str, line: int) -> list[tuple[float, Rule]]:
    """Score and rule of each token and range. Raises FormatError (AHBM-F190), BudgetError (AHBM-B214)."""
    scores: list[float] = []
    memories: dict[tuple[str, ...], None] = {}

    def rules() -> Iterator[Rule]:
        for token in value.split("#"):
            score, memory, found = _token(token, origin, line)
            memories[memory] = None
            for rule in found:
                scores.append(score)
                yield rule

    found = bounded(rules(), origin)
    if len(memories) > 1:
        message = " and ".join(",".join(memory) or "any" for memory in memories)
        raise malformed(origin, line, f"rules for several types of memory: {message}", "keep those of one type")
    return list(zip(scores, found, strict=True))


def _token(token: str, origin: str, line: int) -> tuple[float, tuple[str, ...], list[Rule]]:
    parts = token.strip().split(":")
    collectives, spans, teams = [str(name) for name in UCC.collectives], [ANY], ANY
    memory: tuple[str, ...] = ()
    score, algorithm = 0.0, ""
    for part in parts:
        names = part.split(",")
        if part.startswith("@"):
            algorithm = part[1:]
        elif all(name in UCC.collectives.values() for name in names):
            collectives = [ours for name in names if (ours := collective_of(UCC, name)) is not None]
        elif all(name in _MEMORIES for name in names):
            memory = tuple(sorted(names))
        elif part == "inf" or re.fullmatch("[0-9]{1,9}", part):
            score = inf if part == "inf" else float(part)
        elif part.startswith("["):
            teams = _team(part, origin, line)
        else:
            spans = [_sizes(name, origin, line) for name in names]
    if not algorithm:
        raise malformed(origin, line, f"{token[:60]!r} names no algorithm", "coll:range:score:@algorithm")
    known = UCC.algorithms or {}
    for collective in collectives:
        if algorithm not in known[collective]:
            message = f"{algorithm[:40]!r} is no algorithm of {UCC.collectives[collective]}"
            raise malformed(origin, line, message, f"one of {', '.join(known[collective])}")
    rules = [
        Rule(collective, algorithm, span, teams, per_rank=collective in PER_RANK, line=line)
        for collective in collectives
        for span in spans
    ]
    return score, memory, rules


def _team(part: str, origin: str, line: int) -> Span:
    found = re.fullmatch(r"\[([0-9]{1,9})-([0-9]{1,9}|inf)\]", part)
    if found is None:
        raise malformed(origin, line, f"{part[:40]!r} is no range of team sizes", "[2-8] or [16-inf]")
    return Span(int(found[1]), None if found[2] == "inf" else int(found[2]))


def _sizes(part: str, origin: str, line: int) -> Span:
    ends = part.split("-")
    if len(ends) != 2:
        raise malformed(
            origin, line, f"{part[:40]!r} is no part of a rule of UCC", "a range of sizes is 0-4K or 4K-inf"
        )
    least, most = (_size(end, part, origin, line) for end in ends)
    return Span(least or 0, most)


def _size(text: str, part: str, origin: str, line: int) -> int | None:
    if text.lower() == "inf":
        return None
    found = _SIZE.fullmatch(text.upper())
    if found is None:
        raise malformed(origin, line, f"{part[:40]!r} is no range of sizes", "a range of sizes is 0-4K or 4K-inf")
    size = int(found[1]) * _UNITS[found[2]]
    return None if size >= UNLIMITED else size


def write(rules: Rules, notes: Sequence[str] = ()) -> str:
    """One string. A range ends where the next of its kind begins: at equal scores that size is the upper range's."""
    tokens = []
    for at, rule in enumerate(rules):
        ranks = exactly(rule.ranks)
        if rule.collective not in UCC.collectives or rule.algorithm not in (UCC.algorithms or {})[rule.collective]:
            raise unwritable("UCC's tune string", rule, "such collective or algorithm")
        if (rule.nodes, rule.ranks_per_node, rule.pipe_ops, rule.registered) not in (
            (ANY, ANY, None, None),
            (Span(1, 1), ANY, None, None),
        ):
            raise unwritable("UCC's tune string", rule, "nodes or registered buffers")
        following = rules.rules[at + 1] if at + 1 < len(rules) else None
        shared = (
            following is not None
            and following.condition == rule.condition
            and rule.nbytes.most is not None
            and following.nbytes.least == rule.nbytes.most + 1
        )
        least, most = rule.nbytes.least, rule.nbytes.most
        if rule.collective in PER_RANK and not rule.per_rank:
            least, most = _shares(rule, ranks)
        elif rule.per_rank and rule.collective not in PER_RANK:
            raise unwritable("UCC's tune string", rule, "sizes per rank")
        end = "inf" if most is None else str(most + shared)
        team = (
            ""
            if rule.ranks == ANY
            else f":[{rule.ranks.least}-{'inf' if rule.ranks.most is None else rule.ranks.most}]"
        )
        name = UCC.collectives[rule.collective]
        tokens.append(f"{name}:{least}-{end}{team}:inf:@{rule.algorithm}")
    return "\n".join([*comments(notes), f"{VARIABLE}={'#'.join(tokens)}"]) + "\n"


def _shares(rule: Rule, ranks: int | None) -> tuple[int, int | None]:
    least, most = rule.nbytes.least, rule.nbytes.most
    if ranks is None or ranks < 1 or least % ranks or (most is not None and (most + 1) % ranks):
        raise unwritable("UCC's tune string", rule, "border inside the share of one rank")
    return least // ranks, None if most is None else most // ranks


def _claims(text: str) -> bool:
    rows = (row for row in text.splitlines() if row.strip() and not row.lstrip().startswith("#"))
    return re.match(r"\s*(export\s+)?UCC_[A-Z0-9_]+_TUNE\s*=", next(rows, "")) is not None


FORMAT = Format("ucc", UCC, "ucc.conf", _claims, read, write)
