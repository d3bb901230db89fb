"""What machines that build and test read: annotations of GitHub, JUnit's XML, SARIF."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ahbm.base import codes
from ahbm.errors import AhbmError, Finding

if TYPE_CHECKING:
    from ahbm.runs.verdict import Checked

SARIF = "https://json.schemastore.org/sarif-2.1.0.json"


class Format(StrEnum):
    """The formats."""

    github = "github"
    junit = "junit"
    sarif = "sarif"


FormatOption = Annotated[
    Format | None,
    typer.Option("--format", help="Print this instead, for a CI: annotations of GitHub, JUnit's XML, or SARIF."),
]


@dataclass(frozen=True)
class Outcome:
    """One thing that was run or checked."""

    name: str
    failed: str = ""
    """Why it is no success: "wrong" or "deadlock", for example; empty where it is one."""
    ran: bool = True
    findings: tuple[Finding, ...] = ()
    ns: float = 0.0
    """Simulated time."""


@dataclass
class Outcomes:
    """What a command found, in order."""

    command: str
    kind: Format
    found: list[Outcome] = field(default_factory=list)

    def checked(self, answer: Checked) -> None:
        """An answer of `ahbm check`."""
        failed = "" if not answer.exit_code else answer.verdict
        self.found.append(Outcome(answer.file, failed, findings=answer.findings))

    def cell(self, cell: Any) -> None:
        """A report or a case that did not run; what is timed is a success."""
        error: AhbmError | None = getattr(cell, "error", None) if hasattr(cell, "collective") else None
        if isinstance(error, AhbmError):
            name = f"{cell.collective} by {cell.algorithm} at {cell.bytes} B on {cell.machine}"
            self.found.append(Outcome(name, error.code, False, error.findings))
            return
        if not hasattr(cell, "collective"):
            name = str(getattr(cell, "job", None) or getattr(cell, "plan", "run"))
            self.found.append(Outcome(name, ns=float(cell.latency_ns)))
            return
        name = f"{cell.collective} by {cell.algorithm} at {cell.bytes} B on {cell.topology}, {cell.ranks} ranks"
        findings = tuple(cell.findings)
        if not cell.right and not findings:
            findings = (Finding("AHBM-V301", f"{name}: {cell.wrong} elements are wrong"),)
        self.found.append(Outcome(name, "" if cell.right else "wrong", findings=findings, ns=cell.latency_ns))

    def text(self) -> str:
        """The whole document."""
        return {Format.github: _github, Format.junit: _junit, Format.sarif: _sarif}[self.kind](self)


@contextmanager
def outcomes(command: str, kind: Format | None) -> Iterator[Outcomes | None]:
    """Gathers what a command finds, and prints it at the end: also where the command ends in an error, which is part of
    it. None without a format."""
    if kind is None:
        yield None
        return
    found = Outcomes(command, kind)
    try:
        yield found
    except AhbmError as error:
        # The error of a row is in its row.
        if not any(one.findings == error.findings for one in found.found):
            found.found.append(Outcome(f"ahbm {command}", error.code, False, error.findings))
        typer.echo(found.text(), nl=False)
        raise
    except typer.Exit:
        typer.echo(found.text(), nl=False)
        raise
    typer.echo(found.text(), nl=False)


def place_of(finding: Finding) -> tuple[str, int]:
    """File and line of a finding; "" and 0 where it has none. A file is named as the command line names it."""
    for site in finding.sites:
        facts = site.to_json()
        if facts.get("file"):
            return _path(str(facts["file"])), int(facts.get("line") or 0)
    return "", 0


def distinct(one: Outcome) -> list[tuple[Finding, str]]:
    """The findings of an outcome, of those with one code at one place the first, and how many more there are."""
    if not one.findings:
        return [(Finding(one.failed, one.name), "")] if one.failed else []
    alike: dict[tuple[str, tuple[str, int]], list[Finding]] = {}
    for finding in one.findings:
        alike.setdefault((finding.code, place_of(finding)), []).append(finding)
    return [(some[0], f"\nand {len(some) - 1} more like it" if some[1:] else "") for some in alike.values()]


def _path(name: str) -> str:
    words = [word.rpartition("=")[2] for word in sys.argv[1:]]
    for candidate in (name, *(word for word in words if Path(word).name == Path(name).name), f"algorithms/{name}"):
        if Path(candidate).is_file():
            return Path(candidate).as_posix()
    return name


def _github(found: Outcomes) -> str:
    lines = []
    for one in found.found:
        level = "error" if one.failed else "notice"
        for finding, more in distinct(one):
            path, line = place_of(finding)
            facts = [("file", path), ("line", str(line) if line else ""), ("title", f"{finding.code} {one.name}")]
            given = ",".join(f"{key}={_escaped(value, ':,')}" for key, value in facts if value)
            lines.append(f"::{level} {given}::{_escaped(str(finding) + more)}\n")
    good = sum(not one.failed for one in found.found)
    return "".join([*lines, f"{good} of {len(found.found)} are right\n"])


def _escaped(text: str, more: str = "") -> str:
    """As the commands of a workflow want it."""
    for letter in ("%", "\r", "\n", *more):
        text = text.replace(letter, f"%{ord(letter):02X}")
    return text


def _junit(found: Outcomes) -> str:
    from xml.etree import ElementTree

    failures = sum(bool(one.failed) and one.ran for one in found.found)
    errors = sum(not one.ran for one in found.found)
    counts = {"tests": str(len(found.found)), "failures": str(failures), "errors": str(errors)}
    root = ElementTree.Element("testsuites", {"name": "ahbm", **counts})
    suite = ElementTree.SubElement(root, "testsuite", {"name": f"ahbm {found.command}", **counts})
    for one in found.found:
        facts = {"classname": f"ahbm.{found.command}", "name": _plain(one.name), "time": f"{one.ns / 1e9:.12f}"}
        case = ElementTree.SubElement(suite, "testcase", facts)
        text = _plain("\n".join(f"{finding}{more}" for finding, more in distinct(one)))
        if one.failed:
            message = _plain(one.findings[0].message if one.findings else one.failed)
            tag = "failure" if one.ran else "error"
            ElementTree.SubElement(case, tag, {"message": message, "type": one.failed}).text = text
        elif text:
            ElementTree.SubElement(case, "system-out").text = text
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _plain(text: str) -> str:
    """Without what XML cannot spell."""
    return "".join(letter if letter >= " " or letter in "\t\n" else "\ufffd" for letter in text)


def _sarif(found: Outcomes) -> str:
    from ahbm import __version__

    results, rules = [], dict[str, dict[str, Any]]()
    for one in found.found:
        for finding, more in distinct(one):
            path, line = place_of(finding)
            result: dict[str, Any] = {
                "ruleId": finding.code,
                "level": "error" if one.failed else "note",
                "message": {"text": f"{one.name}: {finding}{more}"},
            }
            if path:
                region = {"region": {"startLine": line}} if line else {}
                result["locations"] = [{"physicalLocation": {"artifactLocation": {"uri": _uri(path)}, **region}}]
            results.append(result)
            if codes.is_code(finding.code):
                about = codes.explained(finding.code)
                rules[finding.code] = {"id": finding.code, "shortDescription": {"text": about.meaning}}
            else:
                rules.setdefault(finding.code, {"id": finding.code})
    driver = {"name": "ahbm", "version": __version__, "rules": [rules[code] for code in sorted(rules)]}
    run = {"tool": {"driver": driver}, "results": results}
    return json.dumps({"$schema": SARIF, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _uri(path: str) -> str:
    from urllib.parse import quote

    return quote(Path(path).as_posix())


def refuse_two(kind: Format | None, given: Sequence[tuple[str, object]]) -> None:
    """Raises ConfigError (AHBM-C146) for a format beside another one."""
    from ahbm.errors import ConfigError

    others = [name for name, on in given if on]
    if kind is not None and others:
        raise ConfigError("AHBM-C146", f"--format and {', '.join(others)} are both given", hint="give one of them")
