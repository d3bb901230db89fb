"""NCCL's own variables, in `nccl.conf` (/etc/nccl.conf, ~/.nccl.conf, NCCL_CONF_FILE) or in a script that exports them.

`NCCL_ALGO` and `NCCL_PROTO` are lists that NCCL's model chooses from: elements between commas, `^` before them for all
others; lists of one collective stand behind its name and a colon, between semicolons: `^ring;allreduce:tree,nvls`.
Capitals do not matter, blanks do. Where a list leaves a collective one algorithm, that is a rule; where it leaves none,
NCCL fails. A line of nccl.conf is a name, `=` and everything behind it. Sources: `parseList` and `ncclTopoTuneModel` in
src/graph/tuning.cc, `setEnvFile` in src/misc/param.cc of NVIDIA/nccl.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from pathlib import Path

from ahbm.base.rules import Rule, Rules
from ahbm.base.yaml_source import did_you_mean
from ahbm.choose.formats.format import Read, malformed
from ahbm.choose.names import ALGORITHMS, NCCL, PROTOCOLS
from ahbm.errors import Finding, Site

NAME = "nccl-env"
_LISTS = {"NCCL_ALGO": ALGORITHMS, "NCCL_PROTO": PROTOCOLS}
_CHANNELS = ("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS")
_LINE = re.compile(r"\s*(?:export\s+)?((?:NCCL|RCCL|MSCCLPP)_[A-Z0-9_]{1,60})=(.*)")
_OTHERS = ("sendrecv", "alltoall", "gather", "scatter", "send", "recv")
"""Functions of NCCL that its lists can name and that have no algorithm to choose."""


def claims(text: str) -> bool:
    """Whether the first line of a text that is no comment sets a variable of these libraries."""
    rows = (row for row in text.splitlines() if row.strip() and not row.lstrip().startswith("#"))
    return _LINE.fullmatch(next(rows, "")) is not None


def read(text: str, origin: str) -> Read:
    """The rules of a file: for the collectives that the lists leave one algorithm. A warning (AHBM-F200) names those
    that they leave none.

    Raises FormatError (AHBM-F190) for a list that NCCL refuses.
    """
    values: dict[str, tuple[int, str]] = {}
    others: dict[str, None] = {}
    literally = Path(origin).name.endswith("nccl.conf")
    for line, row in enumerate(text.split("\n"), 1):
        found = _LINE.fullmatch(row)
        if found is None:
            continue
        name, value = found[1], found[2]
        if not literally:
            value = re.sub(r"""^(["'])(.*)\1\s*$""", r"\2", value)
        if name not in _LISTS and name not in _CHANNELS:
            others[name] = None
        elif name in values:
            raise malformed(origin, line, f"a second line with {name}", "nccl.conf keeps the first, a shell the last")
        else:
            values[name] = line, value
    lists = {name: _parsed(*values[name], name, origin) for name in _LISTS if name in values}
    notes, findings, rules = list[str](), list[Finding](), list[Rule]()
    none: dict[str, str] = {}
    if not lists:
        notes.append("no NCCL_ALGO and no NCCL_PROTO: NCCL's model chooses")
    for collective, theirs in NCCL.collectives.items() if lists else ():
        algorithms, protocols = (lists[name][theirs] if name in lists else every for name, every in _LISTS.items())
        left = [name for name in algorithms if _runs(collective, name, protocols)]
        if not left:
            none[theirs] = ", ".join((NCCL.algorithms or {})[collective])
        elif len(left) > 1:
            notes.append(f"no rule for {theirs}: NCCL's model chooses between {', '.join(left)}")
        else:
            line = values["NCCL_ALGO" if "NCCL_ALGO" in lists else "NCCL_PROTO"][0]
            able = [name for name in protocols if _runs(collective, left[0], [name])]
            protocol = able[0] if len(able) == 1 else None
            rules.append(Rule(collective, left[0], protocol=protocol, channels=_channels(values), line=line))
    if none:
        names = " and ".join(f"{name}={values[name][1][:60]}" for name in lists)
        what = f"{names} leaves {', '.join(none)} no algorithm: NCCL fails there (no algorithm/protocol available)"
        hint = "lists of single collectives, such as " + ";".join(
            f"{name}:{each.split(',')[0]}" for name, each in none.items()
        )
        findings.append(Finding("AHBM-F200", what, (Site("list", f"{origin}:{values[next(iter(lists))][0]}"),), hint))
    if others:
        more = f" and {len(others) - 8} more" if len(others) > 8 else ""
        notes.append(f"passed over, no list of algorithms or protocols: {', '.join(list(others)[:8])}{more}")
    return Read(NAME, NCCL, Rules(tuple(rules)), tuple(findings), tuple(notes))


def _runs(collective: str, algorithm: str, protocols: Sequence[str]) -> bool:
    """Whether NCCL has an algorithm for a collective somewhere, in one of the protocols."""
    return any(NCCL.lacks(collective, algorithm, protocol, inf, 1) is None for protocol in protocols)


def _channels(values: Mapping[str, tuple[int, str]]) -> int | None:
    """The number of channels, where the least is the most."""
    least, most = (values.get(name, (0, ""))[1].strip() for name in _CHANNELS)
    return int(least) if least == most and re.fullmatch("[1-9][0-9]{0,3}", least) else None


def _parsed(line: int, value: str, variable: str, origin: str) -> dict[str, list[str]]:
    """What a list leaves of each collective. Raises FormatError (AHBM-F190) for what NCCL refuses."""
    known = {name.replace("_", ""): name for name in _LISTS[variable]}
    found = {theirs: list(_LISTS[variable]) for theirs in NCCL.collectives.values()}
    for at, part in enumerate(part for part in value.split(";") if part):
        prefix, colon, elements = part.partition(":")
        if not colon:
            prefix, elements = "", part
            if at:
                what = f"{variable}: {part[:40]!r} names no collective, and only the first list may be for all"
                raise malformed(origin, line, what, f"{variable}=ring;allreduce:tree")
        if prefix and prefix.lower() not in (*found, *_OTHERS):
            what = f"{variable}: {prefix[:40]!r} is no collective of NCCL, which refuses the list"
            raise malformed(origin, line, what, _hint(prefix, [*found, *_OTHERS]))
        listed = list(_elements(elements.removeprefix("^"), known, variable, line, origin))
        kept = [name for name in known.values() if (name in listed) is not elements.startswith("^")]
        for theirs in found:
            if prefix.lower() in ("", theirs):
                found[theirs] = kept
    return found


def _elements(text: str, known: Mapping[str, str], variable: str, line: int, origin: str) -> Iterator[str]:
    for element in text.split(","):
        if element and element.lower() not in known:
            what = f"{variable}: {element[:40]!r} is unknown to NCCL, which refuses the list"
            raise malformed(origin, line, what, _hint(element, list(known)))
        if element:
            yield known[element.lower()]


def _hint(word: str, names: Sequence[str]) -> str:
    if word != word.strip() or word.strip("\"'") != word:
        return "blanks and quotes are part of a value"
    return did_you_mean(word, names) or f"one of {', '.join(names)}"
