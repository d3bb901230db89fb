"""The configuration file of NCCL's example tuner plugin (`NCCL_TUNER_CONFIG_FILE`), read as the plugin reads it.

A line is `collective,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks[,numPipeOps[,regBuff]]`; -1 is any,
both bounds are included. The first line that fits and whose algorithm NCCL allows holds. Source: `plugin.c` and the
README in `plugins/tuner/example` of NCCL 2.29.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from ahbm.base.rules import ANY, UNLIMITED, Rule, Rules, Span
from ahbm.choose.formats.format import (
    Format,
    Read,
    collective_of,
    comments,
    exactly,
    first_rows,
    malformed,
    number,
    passed_over,
    unwritable,
)
from ahbm.choose.names import ALGORITHMS, NCCL, PROTOCOLS
from ahbm.choose.rules import bounded, unreached
from ahbm.errors import Finding, Site
from ahbm.selectors import nccl_model

LINE = 255
"""Characters that the plugin reads at a time: a longer line is taken apart."""
FEWEST, MOST = 8, 10
"""Fields of a line: fewer are skipped, further ones are dropped."""
LL_BYTES = 1 << 20
"""LL sends a flag with every 4 bytes; above about this size the protocol costs more than it saves."""
_COLUMNS = "collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff"
_INTEGER = re.compile(r"-?[0-9]{1,9}")
ONE_CHANNEL, UNMATCHED, UNKNOWN = "AHBM-F191", "AHBM-F192", "AHBM-F193"
CUT, SHORT, MODEL, LONG_LL = "AHBM-F194", "AHBM-F195", "AHBM-F196", "AHBM-F197"


@dataclass
class _Reader:
    """Reads one file; what is odd about its lines is collected."""

    origin: str
    findings: list[Finding]

    def rules(self, text: str) -> Iterator[Rule]:
        for line, row in enumerate(text.split("\n"), 1):
            pieces = [row[at : at + LINE] for at in range(0, len(row), LINE)]
            if len(pieces) > 1:
                what = f"the plugin reads a line of {len(row)} characters as {len(pieces)} lines of at most {LINE}"
                self.warn(CUT, line, "line", what, f"no more than {LINE} characters a line, comments too")
            for piece in pieces:
                # A line of blanks has no fields and is skipped as one with too few of them.
                if piece.startswith("#") or not piece.strip() or piece.replace(" ", "") == _COLUMNS:
                    continue
                fields = [part.strip(" \t") for part in piece.split(",") if part][:MOST]
                if len(fields) < FEWEST:
                    if len(pieces) > 1:
                        continue
                    what = f"a line of {len(fields)} fields, which the plugin skips without a word"
                    raise malformed(self.origin, line, what, f"{FEWEST} to {MOST} fields: {_COLUMNS}")
                yield self.rule(fields, line)

    def rule(self, fields: Sequence[str], line: int) -> Rule:
        least = number(fields[1], self.origin, line, "min_bytes")
        most = UNLIMITED if fields[2] == "-1" else number(fields[2], self.origin, line, "max_bytes")
        channels, nodes, ranks, pipe_ops, registered = (
            self.integer(fields[at], line, name) if at < len(fields) else -1
            for at, name in enumerate(_COLUMNS.split(",")[5:], 5)
        )
        algorithm = self.known(fields[3], ALGORITHMS, "ring", "algorithm", line)
        protocol = self.known(fields[4], PROTOCOLS, "simple", "protocol", line)
        collective = self.known(fields[0], tuple(NCCL.collectives.values()), "allreduce", "collective", line)
        if channels == -1:
            what = "channels -1 is one channel: the plugin sets one before it looks for a line, and NCCL takes it"
            self.warn(ONE_CHANNEL, line, f"{algorithm}/{protocol}", what, "write the number of channels")
        if protocol == "ll" and most > LL_BYTES and not _takes_ll(collective, algorithm, most, ranks, nodes):
            message = "any size" if most == UNLIMITED else f"{most} bytes"
            what = f"LL is forced up to {message}: NCCL's own bound on LL does not hold for what a tuner chooses"
            hint = f"end the range at {LL_BYTES} bytes or below, and name ll128 or simple above it"
            self.warn(LONG_LL, line, f"{algorithm}/{protocol}", what, hint)
        ours = collective_of(NCCL, collective)
        assert ours is not None
        return Rule(
            ours,
            algorithm,
            Span(least, None if most == UNLIMITED else most),
            _span(ranks),
            _span(nodes),
            pipe_ops=None if pipe_ops == -1 else pipe_ops,
            registered=None if registered == -1 else registered != 0,
            protocol=protocol,
            # 0 leaves the number to NCCL.
            channels=1 if channels == -1 else channels or None,
            line=line,
        )

    def integer(self, text: str, line: int, name: str) -> int:
        # The plugin's `atoi` ends where digits do: a comment behind the last number does no harm.
        text = re.sub(r"(?<=\d)\s+#.*", "", text)
        if not _INTEGER.fullmatch(text):
            raise malformed(self.origin, line, f"{name} is {text[:40]!r}, which is no whole number")
        return int(text)

    def known(self, name: str, names: Sequence[str], otherwise: str, what: str, line: int) -> str:
        if name in names:
            return name
        message = f"{what} {name[:40]!r} is not known: the plugin takes it for {otherwise} without a word"
        self.warn(UNKNOWN, line, name[:40], message, f"one of {', '.join(names)}")
        return otherwise

    def warn(self, code: str, line: int, label: str, message: str, hint: str) -> None:
        self.findings.append(Finding(code, message, (Site(label, f"{self.origin}:{line}"),), hint))


def _takes_ll(theirs: str, algorithm: str, nbytes: int, ranks: int, nodes: int) -> bool:
    """Whether NCCL takes LL with an algorithm by itself for so many bytes, on accelerators of any generation."""
    collective = collective_of(NCCL, theirs)
    if collective is None or nbytes >= UNLIMITED or ranks < 2:
        return False
    found = (model.own(collective, nbytes, ranks, max(nodes, 1)) for model in nccl_model.generations())
    return (algorithm, "ll") in found


def _span(number: int) -> Span:
    return ANY if number == -1 else Span(number, number)


def read(text: str, origin: str) -> Read:
    """The rules of a file, and the traps in it (AHBM-F191 to F198, F200)."""
    findings: list[Finding] = []
    rules = bounded(_Reader(origin, findings).rules(text), origin)
    kept, never = passed_over(NCCL, rules, origin)
    findings += [*never, *_gaps(kept, origin), *unreached(kept, origin)]
    return Read(FORMAT.name, NCCL, rules, tuple(findings))


def _gaps(rules: Rules, origin: str) -> Iterator[Finding]:
    """Sizes for which there is no line among those for the same calls, and what decides then."""
    groups: dict[tuple[object, ...], list[Rule]] = {}
    for rule in rules:
        if not rule.empty:
            groups.setdefault(rule.condition, []).append(rule)
    decided = 0
    for condition, group in groups.items():
        reached, name = 0, NCCL.collectives[group[0].collective]
        covering = [rule for around in _covering(condition) for rule in groups.get(around, ())]
        for rule in sorted(covering, key=lambda rule: rule.nbytes.least):
            if rule.nbytes.least > reached:
                yield _gap(group[-1], name, reached, rule.nbytes.least - 1, origin)
            reached = max(reached, UNLIMITED + 1 if rule.nbytes.most is None else rule.nbytes.most + 1)
        if reached == 1 << 32:
            last = max(group, key=lambda rule: rule.nbytes.most or 0)
            what = f"4294967295 is not all sizes: no line is for {name} of 4 GiB and more, which gets one channel"
            yield Finding(SHORT, what, (Site(name, f"{origin}:{last.line}"),), f"max_bytes {UNLIMITED}")
        elif reached <= UNLIMITED:
            yield _gap(group[-1], name, reached, UNLIMITED, origin)
        decided += reached > UNLIMITED and all(part in (ANY, None, False) for part in condition[1:])
    if decided < len(NCCL.collectives):
        what = (
            "NCCL's model decides calls that no line is for, and the example plugin overwrites constants of that model "
            "(tree and ring LL128 bandwidths on Blackwell from 4 nodes, NVLS latency over the network)"
        )
        hint = "a last line for every size of each collective, or a plugin without those assignments"
        yield Finding(MODEL, what, (Site("file", f"{origin}:1"),), hint)


def _covering(condition: tuple[object, ...]) -> Iterator[tuple[object, ...]]:
    """The conditions of lines that are for the same calls, or more: each number of a line is one or any."""
    collective, ranks, nodes, per_node, per_rank, pipe_ops, registered = condition
    for one in product(*map(dict.fromkeys, ((ranks, ANY), (nodes, ANY), (pipe_ops, None), (registered, None)))):
        yield (collective, one[0], one[1], per_node, per_rank, one[2], one[3])


def _gap(rule: Rule, name: str, least: int, most: int, origin: str) -> Finding:
    message = f"{least} to {most} bytes" if most < UNLIMITED else f"{least} bytes and more"
    what = f"no line is for {name} of {message}: NCCL's model chooses, with one channel (not ring and simple)"
    return Finding(UNMATCHED, what, (Site(name, f"{origin}:{rule.line}"),), "lines that cover every size")


def write(rules: Rules, notes: Sequence[str] = ()) -> str:
    """The lines of rules: a number of channels in each, 0 where it is left to NCCL; `UNLIMITED` in the last range."""
    lines = [*comments(notes, LINE - 5), f"# {_COLUMNS}"]
    for rule in rules:
        ranks, nodes = exactly(rule.ranks), exactly(rule.nodes)
        if rule.collective not in NCCL.collectives or rule.per_rank or rule.ranks_per_node != ANY:
            raise unwritable("NCCL's tuner file", rule, "such calls")
        if ranks is None or nodes is None:
            raise unwritable("NCCL's tuner file", rule, "ranges of ranks or nodes")
        if rule.protocol not in PROTOCOLS or rule.algorithm not in ALGORITHMS:
            raise unwritable("NCCL's tuner file", rule, "line without a protocol and an algorithm of NCCL")
        most = UNLIMITED if rule.nbytes.most is None else rule.nbytes.most
        pipe_ops = -1 if rule.pipe_ops is None else rule.pipe_ops
        registered = -1 if rule.registered is None else int(rule.registered)
        name = NCCL.collectives[rule.collective]
        lines.append(
            f"{name},{rule.nbytes.least},{most},{rule.algorithm},{rule.protocol},{rule.channels or 0},"
            f"{nodes},{ranks},{pipe_ops},{registered}"
        )
    return "\n".join(lines) + "\n"


def _claims(text: str) -> bool:
    fields = first_rows(text)
    if not fields:
        return f"# {_COLUMNS}" in text.splitlines()
    if fields[0] in NCCL.collectives.values() and len(fields) > 4 and fields[1][:1].isdecimal():
        return fields[3] in ALGORITHMS or fields[4] in PROTOCOLS
    return len(fields) >= FEWEST and (fields[:2] == _COLUMNS.split(",")[:2] or fields[2].lstrip("-").isdecimal())


FORMAT = Format("nccl", NCCL, "nccl_tuner.csv", _claims, read, write)
