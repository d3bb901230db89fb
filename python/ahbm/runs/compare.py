"""Differences between two runs: simulated times have no noise, so every difference is real.

Reads what `ahbm bench --json`, `ahbm bench --json-lines` and `ahbm run --json` print; of `ahbm explain --json`, which
line of the algorithm and what kind of work it was.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ahbm.base.load import load_text
from ahbm.base.sizes import resize_notes
from ahbm.errors import AhbmError, ConfigError, Finding
from ahbm.runs.report import OF_BOUND, Report, notes_of

Key = tuple[str, str, str, int, int, str, str, int]
"""Collective, algorithm, topology or machine, ranks, bytes, dtype, op, root."""


def key(report: Report, by_machine: bool = False) -> Key:
    """The facts that make two runs the same measurement; the machine's name among them, or only its network."""
    r = report
    where = r.machine if by_machine and r.machine else r.topology
    return (r.collective, r.algorithm, where, r.ranks, r.bytes, r.dtype, r.op, r.root)


@dataclass(frozen=True)
class Row:
    """One measurement in both files, or in one of them."""

    key: Key
    before: Report | None
    after: Report | None

    @property
    def name(self) -> str:
        """For people."""
        collective, algorithm, topology, ranks, nbytes, dtype, op, root = self.key
        how = "" if op == "none" else f" {op}"
        to = "" if root < 0 else f" root {root}"
        return f"{collective}{how}{to} by {algorithm} on {topology}, {ranks} x {nbytes} B {dtype}"

    @property
    def factor(self) -> float | None:
        """Time after / time before; None when one of them is missing."""
        if self.before is None or self.after is None or not self.before.latency_ns:
            return None
        return self.after.latency_ns / self.before.latency_ns

    @property
    def slower(self) -> bool:
        """True when it takes longer, by a picosecond or more."""
        return self.before is not None and self.after is not None and self.after.latency_ns > self.before.latency_ns

    @property
    def verdict(self) -> str:
        """slower, faster, same, changed (same time, other timeline), wrong (see `wrong`), new or gone."""
        if self.before is None:
            return "new"
        if self.after is None:
            return "gone"
        if self.wrong:
            return "wrong"
        if self.after.latency_ns != self.before.latency_ns:
            return "slower" if self.slower else "faster"
        return "same" if self.after.timeline_hash == self.before.timeline_hash else "changed"

    @property
    def wrong(self) -> str:
        """Which results are wrong: before, after, both; empty where none is known to be. Their times say nothing."""
        sides = {"before": self.before, "after": self.after}
        found = [name for name, report in sides.items() if report is not None and not report.right]
        return "both" if len(found) > 1 else "".join(found)

    @property
    def cause(self) -> str:
        """The inputs that differ: machine, program, version; empty when none does."""
        if self.before is None or self.after is None:
            return ""
        pairs = {
            "machine": (self.before.machine_hash, self.after.machine_hash),
            "program": (self.before.program_hash, self.after.program_hash),
            "version": (self.before.version, self.after.version),
        }
        return ", ".join(name for name, (a, b) in pairs.items() if a != b)

    def to_json(self) -> dict[str, Any]:
        """Verdict, times in ns, factor, and which inputs differ."""
        return {
            "name": self.name,
            "verdict": self.verdict,
            "before_ns": None if self.before is None else self.before.latency_ns,
            "after_ns": None if self.after is None else self.after.latency_ns,
            "factor": self.factor,
            "differs": self.cause,
            "wrong": self.wrong,
            **({} if not (found := notes([self])) else {"notes": found}),
        }

    def __str__(self) -> str:
        def time(report: Report | None) -> str:
            return "-" if report is None else f"{report.latency_ns:,.2f}"

        change = "" if self.factor is None else f"{100 * (self.factor - 1):+.2f} %"
        differs = f"  ({self.cause} changed)" if self.cause and self.verdict not in ("same", "new", "gone") else ""
        wrong = f"  (wrong: {self.wrong})" if self.wrong else ""
        times = f"{time(self.before):>14}  {time(self.after):>14}  {change:>10}"
        return f"{self.verdict:>8}  {times}  {self.name}{differs}{wrong}"


def notes(rows: Iterable[Row]) -> list[str]:
    """Sizes that were asked for and cannot be divided, and those that ran in their place; numbers of ranks that were,
    where ccl.yaml has its own; terms that have no effect; and the errors of calibrated machines."""
    reports = [report for row in rows for report in (row.before, row.after) if report is not None]
    return [*resize_notes(report.resized for report in reports), *notes_of(reports)]


STEPS_HEADER = (
    f"{'before (ns)':>14}  {'after (ns)':>14}  {'change (ns)':>12}  line of the algorithm on the critical path"
)
HEADER = f"{'':>8}  {'before (ns)':>14}  {'after (ns)':>14}  {'change':>10}"


