"""The files of the tuner that is built into NCCLX (`NCCLX_TUNER_CONFIG_FILE`): CSV, and the same as JSON.

A line is `collective,bytesPerRank,algorithm,protocol,channels,nNodes,nLocalRanks`, then nothing, chunkSize, or
numPipeOps, regBuff and chunkSize. Sizes and numbers are intervals (`[a,b]`, `(a,b]`, `(1,)`, a number, `*`), of which
the first is compared with nBytes / nRanks, rounded down. The first rule that fits holds; channels -1 keeps NCCL's own
number; a malformed file fails the communicator. Source: `comms/ncclx/meta/tuner` of meta-pytorch/torchcomms.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ahbm.base.rules import ANY, Rule, Rules, Span
from ahbm.choose.formats.format import (
    Format,
    Read,
    collective_of,
    comments,
    first_rows,
    is_object,
    malformed,
    parse_json,
    passed_over,
    unwritable,
)
from ahbm.choose.names import ALGORITHMS, NCCL, PROTOCOLS
from ahbm.choose.rules import bounded, unreached

COLUMNS = ("collective", "bytesPerRank", "algorithm", "protocol", "channels", "nNodes", "nLocalRanks")
LONG = (*COLUMNS, "numPipeOps", "regBuff", "chunkSize")
SHAPES = {len(COLUMNS): COLUMNS, len(COLUMNS) + 1: (*COLUMNS, "chunkSize"), len(LONG): LONG}
"""Number of fields -> their names. Of 8 fields the last is chunkSize."""
_FILTER = ("collective", "bytesPerRank", "nNodes", "nLocalRanks", "numPipeOps", "regBuff")
_CONFIG = ("algorithm", "protocol", "channels", "chunkSize")
_HEAD = f"# {','.join(COLUMNS)}[,chunkSize]"
_INTERVAL = re.compile(r"([\[(])\s*(-?[0-9]{0,19})\s*,\s*(-?[0-9]{0,19})\s*([\])])")
_INTEGER = re.compile(r"-?[0-9]{1,19}")


def interval(text: str) -> Span | None:
    """The numbers from 0 on in an interval, `*` or a number; None for what is none, or is empty by its bounds."""
    text = text.strip()
    if text in ("", "*"):
        return ANY
    if _INTEGER.fullmatch(text):
        return Span(int(text), int(text))
    found = _INTERVAL.fullmatch(text)
    if found is None or "-" in (found[2], found[3]):
        return None
    least = int(found[2]) + (found[1] == "(") if found[2] else 0
    most = int(found[3]) - (found[4] == ")") if found[3] else None
    if found[2] and found[3] and int(found[2]) > int(found[3]):
        return None
    return Span(max(least, 0), most)


def _rule(row: Mapping[str, str], origin: str, line: int) -> Rule:
    spans = {}
    for key in ("bytesPerRank", "nNodes", "nLocalRanks"):
        span = interval(row.get(key, ""))
        if span is None:
            raise malformed(origin, line, f"{key} is {row[key][:40]!r}, which is no interval", "[a,b], (a,b], N or *")
        spans[key] = span
    collective = collective_of(NCCL, row.get("collective", ""))
    for key, name, names in (
        ("collective", collective, list(NCCL.collectives.values())),
        ("algorithm", row.get("algorithm") in ALGORITHMS or None, list(ALGORITHMS)),
        ("protocol", row.get("protocol") in PROTOCOLS or None, list(PROTOCOLS)),
    ):
        if name is None:
            message = f"{key} is {row.get(key, '')[:40]!r}, which NCCLX refuses"
            raise malformed(origin, line, message, f"one of {', '.join(names)}")
    numbers = {"channels": -1, "numPipeOps": -1, "regBuff": -1, "chunkSize": 0}
    for key in numbers:
        if text := row.get(key, ""):
            if not _INTEGER.fullmatch(text) or (key == "chunkSize" and int(text) < 0):
                raise malformed(origin, line, f"{key} is {text[:40]!r}, which is no number that NCCLX takes")
            numbers[key] = int(text)
    assert collective is not None
    return Rule(
        collective,
        row["algorithm"],
        spans["bytesPerRank"],
        nodes=spans["nNodes"],
        ranks_per_node=spans["nLocalRanks"],
        per_rank=True,
        pipe_ops=None if numbers["numPipeOps"] == -1 else numbers["numPipeOps"],
        registered=None if numbers["regBuff"] == -1 else numbers["regBuff"] != 0,
        protocol=row["protocol"],
        channels=None if numbers["channels"] == -1 else numbers["channels"],
        chunk_bytes=numbers["chunkSize"] or None,
        line=line,
    )


def split(line: str) -> list[str]:
    """The fields of a line; commas inside an interval are part of it."""
    fields, depth, start = [], 0, 0
    for at, letter in enumerate(f"{line},"):
        depth = max(depth + (letter in "([") - (letter in ")]"), 0)
        if letter == "," and (not depth or at == len(line)):
            fields.append(line[start:at].strip())
            start = at + 1
    return fields


def _csv(text: str, origin: str) -> Iterator[Rule]:
    for line, row in enumerate(text.split("\n"), 1):
        if not row.strip() or row.strip().startswith("#"):
            continue
        fields = split(row.strip())
        if len(fields) not in SHAPES:
            counts = ", ".join(map(str, SHAPES))
            raise malformed(origin, line, f"a line of {len(fields)} fields", f"{counts}: {','.join(LONG)}")
        yield _rule(dict(zip(SHAPES[len(fields)], fields, strict=True)), origin, line)


def _read(format: str, found: Iterator[Rule], origin: str) -> Read:
    rules = bounded(found, origin)
    kept, findings = passed_over(NCCL, rules, origin)
    return Read(format, NCCL, rules, (*findings, *unreached(kept, origin)))


def read_csv(text: str, origin: str) -> Read:
    """The rules of a CSV file."""
    return _read(CSV.name, _csv(text, origin), origin)


def _json(document: Any, origin: str) -> Iterator[Rule]:
    rules = document.get("rules") if isinstance(document, dict) else None
    if not isinstance(rules, list):
        raise malformed(origin, 1, "no list `rules`")
    # A position is what a JSON file has instead of a line.
    for at, rule in enumerate(rules, 1):
        halves = [rule.get(half) for half in ("filter", "config")] if isinstance(rule, dict) else [None, None]
        row: dict[str, str] = {}
        for half, keys in zip(halves, (_FILTER, _CONFIG), strict=True):
            if not isinstance(half, dict):
                raise malformed(origin, at, f"rule {at} has no `filter` and `config`")
            for key, value in half.items():
                if key in keys and (isinstance(value, str) or type(value) is int):
                    row[key] = str(value) if abs(value if isinstance(value, int) else 0) < 1 << 63 else "x"
                elif key in keys:
                    raise malformed(origin, at, f"rule {at}: {key} is neither a number nor a text")
        yield _rule(row, origin, at)


def read_json(text: str, origin: str) -> Read:
    """The rules of a JSON file; a finding's line is the position of its rule."""
    return _read(JSON.name, _json(parse_json(text, origin), origin), origin)


