"""UCC's tune strings (`UCC_TL_UCP_TUNE`, in the environment or in ucc.conf).

Tokens between `#`, each of parts between `:` in any order: collectives, memory types, ranges of message sizes
(`0-4K,1M-inf`), team sizes (`[2-8,16]`), a score (`inf` or a number), `@algorithm`, by its name or its number. Capitals
do not matter. Ranges include both ends; the higher score holds, and of equal ones at a shared border the upper range. A
score without an algorithm leaves UCC its own algorithm, and 0 takes calls away from tl/ucp: neither is a rule.

A ucc.conf has other variables, too, and sections (`[vendor=intel model=skylake team_size=8 ppn=1 nnodes=8]`), whose
strings hold for such teams where there is none above all sections. Numbers of algorithms are places in the enumerations
of tl/ucp (`ahbm.choose.names`), some of which are shorter in older versions. Sources: src/coll_score/ucc_coll_score.c,
src/utils/ucc_parser.c, src/components/tl/ucp/tl_ucp_team.c, docs/user_guide.md, contrib/ucc.conf of openucx/ucc.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from ahbm.base.rules import ANY, UNLIMITED, Rule, Rules, Span
from ahbm.choose.formats.format import Format, Read, collective_of, comments, exactly, malformed, unwritable
from ahbm.choose.names import UCC
from ahbm.choose.rules import bounded, unreached

VARIABLE = "UCC_TL_UCP_TUNE"
_LINE = re.compile(r"\s*(?:export\s+)?((?:[A-Z0-9]+_)*UCC_[A-Z0-9_]+)\s*=\s*([\"']?)(.*?)\2\s*")
_SECTION = re.compile(r"\s*\[([^\]]*)\]\s*")
_PROCESSOR = ("vendor", "model", "sock")
"""Keys of a section that say what the processors are."""
_TEAM = ("team_size", "ppn", "nnodes")
"""Keys of a section that are numbers or ranges: ranks, ranks of a node, nodes."""
_MEMORIES = ("host", "cuda", "cuda_managed", "rocm", "rocm_managed")
_UNTUNED = (
    "allgatherv",
    "alltoallv",
    "barrier",
    "fanin",
    "fanout",
    "gather",
    "gatherv",
    "reduce_scatterv",
    "scatter",
    "scatterv",
)
"""Collectives of UCC whose rules are not read."""
_SIZE = re.compile(r"([0-9]{1,20})([KMGT]?)B?")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
PER_RANK = ("reduce_scatter",)
"""Collectives whose message size is the share of one rank, not the whole array."""


@dataclass
class _Section:
    """A section of ucc.conf, or what is above all of them."""

    keys: Mapping[str, str]
    line: int
    strings: list[tuple[int, str]] = field(default_factory=list)
    """Line and value of its tune string: at most one."""

    @property
    def processor(self) -> str:
        """Of its teams, as its head says."""
        return " ".join(f"{key}={self.keys[key]}" for key in _PROCESSOR if key in self.keys)

    def team(self, origin: str) -> tuple[Span, ...]:
        """The ranks, ranks of a node and nodes of its teams."""
        return tuple(self._span(key, origin) for key in _TEAM)

    def _span(self, key: str, origin: str) -> Span:
        if key not in self.keys:
            return ANY
        found = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", self.keys[key])
        if found is None:
            what = f"{key}={self.keys[key][:40]} is neither a number nor a range"
            raise malformed(origin, self.line, what, f"{key}=2 or {key}=2-8")
        return Span(int(found[1]), int(found[2] or found[1]))


def read(text: str, origin: str) -> Read:
    """The rules of a file: of the string above all sections, or without one, those of sections in their order."""
    (first, *sections), others = _sections(text, origin)
    tuned = [section for section in sections if section.strings]
    notes: dict[str, None] = {}
    if first.strings:
        if tuned:
            notes[f"the string above all sections holds; those of {len(tuned)} sections are passed over"] = None
        tuned = [first]
    elif not tuned:
        raise malformed(origin, 1, f"no line with {VARIABLE}=...", "the strings of other layers are not read")
    rules: list[Rule] = []
    held: dict[tuple[Span, ...], str] = {}
    hidden: list[str] = []
    for section in tuned:
        team = section.team(origin)
        if held.setdefault(team, section.processor) != section.processor:
            hidden.append(section.processor or "any")
        else:
            rules += _within(_rules(*section.strings[0], origin, notes), team)
    if any(held.values()):
        taken = _some([processor for processor in held.values() if processor])
        notes[f"what the processors are is not known here: sections for {taken} are taken to fit"] = None
    if hidden:
        notes[f"passed over, an earlier section is for such teams: sections for {_some(hidden)}"] = None
    if others:
        notes[f"passed over, no tune string of tl/ucp: {_some(others)}"] = None
    found = bounded(rules, origin)
    return Read(FORMAT.name, UCC, found, tuple(unreached(found, origin)), tuple(notes))


def _some(names: Iterable[str]) -> str:
    """At most eight different names, and how many more."""
    found = list(dict.fromkeys(names))
    more = f" and {len(found) - 8} more" if len(found) > 8 else ""
    return ", ".join(name[:60] for name in found[:8]) + more


def _sections(text: str, origin: str) -> tuple[list[_Section], list[str]]:
    """What is above all sections, and the sections; and the variables that are no tune string of tl/ucp."""
    found, others = {"": _Section({}, 1)}, []
    section = found[""]
    for line, row in enumerate(text.split("\n"), 1):
        if not row.strip() or row.lstrip()[0] in "#;":
            continue
        if head := _SECTION.fullmatch(row):
            section = found.setdefault(" ".join(head[1].split()), _Section(_keys(head[1], origin, line), line))
            continue
        variable = _LINE.fullmatch(row)
        if variable is None:
            what = f"{row.strip()[:40]!r} is neither a variable of UCC nor a section"
            raise malformed(origin, line, what, f"{VARIABLE}=...")
        if variable[1] != VARIABLE:
            others.append(variable[1])
            continue
        section.strings.append((line, variable[3]))
        if len(section.strings) > 1:
            raise malformed(origin, line, f"a second line with {VARIABLE}", "one holds")
    return list(found.values()), others


def _keys(head: str, origin: str, line: int) -> dict[str, str]:
    keys: dict[str, str] = {}
    for word in head.split():
        key, equals, value = word.partition("=")
        if not equals or key not in (*_PROCESSOR, *_TEAM):
            what = f"{word[:40]!r} is no key of a section"
            raise malformed(origin, line, what, f"{', '.join((*_PROCESSOR, *_TEAM))}, each with = and a value")
        keys[key] = value
    return keys


def _within(rules: Iterable[Rule], team: Sequence[Span]) -> Iterator[Rule]:
    """Rules for the teams of a section."""
    ranks, per_node, nodes = team
    for rule in rules:
        both = Span(max(ranks.least, rule.ranks.least), _least(ranks.most, rule.ranks.most))
        yield replace(rule, ranks=both, ranks_per_node=per_node, nodes=nodes)


def _least(one: int | None, other: int | None) -> int | None:
    return min((end for end in (one, other) if end is not None), default=None)


def _rules(line: int, value: str, origin: str, notes: dict[str, None]) -> list[Rule]:
    """The rules of a string, of which the first that fits holds. Raises FormatError (AHBM-F190), BudgetError
    (AHBM-B214)."""
    scores: list[float] = []
    memories: dict[tuple[str, ...], None] = {}

    def rules() -> Iterator[Rule]:
        for token in filter(str.strip, value.split("#")):
            score, memory, found = _token(token.strip(), origin, line, notes)
            if memory is not None:
                memories[memory] = None
            for rule in found:
                scores.append(score)
                yield rule

    found = bounded(rules(), origin)
    if len(memories) > 1:
        message = " and ".join(",".join(memory) or "any" for memory in memories)
        raise malformed(origin, line, f"rules for several types of memory: {message}", "keep those of one type")
    scored = list(zip(scores, found, strict=True))
    # A stable order: equal scores and starts stay in the order of the string.
    scored.sort(key=lambda item: (-item[0], -item[1].nbytes.least))
    return [rule for _, rule in scored]


def _token(
    token: str, origin: str, line: int, notes: dict[str, None]
) -> tuple[float, tuple[str, ...] | None, Iterator[Rule]]:
    """The score of a token, the types of memory of its rules (None without rules), and its rules."""
    collectives, spans, teams = [str(name) for name in UCC.collectives], [ANY], [ANY]
    memory: tuple[str, ...] = ()
    untuned: list[str] = []
    score: float | None = None
    algorithm = ""
    # As `ucc_str_split`, which skips what is empty.
    for part in filter(None, token.lower().split(":")):
        names = part.split(",")
        if part.startswith("@"):
            algorithm = part[1:]
        elif all(name in UCC.collectives.values() or name in _UNTUNED for name in names):
            untuned = [name for name in names if name in _UNTUNED]
            collectives = [ours for name in names if (ours := collective_of(UCC, name)) is not None]
        elif all(name in _MEMORIES for name in names):
            memory = tuple(sorted(names))
        elif part == "inf" or re.fullmatch("[0-9]{1,9}", part):
            score = inf if part == "inf" else float(part)
        elif part.startswith("["):
            teams = _teams(part, origin, line)
        else:
            spans = [_sizes(name, origin, line) for name in names]
    if not algorithm and score is None:
        what = f"{token[:60]!r} has neither a score nor an algorithm"
        raise malformed(origin, line, what, "coll:range:score:@algorithm")
    named = {ours: _algorithm(ours, algorithm, origin, line) for ours in collectives if algorithm}
    if untuned:
        notes[f"passed over, rules of {', '.join(untuned)}: no tuning file here has those"] = None
    if score == 0:
        notes[f"no rule of tl/ucp, score 0: {token[:60]}"] = None
        named = {}
    elif not algorithm:
        notes[f"no rule, a score alone, so UCC's own algorithm: {token[:60]}"] = None
    # Not a list: lists of ranges and teams multiply, and who reads stops where there are too many rules.
    rules = (
        Rule(collective, theirs, span, team, per_rank=collective in PER_RANK, line=line)
        for collective, theirs in named.items()
        for span in spans
        for team in teams
    )
    return score or 0.0, memory if named else None, rules


def _algorithm(collective: str, written: str, origin: str, line: int) -> str:
    """The name of an algorithm that is written as one, or as its number."""
    known = list((UCC.algorithms or {})[collective])
    if re.fullmatch("[0-9]{1,9}", written):
        if int(written) < len(known):
            return known[int(written)]
    elif written in known:
        return written
    what = f"{written[:40]!r} is no algorithm of {UCC.collectives[collective]}"
    raise malformed(origin, line, what, ", ".join(f"{at} {name}" for at, name in enumerate(known)))


def _teams(part: str, origin: str, line: int) -> list[Span]:
    found = [re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}|inf))?", each) for each in part[1:-1].split(",")]
    spans = [Span(int(one[1]), None if one[2] == "inf" else int(one[2] or one[1])) for one in found if one]
    if len(spans) < len(found) or not part.endswith("]"):
        raise malformed(origin, line, f"{part[:40]!r} is no range of team sizes", "[2-8], [16-inf] or [4,8]")
    return spans


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
    rows = [row for row in text.splitlines() if row.strip() and row.lstrip()[0] not in "#;"]
    begins = rows and (_SECTION.fullmatch(rows[0]) or _LINE.fullmatch(rows[0]))
    return bool(begins) and any(_LINE.fullmatch(row) for row in rows)


FORMAT = Format("ucc", UCC, "ucc.conf", _claims, read, write)