@dataclass(frozen=True)
class StepRow:
    """A line of the algorithm on the critical paths of two runs; 0 ps where it is not on one."""

    origin: str
    what: str
    before_ps: int
    after_ps: int
    by_category: dict[str, int]
    """Change in ps by category, the largest first; categories that did not change are left out."""

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON-serialisable data."""
        return asdict(self)

    def __str__(self) -> str:
        changes = ", ".join(f"{name} {ps / 1000:+,.2f}" for name, ps in self.by_category.items())
        change = f"{(self.after_ps - self.before_ps) / 1000:+,.2f}"
        name = f"{self.origin or '(no source)'}  {self.what}: {changes or 'same'}"
        return f"{self.before_ps / 1000:>14,.2f}  {self.after_ps / 1000:>14,.2f}  {change:>12}  {name}"


def compare_steps(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[StepRow]:
    """Two explanations as JSON, line by line, the greatest change first; the changes add up to that of the latency."""
    old, new = ({(step["origin"], step["what"]): step for step in data["steps"]} for data in (before, after))
    rows = []
    for at in dict.fromkeys([*old, *new]):
        parts = [data.get(at, {"ps": 0, "by_category": {}}) for data in (old, new)]
        names = dict.fromkeys([*parts[0]["by_category"], *parts[1]["by_category"]])
        changes = {n: parts[1]["by_category"].get(n, 0) - parts[0]["by_category"].get(n, 0) for n in names}
        shown = dict(sorted(((n, ps) for n, ps in changes.items() if ps), key=lambda item: -abs(item[1])))
        rows.append(StepRow(*at, parts[0]["ps"], parts[1]["ps"], shown))
    return sorted(rows, key=lambda row: -abs(row.after_ps - row.before_ps))


def explanation(path: str | Path) -> dict[str, Any] | None:
    """The explanation in a file; None when it holds something else. Raises ConfigError (AHBM-C160)."""
    data = _read(path)
    if not isinstance(data, dict) or "critical_path_ps" not in data:
        return None
    steps = data.get("steps")
    keys = {"origin", "what", "ps", "by_category"}
    if not isinstance(steps, list) or not all(isinstance(step, dict) and keys <= set(step) for step in steps):
        raise _refused(path, "an explanation without steps")
    return data


def _refused(path: str | Path, why: str) -> ConfigError:
    hint = "give what `ahbm bench --json`, `ahbm run --json` or `ahbm explain --json` printed, twice the same"
    return ConfigError("AHBM-C160", f"{path}: {why}", hint=hint)


def _read(path: str | Path) -> object:
    try:
        text = load_text(path)
        lines = text.splitlines()
        if len(lines) > 1 and all(line.startswith('{"') for line in lines):
            return {"results": [json.loads(line) for line in lines]}
        return json.loads(text)
    except OSError as error:
        raise _refused(path, error.strerror or "cannot be read") from error
    except (ValueError, RecursionError) as error:
        raise _refused(path, f"no JSON: {error}") from error


def load(path: str | Path) -> list[Report]:
    """The reports in a file, without the rows that did not run. Raises ConfigError (AHBM-C160) for one that holds
    something else."""
    data = _read(path)
    rows: list[object] = [data]
    if isinstance(data, dict) and isinstance(data.get("results"), list):
        kept = [row for row in data["results"] if not (isinstance(row, dict) and "error" in row)]
        rows = [row.get("report") if isinstance(row, dict) else row for row in kept]
    elif isinstance(data, dict) and "report" in data:
        rows = [data["report"]]
    return [_report(row, path) for row in rows]


def _report(row: object, path: str | Path) -> Report:
    found = ("bound", "spec", "program_hash_of")
    own = {field.name: field.default is MISSING for field in fields(Report) if field.name not in found}
    names = own | {"program_hash": True} | {name: name != OF_BOUND[-1] for name in OF_BOUND}
    needed = {name for name, must in names.items() if must}
    if not isinstance(row, dict) or not needed <= set(row) <= names.keys():
        missing = ", ".join(sorted(needed - set(row))) if isinstance(row, dict) else ""
        raise _refused(path, f"a report lacks {missing}" if missing else "no report")
    return Report.from_json(row)


def compare(before: Iterable[Report], after: Iterable[Report]) -> list[Row]:
    """The measurements of both, in order of `before`, then what is only in `after`.

    Where one of them has several machines, machines are told apart by their names. Of several runs of one measurement
    the last counts.
    """
    sides = list(before), list(after)
    several = any(len({report.machine for report in side}) > 1 for side in sides)
    old, new = ({key(report, several): report for report in side} for side in sides)
    return [Row(k, old.get(k), new.get(k)) for k in dict.fromkeys([*old, *new])]


def versus(before: Iterable[Report], after: Iterable[Report]) -> list[Row]:
    """The sizes of two sweeps that differ in their algorithm or machine, as `compare` tells two runs of one."""
    sides = [{(r.collective, r.bytes, r.dtype, r.op, r.root): r for r in reports} for reports in (before, after)]

    def named(old: str, new: str) -> str:
        return old if old == new else f"{old} -> {new}"

    rows = []
    for at in sorted({*sides[0], *sides[1]}):
        old, new = (side.get(at) for side in sides)
        one, other = old or new, new or old
        assert one is not None and other is not None
        collective, _, where, ranks, nbytes, dtype, op, root = key(one, by_machine=True)
        algorithm, where = named(one.algorithm, other.algorithm), named(where, key(other, by_machine=True)[2])
        rows.append(Row((collective, algorithm, where, ranks, nbytes, dtype, op, root), old, new))
    return rows


def gate(rows: Sequence[Row]) -> None:
    """Raises RegressionError with everything that got worse: slower (AHBM-R101), wrong (R102), gone (R103)."""
    codes = {"slower": "AHBM-R101", "wrong": "AHBM-R102", "gone": "AHBM-R103"}
    findings = []
    for row in rows:
        if row.verdict in codes and row.wrong != "before":
            change = {
                "slower": f"takes {0 if row.after is None else row.after.latency_ns:,.2f} ns instead of "
                f"{0 if row.before is None else row.before.latency_ns:,.2f} ns",
                "wrong": "gives a wrong result",
                "gone": "was not measured",
            }[row.verdict]
            hint = f"not the same as then: {row.cause}" if row.cause else None
            findings.append(Finding(codes[row.verdict], f"{row.name} {change}", (), hint))
    if findings:
        raise AhbmError.of(findings)