def _row(rule: Rule) -> dict[str, str | int]:
    """The fields of a rule. Sizes of whole arrays become sizes per rank where they are the same calls."""
    nbytes, nodes, local = rule.nbytes, rule.nodes, rule.ranks_per_node
    if rule.collective not in NCCL.collectives or rule.protocol not in PROTOCOLS or rule.algorithm not in ALGORITHMS:
        raise unwritable("NCCLX's tuner file", rule, "rule without a collective, protocol and algorithm of NCCL")
    if not rule.per_rank:
        ranks = rule.ranks.least
        if rule.ranks.most != ranks or nodes.most != nodes.least or not nodes.least or ranks % nodes.least:
            raise unwritable("NCCLX's tuner file", rule, "sizes of whole arrays for several numbers of ranks")
        if nbytes.least % ranks or (nbytes.most is not None and (nbytes.most + 1) % ranks):
            raise unwritable("NCCLX's tuner file", rule, f"border inside the share of one of {ranks} ranks")
        nbytes = Span(nbytes.least // ranks, None if nbytes.most is None else nbytes.most // ranks)
        local = Span(ranks // nodes.least, ranks // nodes.least)
    elif rule.ranks != ANY:
        raise unwritable("NCCLX's tuner file", rule, "numbers of ranks")
    row: dict[str, str | int] = {
        "collective": NCCL.collectives[rule.collective],
        "bytesPerRank": _spelled(nbytes),
        "algorithm": rule.algorithm,
        "protocol": rule.protocol,
        "channels": -1 if rule.channels is None else rule.channels,
        "nNodes": _spelled(nodes),
        "nLocalRanks": _spelled(local),
    }
    if (rule.pipe_ops, rule.registered) != (None, None):
        row["numPipeOps"] = -1 if rule.pipe_ops is None else rule.pipe_ops
        row["regBuff"] = -1 if rule.registered is None else int(rule.registered)
        row["chunkSize"] = rule.chunk_bytes or 0
    elif rule.chunk_bytes is not None:
        row["chunkSize"] = rule.chunk_bytes
    return row


def _spelled(span: Span) -> str:
    if span == ANY:
        return "*"
    if span.most == span.least:
        return str(span.least)
    return f"[{span.least},{'' if span.most is None else span.most}{']' if span.most is not None else ')'}"


def write_csv(rules: Rules, notes: Sequence[str] = ()) -> str:
    """The lines of rules."""
    rows = [",".join(map(str, _row(rule).values())) for rule in rules]
    return "\n".join([*comments(notes), _HEAD, *rows]) + "\n"


def write_json(rules: Rules, notes: Sequence[str] = ()) -> str:
    """The rules as JSON, which has no comments."""
    rows = [_row(rule) for rule in rules]
    found = [{"filter": _of(row, _FILTER), "config": _of(row, _CONFIG)} for row in rows]
    return json.dumps({"rules": found}, indent=2) + "\n"


def _of(row: Mapping[str, str | int], keys: Sequence[str]) -> dict[str, str | int]:
    return {key: row[key] for key in keys if key in row}


def _claims(text: str) -> bool:
    fields = split(",".join(first_rows(text)))
    if not first_rows(text):
        return _HEAD in text.splitlines()
    return len(fields) in SHAPES and fields[2] in ALGORITHMS


CSV = Format("ncclx-csv", NCCL, "ncclx_tuner.csv", _claims, read_csv, write_csv)
JSON = Format("ncclx-json", NCCL, "ncclx_tuner.json", lambda text: is_object(text, "rules"), read_json, write_json)
