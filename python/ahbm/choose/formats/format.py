"""What every format of tuning files has, and reading with bounds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from ahbm.base.load import load_text
from ahbm.base.rules import Rule, Rules, Span
from ahbm.choose.names import Library
from ahbm.errors import Finding, FormatError, Site, UnsupportedError

MAX_BYTES = 1 << 24
"""A longer file is no table of rules."""
NUMBER = re.compile(r"[0-9]{1,20}")


@dataclass(frozen=True)
class Read:
    """A tuning file."""

    format: str
    library: Library
    rules: Rules
    findings: tuple[Finding, ...] = ()
    """Warnings about what the library does with it that its author may not expect."""
    notes: tuple[str, ...] = ()
    """What of it is no rule here, or is read under an assumption."""


@dataclass(frozen=True)
class Format:
    """One format of tuning files."""

    name: str
    library: Library
    file: str
    """The usual name of such a file, as `ahbm tune -o DIR` writes it."""
    claims: Callable[[str], bool]
    """Whether a text is of this format."""
    read: Callable[[str, str], Read]
    """Of a text and the name of its file. Raises FormatError (AHBM-F190), BudgetError (AHBM-B214)."""
    write: Callable[[Rules, Sequence[str]], str]
    """The text of rules with the library's names, below comments where the format has them. Raises UnsupportedError
    (AHBM-U292) for a rule that the format cannot express."""


def load(path: str | Path) -> str:
    """The text of a tuning file. Raises FormatError (AHBM-F101)."""
    try:
        return load_text(path, MAX_BYTES)
    except OSError as error:
        raise FormatError("AHBM-F101", f"{path} cannot be read: {error}") from error


def malformed(origin: str, line: int, what: str, hint: str | None = None) -> FormatError:
    """The error (AHBM-F190) for a line that is no rule."""
    return FormatError("AHBM-F190", what, sites=(Site("written", f"{origin}:{line}"),), hint=hint)


def unwritable(format: str, rule: Rule, what: str) -> UnsupportedError:
    """The error (AHBM-U292) for a rule that a format cannot express."""
    hint = "write it as ccl.yaml, which has ranks and sizes"
    return UnsupportedError("AHBM-U292", f"{format} has no {what}: {rule.algorithm} of {rule.collective}", hint=hint)


def number(text: str, origin: str, line: int, what: str) -> int:
    """A whole number, not below 0 and not above what 64 bits hold. Raises FormatError (AHBM-F190)."""
    if not NUMBER.fullmatch(text) or int(text) >= 1 << 64:
        hint = "bytes, without a unit" if re.fullmatch(r"[0-9.]+ ?[kKmMgGtT]?i?B?", text) else None
        raise malformed(origin, line, f"{what} is {text[:40]!r}, which is no number of bytes or ranks", hint)
    return int(text)


def exactly(span: Span, any: int = -1) -> int | None:
    """The one number of a span, `any` for all of them; None for a span of several."""
    if span.least == 0 and span.most is None:
        return any
    return span.least if span.most == span.least else None


def collective_of(library: Library, theirs: str) -> str | None:
    """This project's name of a library's collective."""
    return next((ours for ours, name in library.collectives.items() if name == theirs), None)


def passed_over(library: Library, rules: Rules, origin: str) -> tuple[Rules, list[Finding]]:
    """The rules that a library can run, and a warning (AHBM-F200) for each of the others."""
    kept, findings = [], []
    hint = f"an algorithm and a protocol that {library.name} has for these calls"
    for rule in rules:
        most = rule.nodes.most
        each = max(rule.ranks_per_node.least, rule.ranks.least / most if most else 0)
        had = library.lacks(rule.collective, rule.algorithm, rule.protocol, inf if most is None else most, each)
        if had is None:
            kept.append(rule)
            continue
        what = f"{library.name} has {had}: the line is passed over"
        site = Site(f"{rule.algorithm}/{rule.protocol}", f"{origin}:{rule.line}")
        findings.append(Finding("AHBM-F200", what, (site,), hint))
    return Rules(tuple(kept)), findings


def parse_json(text: str, origin: str) -> Any:
    """A JSON document. Raises FormatError (AHBM-F190) for what is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise malformed(origin, line, f"no JSON: {error or type(error).__name__}") from error


def is_object(text: str, key: str) -> bool:
    """Whether a text is a JSON object with this key at its top."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and key in document


def first_rows(text: str) -> list[str]:
    """The fields of the first line that is no comment; none for a text without."""
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            return [part.strip() for part in line.split(",")]
    return []


def comments(notes: Iterable[str], most: int = 250) -> list[str]:
    """Lines of comments, none longer than `most` characters."""
    found = []
    for note in notes:
        words, line = note.split(), "#"
        for word in words:
            if len(line) + 1 + len(word) > most:
                found.append(line)
                line = "#"
            line += f" {word}"[: most - 1]
        found.append(line)
    return found
